"""The four papers: their numbers, their recipes, and `loriini reproduce`."""
