"""Documents → a corpus of fixed-length instances: a table of stages, and a module per stage."""
