"""Worker processes on other machines: a supervisor per host that dials in over gRPC.

So far only tests and `LoopbackCluster` (supervisors on this machine) use it; launchers for real clusters come later.
"""
