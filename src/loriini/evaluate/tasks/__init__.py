"""Downstream tasks of lm-evaluation-harness, with the papers' groups, over the Hub's data or local files."""
