"""Every figure and table of the four papers that `ITEMS` lists: what it finds and the runs that it needs."""

from loriini.papers.published.items.aoe import AOE_ITEMS
from loriini.papers.published.items.design_choices import DESIGN_CHOICES_ITEMS
from loriini.papers.published.items.item import Item, PaperRun
from loriini.papers.published.items.lory import LORY_ITEMS

ITEMS = {item.id: item for item in (*LORY_ITEMS, *DESIGN_CHOICES_ITEMS, *AOE_ITEMS)}
"""By id, paper after paper."""

__all__ = ["ITEMS", "Item", "PaperRun"]
