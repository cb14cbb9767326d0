"""The papers' figures as data, so that recipes can be compared with them and reports print them beside ours.

`PARAMETERS` are by recipe, as far as they were printed; `LORY`, `DESIGN_CHOICES` and `AOE` are its parts.
Ours differ by more than 1 % where

- Lory names a dense model and all active parameters by a round size: 0.3 B, 1.5 B and 7 B;
- AoE's 732 M count one of two embedding matrices of 32,000 x 768, though its 247 M count both: ours hold
  757 M, of which the second matrix is 25 M (of the 4 B it is 1 %);
- AoE counts the same active parameters for autonomous experts as for routed ones; ours add what every token
  does in the experts that it does not select, their W_down, and the large router's own parameters.

`TRAINING` is how the models were trained, by size: what a recipe's name begins with.
"""

from dataclasses import dataclass, replace
from typing import Literal

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
# Of top-p it says that the active parameters depend on the input.
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


@dataclass(frozen=True)
class PublishedTraining:
    """How a paper trained models of one size."""

    source: str
    layers: int
    hidden_size: int
    heads: int
    tokens: float
    tokens_per_step: float
    length: int
    """Context in tokens."""
    learning_rate: float
    """At its peak."""
    final_learning_rate: float
    warmup: float
    """Steps over which the learning rate rises; below 1, a fraction of them."""
    betas: tuple[float, float]
    weight_decay: float
    clip: float
    dropout: float
    dense_share: float
    """Fraction of the steps that train a dense model before it is copied into experts."""
    order: Literal["similar", "random"] | None
    """Order of the documents; None: not stated."""
    gpus: int
    gpu_memory: float
    """GiB."""
    assumed: frozenset[str]
    """Fields that the paper does not state: ours."""


_LORY = PublishedTraining(
    source="Lory, section 4.1 and table 4",
    layers=24,
    hidden_size=1024,
    heads=16,
    tokens=150e9,
    tokens_per_step=1e6,
    length=4096,
    learning_rate=2e-4,
    final_learning_rate=2e-5,
    warmup=0.05,
    betas=(0.9, 0.95),
    weight_decay=0.1,
    clip=1.0,
    dropout=0.0,
    dense_share=0.05,
    order="similar",
    gpus=64,
    gpu_memory=80,
    assumed=frozenset({"final_learning_rate", "weight_decay", "clip", "dropout", "gpu_memory"}),
)
_AOE = PublishedTraining(
    source="Autonomy of Experts, section 4.1.1",
    layers=12,
    hidden_size=768,
    heads=12,
    tokens=100e9,
    tokens_per_step=4.2e6,
    length=2048,
    learning_rate=2e-4,
    final_learning_rate=1.28e-5,
    warmup=4800,
    betas=(0.9, 0.95),
    weight_decay=0.1,
    clip=1.0,
    dropout=0.0,
    dense_share=0.0,
    order=None,
    gpus=64,
    gpu_memory=80,
    assumed=frozenset({"length", "dropout", "gpus", "gpu_memory"}),
)
TRAINING = {
    "0.3b": _LORY,
    "1.5b": replace(_LORY, layers=48, hidden_size=1536, heads=24),
    "7b": replace(
        _LORY,
        source="Lory, appendix E and table 5; the rest as in section 4.1",
        layers=32,
        hidden_size=4096,
        heads=32,
        tokens=200e9,
        order="random",
    ),
    "gpt2": PublishedTraining(
        source="MoE design choices, section 3 and appendix A.1, which changes nanoGPT's defaults",
        layers=12,
        hidden_size=768,
        heads=12,
        tokens=6000 * 1_048_576,
        tokens_per_step=1_048_576,
        length=1024,
        learning_rate=9.6e-4,
        final_learning_rate=9.6e-5,
        warmup=2000,
        betas=(0.9, 0.95),
        weight_decay=0.5,
        clip=1.0,
        dropout=0.2,
        dense_share=0.0,
        order=None,
        gpus=1,
        gpu_memory=40,
        assumed=frozenset({"warmup", "betas", "clip"}),  # nanoGPT's defaults
    ),
    "732m": _AOE,
    "4b": replace(
        _AOE,
        source="Autonomy of Experts, section 4.2; the rest as in section 4.1.1",
        layers=24,
        hidden_size=1280,
        heads=20,
        learning_rate=3.2e-4,
    ),
}
