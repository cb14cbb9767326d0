"""What reports are made of: HTML pages, plots, curves over training, and numbers in words."""
