"""Replay: rows are kept, and batches of them drawn in any order. numpy alone."""
