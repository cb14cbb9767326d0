"""Modules that every other package may use: files, errors, progress, checks of settings, the machine."""
