"""Configuration: YAML with places, experiments that inherit, overrides."""
