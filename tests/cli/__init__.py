"""A package, because other folders have tests of the same names."""
