"""Raw documents to training batches; each module is named for the artefact it writes."""
