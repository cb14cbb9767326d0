"""Experts, and the products under them: merged per unit, summed, or dispatched to their tokens."""
