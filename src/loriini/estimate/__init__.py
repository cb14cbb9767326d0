"""What a run needs before it starts: memory, computation and communication."""
