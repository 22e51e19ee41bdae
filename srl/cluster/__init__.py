"""Worker processes on other machines: a supervisor per host that dials in over gRPC."""
