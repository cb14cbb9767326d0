"""What the experts learnt: who routes where, pictures, report pages. Reads files, changes none."""
