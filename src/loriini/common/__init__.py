"""What every room may use: files, errors, progress, checks of settings, the machine."""
