"""What starts a supervisor on each host of a run: on this machine, by ssh, or by a class of one's own."""
