"""Parameters of the papers' models, as far as they are printed, by recipe.

Ours differ by more than 1 % where

- Lory names a dense model and all active parameters by a round size: 0.3 B, 1.5 B and 7 B;
- AoE's 732 M count one of two embedding matrices of 32,000 x 768, though its 247 M count both: ours hold
  757 M, 25 M of them in the second matrix (1 % of the 4 B);
- AoE counts the same active parameters for autonomous experts as for routed ones; ours add what every token
  does in the experts that it does not select, their W_down, and the large router's own parameters.
"""

# Lory (version of 2024-08), tables 4 and 5.
LORY: dict[str, dict[str, float]] = {
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

# Towards an empirical understanding of MoE design choices (version of 2024-02), table 1.
DESIGN_CHOICES: dict[str, dict[str, float]] = {
    "gpt2-small": {"total": 124e6, "active": 124e6},
    "gpt2-small-2x": {"total": 182e6, "active": 182e6},
    "gpt2-small-4x": {"total": 295e6, "active": 295e6},
    **{
        f"gpt2-small-{unit}-top{k}": {"total": 295e6, "active": active}
        for unit in ("token", "sequence", "global")
        for k, active in ((1, 124e6), (2, 182e6))
    },
}

# Autonomy-of-Experts Models (AoE), table 2 (configurations 1 to 12), table 3, and table 5 with section 4.2.
# It says that top-p's active parameters depend on the input.
AOE: dict[str, dict[str, float]] = {
    **{
        f"732m-{name}": {"total": 732e6, "active": 247e6}
        for name in (
            "moe",
            "moe-aux",
            "moe-aux-factorized",
            "moe-aux-large-router",
            *(f"aoe-{low_rank}{aux}" for low_rank in (64, 128, 256, 512) for aux in ("", "-aux")),
            "moe-ec",
            "aoe-256-ec",
        )
    },
    "732m-moe-top-p": {"total": 732e6},
    "732m-aoe-256-top-p": {"total": 732e6},
    "4b-moe": {"total": 4e9, "active": 1.18e9},
    "4b-aoe": {"total": 4e9, "active": 1.18e9},
}


PARAMETERS = LORY | DESIGN_CHOICES | AOE
