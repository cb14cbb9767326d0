"""What a run needs before it starts: memory, computation, and the bytes of Muon's exchange."""
