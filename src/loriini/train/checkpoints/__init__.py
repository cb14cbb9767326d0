"""The checkpoints of a run: how they are written, read and checked, and the configuration of their model."""
