"""Generation: caches, routing of single tokens, prompts."""
