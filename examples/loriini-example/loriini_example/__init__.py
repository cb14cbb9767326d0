"""A router, loss, recipe and command for Loriini."""
