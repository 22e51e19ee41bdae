"""A trained policy as a file for other programs: ONNX or PT2, checked against the original, with a contract beside it."""
