"""Reports on the use of experts: which experts held-out text is routed to, and the lens on one text."""
