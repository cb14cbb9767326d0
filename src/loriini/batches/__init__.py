"""Instances to batches for training, and to a data set for other trainers."""
