"""A package, because other folders have a test_corpus and a test_estimate too."""
