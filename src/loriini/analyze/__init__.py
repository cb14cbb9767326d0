"""Reports on the use of experts: statistics, plots, self-contained HTML pages, and the lens."""
