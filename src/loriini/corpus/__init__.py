"""Documents → a corpus of fixed-length instances: one module a stage, named for the artefact it writes."""
