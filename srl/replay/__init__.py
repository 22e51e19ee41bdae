"""What buffers and trainers keep rows in."""
