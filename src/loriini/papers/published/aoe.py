"""Autonomy-of-Experts Models (Lv et al., 2025).

Columns of tables 1, 6 and 7 name a task and the pretrained model that it was given to.
"""

from functools import partial

from loriini.papers.published.values import SETUP, Table

ACCURACIES = ("ARC-E", "PIQA", "SIQA", "WINO", "HELLA", "MNLI", "QNLI", "SST2", "AVG.")

ROUTER_FREE = ("MMLU, Mixtral", "MMLU, Phi-3.5", "ARC-C, Mixtral", "ARC-C, Phi-3.5")

MINUTES = tuple(f"{column}, time" for column in ROUTER_FREE)

_table = partial(Table, "AoE")

TABLES = (
    _table(
        "aoe-table1",
        "table 1",
        "%",
        ROUTER_FREE,
        {
            "xW_g": (64.23, 29.43, 50.43, 28.84),
            "xW_p": (62.06, 34.60, 53.41, 40.36),
            "SiLU(xW_g)": (61.71, 38.03, 58.79, 47.53),
            "SiLU(xW_g) * xW_p": (66.64, 27.89, 58.79, 35.32),
            "output": (66.66, 29.69, 58.62, 36.35),
            "router": (70.35, 78.20, 62.12, 67.41),
        },
    ),
    _table(
        "aoe-table1",
        "table 1",
        "minutes",
        MINUTES,
        {
            "xW_g": (42.70, 33.05, 4.40, 3.47),
            "xW_p": (42.73, 33.05, 4.40, 3.47),
            "SiLU(xW_g)": (43.88, 34.32, 4.51, 3.60),
            "SiLU(xW_g) * xW_p": (75.53, 52.60, 6.27, 5.42),
            "output": (76.15, 69.20, 7.42, 7.07),
            "router": (24.30, 14.53, 2.50, 1.60),
        },
        note="8 A800-80G, batches of 50",
    ),
    _table(
        "aoe-table1",
        "section 3.1",
        "% of the accuracy with routers",
        ("MMLU, Mixtral, kept", "ARC-C, Phi-3.5, kept"),
        {"output": (95, None), "SiLU(xW_g)": (None, 71)},
        note="up to; the rows and tasks are those of table 1 with these ratios",
    ),
    _table(
        "aoe-table6",
        "table 6",
        "%",
        ROUTER_FREE,
        {
            "xW_g": (51.14, 24.15, 41.98, 29.01),
            "xW_p": (39.79, 35.87, 40.19, 36.35),
            "SiLU(xW_g)": (47.29, 26.37, 45.73, 36.09),
            "SiLU(xW_g) * xW_p": (54.37, 26.95, 50.09, 33.79),
            "output": (57.84, 26.56, 52.73, 31.31),
            "router": (70.35, 78.20, 62.12, 67.41),
        },
    ),
    _table(
        "aoe-table7",
        "table 7",
        "%",
        ROUTER_FREE,
        {
            "xW_g": (48.16, 29.28, 43.77, 35.92),
            "xW_p": (50.43, 34.78, 49.49, 40.02),
            "SiLU(xW_g)": (54.30, 36.38, 47.95, 50.85),
            "SiLU(xW_g) * xW_p": (50.72, 26.43, 46.08, 33.02),
            "output": (51.03, 23.64, 53.16, 30.12),
            "router": (70.35, 78.20, 62.12, 67.41),
        },
    ),
    _table(
        "aoe-table2",
        "table 2",
        "%",
        ACCURACIES,
        {
            "1 MoE": (39.90, 58.43, 35.67, 52.09, 27.98, 33.09, 49.28, 49.66, 43.28),
            "2 MoE + aux": (40.74, 58.49, 36.13, 51.30, 28.11, 32.67, 50.23, 51.83, 43.68),
            "3 MoE + aux + factorized": (40.45, 58.65, 36.75, 52.09, 28.03, 32.55, 50.08, 51.03, 43.70),
            "4 MoE + aux + large router": (41.41, 57.62, 36.64, 52.33, 28.34, 33.18, 49.53, 50.69, 43.71),
            "5 AoE 64": (39.77, 58.71, 35.31, 52.33, 28.29, 32.78, 50.27, 52.98, 43.81),
            "6 AoE 64 + aux": (42.17, 57.67, 36.75, 50.75, 28.15, 34.06, 50.49, 53.10, 44.12),
            "7 AoE 128": (40.70, 59.41, 36.64, 52.09, 28.06, 34.38, 50.69, 53.21, 44.39),
            "8 AoE 128 + aux": (41.33, 58.65, 36.80, 50.75, 28.40, 33.71, 49.55, 53.10, 44.04),
            "9 AoE 256": (41.08, 58.81, 36.44, 51.70, 28.23, 32.24, 50.54, 53.90, 44.12),
            "10 AoE 256 + aux": (41.16, 58.32, 36.80, 53.04, 28.37, 32.78, 50.61, 54.59, 44.46),
            "11 AoE 512": (40.57, 57.89, 36.75, 50.59, 28.38, 32.71, 49.72, 53.56, 43.77),
            "12 AoE 512 + aux": (41.16, 57.83, 36.75, 52.09, 28.30, 34.92, 50.67, 50.92, 44.08),
        },
    ),
    _table(
        "aoe-table2",
        "table 2 and section 4.1.1",
        "parameters",
        ("total", "active"),
        {SETUP: (732e6, 247e6)},
    ),
    _table(
        "aoe-table2",
        "section 4.1.2, question 3",
        "weight of the load-balancing loss",
        ("alpha",),
        {SETUP: (0.01,)},
    ),
    _table(
        "aoe-table3",
        "table 3",
        "%",
        ACCURACIES,
        {
            "top-p, MoE": (41.08, 57.96, 37.46, 50.36, 28.25, 32.79, 50.39, 52.64, 43.87),
            "top-p, AoE": (41.04, 58.65, 36.39, 51.07, 28.35, 32.96, 51.46, 54.36, 44.29),
            "expert choice, MoE": (40.91, 59.09, 37.26, 50.75, 28.09, 32.11, 50.12, 52.75, 43.89),
            "expert choice, AoE": (41.58, 58.22, 37.21, 53.04, 28.44, 33.83, 50.54, 50.46, 44.17),
        },
    ),
    _table(
        "aoe-table3",
        "section 4.1.2, question 7",
        "",
        ("p", "weight of the confidence entropy", "capacity factor", "d_low"),
        {SETUP: (0.6, 1e-4, 2, 256)},
    ),
    _table(
        "aoe-table3",
        "section 4.1.2, question 7",
        "% of the tokens",
        ("tokens of an expert",),
        {"expert choice, MoE": (25,), "expert choice, AoE": (25,)},
    ),
    _table(
        "aoe-fig3",
        "section 4.1.2, question 3",
        "nats",
        ("entropy of the load",),
        {"2 MoE + aux": (2.015,), "10 AoE 256 + aux": (2.023,)},
        note="mean of the layers",
    ),
    _table(
        "aoe-fig3",
        "section 4.1.2, question 3",
        "of 12 layers",
        ("layers of higher entropy than configuration 1",),
        {"9 AoE 256": (11,)},
    ),
    _table(
        "aoe-fig3",
        "section 4.1.2, question 8",
        "of the tokens",
        ("highest minus lowest load",),
        {"2 MoE + aux": (1.49,), "10 AoE 256 + aux": (1.41,)},
        note="sum of the layers",
    ),
    _table(
        "aoe-fig3",
        "section 4.1.2, question 8",
        "%",
        ("tokens of one layer saved", "time of one layer saved"),
        {"10 AoE 256 + aux": (8, 64)},
        note="with experts in parallel, beside configuration 2",
    ),
    _table(
        "aoe-table4",
        "table 4",
        "thousand tokens/s/GPU",
        ("throughput",),
        {"MoE": (51.42,), "AoE 64": (49.79,), "AoE 128": (49.42,), "AoE 256": (47.98,), "AoE 512": (46.07,)},
    ),
    _table(
        "aoe-table4",
        "table 4",
        "GB",
        ("memory",),
        {"MoE": (50.61,), "AoE 64": (59.39,), "AoE 128": (57.86,), "AoE 256": (57.32,), "AoE 512": (55.90,)},
    ),
    _table(
        "aoe-table4",
        "section 4.1.2, finding 8.1",
        "% of the MoE's",
        ("throughput, relative",),
        {"AoE 64": (97,)},
    ),
    _table(
        "aoe-table5",
        "table 5",
        "%",
        ACCURACIES,
        {
            "MoE": (53.70, 65.40, 39.10, 51.54, 35.80, 32.19, 49.77, 57.00, 48.06),
            "AoE": (55.98, 65.61, 39.87, 52.57, 36.77, 35.39, 50.05, 61.93, 49.80),
        },
    ),
    _table(
        "aoe-table5",
        "table 5 and section 4.2",
        "parameters",
        ("total", "active"),
        {SETUP: (4e9, 1.18e9)},
    ),
    _table(
        "aoe-table5",
        "section 4.2",
        "",
        ("d_low", "d_wide"),
        {"AoE": (400, 6470)},
        note="equation 5 gives 6469.2",
    ),
    _table(
        "aoe-fig5",
        "appendix B",
        "",
        ("experts", "classes", "smallest width", "largest width"),
        {SETUP: (2, 3, 32, 256)},
        note="the same range for the inputs, d_ffn and d_wide",
    ),
)
