"""The doors: what a user implements. No I/O, no stream, no process; torch only in `algorithm`."""
