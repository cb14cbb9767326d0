"""How the papers' models were trained, by the first part of a recipe's name: its size."""

from dataclasses import dataclass, replace
from typing import Literal


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
