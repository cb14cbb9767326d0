"""Fast ways of computing experts, each with a naive twin."""
