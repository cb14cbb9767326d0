"""Weights: initial values, loading, saving, transformers' models, conversion."""
