"""Lory: Fully Differentiable Mixture-of-Experts for Autoregressive Language Model Pre-training
(Zhong et al., version of 2024-08).
"""

from functools import partial

from loriini.papers.published.values import SETUP, Table

DOMAINS = ("arXiv", "Books", "Wiki", "C4", "Python")

REASONING_AND_READING = (
    *("PIQA", "SIQA", "BoolQ", "HellaSwag", "WinoGrande"),
    *("RACE-m", "RACE-h", "ARC-e", "ARC-c"),
)

ANSWERS_AND_LABELS = ("NQ", "TQA", "AGNews", "Amazon", "SST-2", "Yelp", "Fever", "MRPC", "Avg")

_table = partial(Table, "Lory")

TABLES = (
    _table(
        "lory-fig2-left",
        "section 4.2",
        "of the training tokens",
        ("tokens to the dense model's final loss",),
        {"0.3B/32E": (0.5,), "1.5B/32E": (0.5,)},
        note="fewer than",
    ),
    _table("lory-fig2-left", "section 4.1", "GPUs", ("GPUs",), {SETUP: (64,)}, note="up to"),
    _table(
        "lory-fig2-right",
        "section 4.2",
        "% below 0.3B",
        ("Books, gain",),
        {"0.3B/32E": (13.9,)},
    ),
    _table(
        "lory-fig2-right",
        "section 4.1",
        "a domain",
        ("instances", "tokens of an instance"),
        {SETUP: (1000, 4096)},
    ),
    _table(
        "lory-table1",
        "table 1, upper half",
        "%",
        REASONING_AND_READING,
        {
            "0.3B": (65.8, 42.7, 44.6, 34.6, 51.2, 41.7, 30.9, 51.5, 21.3),
            "0.3B/8E": (67.5, 41.2, 41.2, 34.8, 54.4, 43.1, 31.4, 52.4, 22.1),
            "0.3B/16E": (67.2, 44.1, 56.6, 34.9, 54.1, 43.9, 31.1, 54.8, 24.9),
            "0.3B/32E": (68.2, 43.0, 58.0, 34.7, 53.4, 42.7, 32.0, 57.4, 26.3),
            "1.5B": (71.2, 45.0, 54.0, 43.9, 60.9, 50.1, 36.7, 65.0, 31.0),
            "1.5B/8E": (72.1, 45.2, 62.0, 43.6, 63.7, 51.2, 36.5, 66.3, 32.5),
            "1.5B/16E": (71.3, 45.0, 56.0, 43.7, 61.5, 51.7, 37.3, 66.3, 32.7),
            "1.5B/32E": (72.1, 47.1, 59.9, 43.8, 61.9, 51.5, 32.4, 66.7, 32.7),
        },
    ),
    _table(
        "lory-table1",
        "table 1, lower half",
        "%",
        ANSWERS_AND_LABELS,
        {
            "0.3B": (4.7, 8.8, 30.3, 53.6, 54.6, 66.0, 47.6, 62.0, 41.8),
            "0.3B/8E": (5.3, 9.0, 38.4, 52.3, 54.6, 62.6, 56.6, 59.0, 42.7),
            "0.3B/16E": (6.0, 10.2, 36.3, 75.6, 53.3, 64.0, 57.0, 65.0, 45.8),
            "0.3B/32E": (5.3, 10.2, 47.3, 64.0, 55.3, 73.3, 55.7, 56.0, 46.0),
            "1.5B": (7.6, 23.8, 64.0, 65.3, 80.0, 58.6, 59.0, 66.7, 51.9),
            "1.5B/8E": (7.3, 24.2, 65.0, 94.0, 80.0, 88.3, 57.0, 64.0, 56.1),
            "1.5B/16E": (7.3, 25.6, 61.6, 78.3, 84.6, 93.6, 57.3, 63.6, 55.1),
            "1.5B/32E": (7.0, 25.4, 62.3, 94.7, 85.0, 95.3, 56.3, 66.7, 56.5),
        },
    ),
    _table(
        "lory-table1",
        "section 4.2",
        "points above 0.3B",
        ("commonsense reasoning", "reading comprehension"),
        {"0.3B/32E": (3.7, 3.3)},
    ),
    _table(
        "lory-table1",
        "section 4.2",
        "points above 0.3B",
        ("closed-book QA", "text classification"),
        {"0.3B/32E": (1.5, 11.1)},
        note="table 1 gives 1.0 and 6.3; 11.1 is the gain of 1.5B/32E in text classification",
    ),
    _table(
        "lory-table2",
        "table 2",
        "perplexity",
        DOMAINS,
        {
            "0.3B/8E (Lory)": (7.4, 16.0, 9.2, 13.3, 12.5),
            "0.3B/8E (EC, seg-level)": (7.9, 17.6, 10.5, 14.1, 14.1),
            "0.3B/8E (EC, tok-level)": (7.5, 17.0, 9.2, 12.8, 13.6),
        },
    ),
    _table(
        "lory-table3",
        "table 3",
        "tokens/s/GPU",
        ("throughput",),
        {"0.3B": (29_000,), "0.3B/8E": (24_500,), "0.3B/16E": (22_900,), "0.3B/32E": (20_800,)},
    ),
    _table(
        "lory-appendix-b",
        "appendix B",
        "% of the FFN's FLOPs",
        ("merging",),
        {"0.3B/8E": (3.1,), "0.3B/32E": (12.5,)},
        note="E/T with segments of T = 256 tokens",
    ),
    _table(
        "lory-appendix-b",
        "appendix B",
        "% slower",
        ("training",),
        {"0.3B/8E": (15,), "0.3B/32E": (28,)},
    ),
    _table(
        "lory-table4",
        "table 4",
        "parameters",
        ("n_params",),
        {
            "0.3B": (0.3e9,),
            "0.3B/8E": (1.8e9,),
            "0.3B/16E": (3.5e9,),
            "0.3B/32E": (6.8e9,),
            "1.5B": (1.5e9,),
            "1.5B/8E": (7.8e9,),
            "1.5B/16E": (15.0e9,),
            "1.5B/32E": (29.5e9,),
        },
    ),
    _table(
        "lory-table4",
        "table 4",
        "",
        ("N", "D", "n_head"),
        {
            **dict.fromkeys(("0.3B", "0.3B/8E", "0.3B/16E", "0.3B/32E"), (24, 1024, 16)),
            **dict.fromkeys(("1.5B", "1.5B/8E", "1.5B/16E", "1.5B/32E"), (48, 1536, 24)),
        },
        note="layers, width, attention heads",
    ),
    _table(
        "lory-table5",
        "table 5",
        "parameters",
        ("n_params",),
        {"7B": (7e9,), "7B/4E": (19.7e9,)},
    ),
    _table(
        "lory-table5",
        "table 5",
        "",
        ("N", "D", "n_head"),
        dict.fromkeys(("7B", "7B/4E"), (32, 4096, 32)),
        note="layers, width, attention heads",
    ),
    *(
        _table(
            f"lory-table{number}",
            f"table {number}",
            "%",
            ("PIQA", "SIQA", "BoolQ", "HellaSwag", "WinoGrande", "NQ", "TQA", "Avg"),
            {
                "1.5B/8E (prompt)": (72.1, 45.2, 62.0, 43.6, 63.7, 7.3, 24.2, 45.4),
                "1.5B/8E (segment)": (72.1, 45.6, 60.2, 43.9, 61.8, 7.3, 24.4, 45.1),
                "1.5B/16E (prompt)": (71.3, 45.0, 56.0, 43.7, 61.5, 7.3, 25.6, 44.4),
                "1.5B/16E (segment)": (72.9, 45.4, 55.2, 43.6, 62.4, 7.6, 25.5, 44.7),
            },
        )
        for number in (6, 9)  # printed twice
    ),
    _table(
        "lory-table7",
        "table 7",
        "perplexity",
        DOMAINS,
        {"7B": (2.3, 9.1, 5.9, 8.0, 2.3), "7B/4E": (2.2, 8.7, 5.7, 7.7, 2.2)},
    ),
    _table(
        "lory-table8",
        "table 8, upper half",
        "%",
        REASONING_AND_READING,
        {
            "7B": (76.9, 50.2, 65.2, 52.6, 66.2, 55.3, 40.5, 73.0, 38.5),
            "7B/4E": (77.7, 50.1, 67.6, 54.8, 67.3, 57.0, 41.3, 73.5, 39.6),
        },
    ),
    _table(
        "lory-table8",
        "table 8, lower half",
        "%",
        ANSWERS_AND_LABELS,
        {
            "7B": (17.3, 42.5, 80.6, 94.3, 92.7, 98.3, 53.7, 67.0, 62.5),
            "7B/4E": (18.8, 44.5, 81.7, 95.7, 93.1, 96.7, 57.7, 69.7, 63.9),
        },
    ),
    _table(
        "lory-fig9",
        "figure 9",
        "experts",
        ("experts of all layers",),
        {"1.5B/8E": (384,), "1.5B/16E": (768,), "1.5B/32E": (1536,)},
    ),
    _table(
        "lory-fig9",
        "appendix G.1",
        "experts",
        ("active at the end",),
        {"1.5B/32E": (900,)},
        note="about",
    ),
    _table(
        "lory-fig9",
        "appendix G.1",
        "routing weight",
        ("threshold of activity",),
        {"1.5B/8E": (0.25,)},
        note="2/E",
    ),
    _table(
        "lory-fig9",
        "appendix G.1",
        "in 10 steps",
        ("tokens", "segments"),
        {SETUP: (10e6, 40e3)},
    ),
)
