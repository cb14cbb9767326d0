"""Reports: which experts are used for what, plots and self-contained HTML pages."""
