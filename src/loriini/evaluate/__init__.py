"""Evaluation of trained models: perplexity by domain, comparisons, causality, generated text."""
