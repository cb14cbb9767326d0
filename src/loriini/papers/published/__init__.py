"""What the four papers print, as data: models, training, every table, and the findings of tables and figures.

No code here runs anything. A `PublishedValue` and a run of its `Item` have the same row, so that a report can
print a measurement next to it.
"""

from loriini.papers.published.items import ITEMS
from loriini.papers.published.parameters import PARAMETERS
from loriini.papers.published.tables import TABLES, published_values
from loriini.papers.published.training import TRAINING

__all__ = ["ITEMS", "PARAMETERS", "TABLES", "TRAINING", "published_values"]
