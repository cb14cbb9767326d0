"""Training of any design with PyTorch's own parts: resumable, with records of every step."""
