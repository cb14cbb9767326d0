"""Batches of instances for training, and instances as a data set for other trainers."""
