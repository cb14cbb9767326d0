"""`loriini quickstart`: trains a dense model and a mixture of equal active size, and compares them."""
