"""What the two commands do: `python -m srl.launch` and `python -m srl VERB`. Nothing heavy is imported before it is needed."""
