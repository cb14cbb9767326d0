"""What a run records of its steps: `metrics.jsonl`, the use of experts in it, and experiment trackers."""
