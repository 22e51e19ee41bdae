"""Learners: how an algorithm is driven on devices."""
