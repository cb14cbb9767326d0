"""Generation: caches, prompts and what routes them."""
