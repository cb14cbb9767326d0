"""Instances → batches for training, and examples for other trainers."""
