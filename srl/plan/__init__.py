"""The plan of a run: env and policies are inspected, every spec is written down, sizes are checked, before anything starts."""
