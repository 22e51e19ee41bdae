"""Launchers bring up hosts; on each a supervisor starts the processes."""
