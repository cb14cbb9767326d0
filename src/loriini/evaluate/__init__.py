"""Evaluation of trained models: perplexity by domain, comparisons, tasks, causality, generated text."""
