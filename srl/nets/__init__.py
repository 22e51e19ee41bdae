"""Networks and their distributions."""
