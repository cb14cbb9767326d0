"""SOAP, the earlier version of Lory (anonymous submission to ICML 2024), where it prints other numbers.

Its rows and columns have Lory's names. All other tables are the same; table 3 of Lory, with the throughput,
and figures 7 and 11 are not in it.
"""

from functools import partial

from loriini.papers.published.values import SETUP, Table

_table = partial(Table, "SOAP")

TABLES = (
    _table(
        "lory-fig2-left",
        "section 4.1",
        "GPUs",
        ("GPUs",),
        {"0.3B": (32,), "1.5B": (64,)},
    ),
    _table(
        "lory-fig2-right",
        "section 4.1",
        "a domain",
        ("tokens of an instance",),
        {SETUP: (2048,)},
    ),
    _table(
        "lory-table2",
        "table 2",
        "perplexity",
        ("Python",),
        {"0.3B/8E (EC, seg-level)": (20.8,), "0.3B/8E (EC, tok-level)": (23.7,)},
    ),
    _table(
        "lory-appendix-b",
        "appendix A",
        "% slower",
        ("training",),
        {"0.3B/32E": (20,)},
    ),
    _table(
        "lory-fig9",
        "section 5.4",
        "routing weight",
        ("threshold of activity",),
        {"1.5B/8E": (4,)},
        note="E/2, a slip: no weight is above 1",
    ),
)
