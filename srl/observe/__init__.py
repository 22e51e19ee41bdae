"""Monitoring of a run: totals, table, ledger, result, advice. Nothing here imports torch."""
