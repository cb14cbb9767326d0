"""The checkpoints of a run: written and read, checked, and what model is in them."""
