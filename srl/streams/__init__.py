"""Streams: the only way data leaves a worker. Three kinds, two ends each, several transports."""
