"""Reports: which experts are used for what, plots, self-contained HTML pages and the lens on one text."""
