"""Environments: adapters for gymnasium, MuJoCo and PettingZoo, a fake one, and their checker. Torch-free."""
