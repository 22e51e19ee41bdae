"""Workers: what runs. One thread owns a worker's state; data leaves it by streams only."""
