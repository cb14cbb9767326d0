"""Downstream tasks of lm-evaluation-harness, with the papers' groups, over the Hub's data or local files."""

from loriini.evaluate.settings import TaskSettings
from loriini.evaluate.tasks.running import evaluate_tasks, table_of

__all__ = ["TaskSettings", "evaluate_tasks", "table_of"]
