"""The control plane: assigns, binds, attaches, starts, watches and stops the workers of a run."""
