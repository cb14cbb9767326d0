"""A package, because other rooms have a test_corpus and a test_estimate too."""
