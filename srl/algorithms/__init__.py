"""Algorithms: one file, one algorithm."""
