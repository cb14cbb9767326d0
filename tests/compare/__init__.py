"""A package, because another folder has a test_report too."""
