"""Nouns that every room shares: trees, specs, errors, seeds, strict loading, the registry."""
