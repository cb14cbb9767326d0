"""Generation: caches, prompts and the inputs that route them."""
