"""The papers' figures as data, so that a report can print them beside ours.

`PARAMETERS` are from Lory (version of 2024-08), table 1 and section 4.1, in parameters.
`THROUGHPUT` is Lory's training throughput as a share of the dense model's (appendix B, 0.3 B, A100), by
number of experts.
"""

PARAMETERS: dict[str, dict[str, float]] = {
    "0.3b-dense": {"total": 0.3e9, "active": 0.3e9},
    "0.3b-lory-8e": {"total": 1.8e9, "active": 0.3e9},
    "0.3b-lory-16e": {"total": 3.5e9, "active": 0.3e9},
    "0.3b-lory-32e": {"total": 6.8e9, "active": 0.3e9},
    "1.5b-dense": {"total": 1.5e9, "active": 1.5e9},
    "1.5b-lory-8e": {"total": 7.8e9, "active": 1.5e9},
    "1.5b-lory-16e": {"total": 15.0e9, "active": 1.5e9},
    "1.5b-lory-32e": {"total": 29.5e9, "active": 1.5e9},
    "7b-dense": {"total": 7e9, "active": 7e9},
    "7b-lory-4e": {"total": 19.7e9, "active": 7e9},
}

THROUGHPUT = {8: 24_500 / 29_000, 16: 22_900 / 29_000, 32: 20_800 / 29_000}
