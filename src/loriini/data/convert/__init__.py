"""Corpora exported to and imported from formats of other programs."""
