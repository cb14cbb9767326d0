"""Weights: loading, saving, families of transformers, conversion."""
