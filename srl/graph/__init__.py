"""The experiment as data: nodes joined by named streams, checked before anything starts."""
