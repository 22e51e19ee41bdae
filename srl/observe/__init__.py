"""What a person sees of a run: figures, table, ledger, verdict, videos. Nothing here imports torch."""
