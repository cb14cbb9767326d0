"""Towards an empirical understanding of MoE Design Choices (Fan et al., arXiv 2402.13089, version 1).

A row is a model, a column the text that it is trained and validated on. Perplexities are means of the last
100 iterations.
"""

from functools import partial

from loriini.papers.published.values import SETUP, Table

TEXTS = ("MultiWiki", "OpenWebText")

_table = partial(Table, "Design choices")

TABLES = (
    _table(
        "design-choices-table1",
        "table 1",
        "perplexity",
        TEXTS,
        {
            "token, layer-wise, top-2": (9.907, 22.632),
            "sequence, layer-wise, top-2": (10.667, 24.980),
            "sequence, global, top-2": (11.605, 25.689),
            "token, layer-wise, top-1": (10.188, 23.548),
            "sequence, layer-wise, top-1": (11.573, 26.742),
            "sequence, global, top-1": (13.632, 30.292),
            "dense, 1x FFN width": (11.815, 26.195),
            "dense, 2x FFN width": (10.831, 24.387),
            "dense, 4x FFN width": (10.071, 22.700),
        },
    ),
    _table(
        "design-choices-table1",
        "table 1",
        "parameters",
        ("total", "active"),
        {
            "token, layer-wise, top-2": (295e6, 182e6),
            "sequence, layer-wise, top-2": (295e6, 182e6),
            "sequence, global, top-2": (295e6, 182e6),
            "token, layer-wise, top-1": (295e6, 124e6),
            "sequence, layer-wise, top-1": (295e6, 124e6),
            "sequence, global, top-1": (295e6, 124e6),
            "dense, 1x FFN width": (124e6, 124e6),
            "dense, 2x FFN width": (182e6, 182e6),
            "dense, 4x FFN width": (295e6, 295e6),
        },
    ),
    _table(
        "design-choices-table1",
        "table 1 and section 3",
        "",
        ("experts", "iterations averaged"),
        {SETUP: (4, 100)},
    ),
    _table(
        "design-choices-table1",
        "section 3",
        "tokens",
        ("MultiWiki, size", "OpenWebText, size"),
        {SETUP: (17e9, 9e9)},
    ),
    _table(
        "design-choices-table2",
        "table 2",
        "perplexity",
        ("MultiWiki",),
        {
            "sequence (2, 2)": (10.648,),
            "sequence (4, 2)": (10.667,),
            "sequence (6, 2)": (10.674,),
            "sequence (4, 1)": (11.573,),
            "sequence (4, 3)": (10.107,),
            "token (2, 2)": (10.761,),
            "token (4, 2)": (9.907,),
            "token (6, 2)": (9.467,),
            "token (4, 1)": (10.188,),
            "token (4, 3)": (9.711,),
        },
        note="(N, K): experts, active experts",
    ),
    _table(
        "design-choices-table3",
        "table 3",
        "perplexity",
        TEXTS,
        {
            "sequence, global, language": (11.716, None),
            "sequence, global, learned": (11.605, None),
            "sequence, layer-wise, frozen": (10.601, 24.590),
            "sequence, layer-wise, random": (11.685, 26.429),
            "sequence, layer-wise, learned": (10.666, 24.980),
            "token, layer-wise, frozen": (9.810, 22.687),
            "token, layer-wise, random": (11.752, 26.879),
            "token, layer-wise, learned": (9.907, 22.632),
        },
    ),
    *(
        _table(
            f"design-choices-fig{number}",
            "appendix A.4",
            "weight of the load-balancing loss",
            ("lambda",),
            {SETUP: (0.01,)},
        )
        for number in (3, 4)
    ),
)
