"""A model of a run on many hosts: unit costs measured here, and what follows from them elsewhere."""
