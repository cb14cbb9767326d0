"""Reports on the use of experts (by held-out text, and by one text in the lens), and on a corpus."""
