"""What a person sees of a run: totals, table, ledger, result, advice. Nothing here imports torch."""
