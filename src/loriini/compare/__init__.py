"""Comparison of designs: trainings that differ in design, settings and seed, scored on the same tokens."""
