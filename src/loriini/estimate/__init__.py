"""Estimates of a run before it starts: its memory, its computation, and the bytes that Muon exchanges."""
