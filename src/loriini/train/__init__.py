"""A readable training loop over PyTorch's own parts: any design, restartable, watched."""
