"""Durable work that knows no text: artifacts written whole or not at all, tasks, and where they run."""
