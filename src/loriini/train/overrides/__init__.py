"""Settings that the command line can change: their names, and how overrides are applied."""
