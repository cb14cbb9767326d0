"""What every folder may use: files, errors, progress, checks of settings, the machine."""
