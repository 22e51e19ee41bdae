"""Where reports and events of a run go: console, metrics.jsonl, TensorBoard, and sinks of your own."""
