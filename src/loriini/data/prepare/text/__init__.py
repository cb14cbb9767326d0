"""The distinct documents of a corpus, with near-duplicates and held-out text set apart."""
