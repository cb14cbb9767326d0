"""Resumable work, independent of text: artifacts written whole or not at all, tasks, executors."""
