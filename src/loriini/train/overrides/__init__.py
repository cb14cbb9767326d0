"""Settings that the command line changes: which there are, how they change, and which have an effect."""
