"""The toy study of Autonomy of Experts (appendix B): who classifies what, by a router or by activations.

Inputs are Gaussian vectors of three classes: one of positive mean, one of negative mean, one of zero mean, so
narrow that they do not overlap within three standard deviations. A classifier of one mixture of two experts,
one of them active, learns the first two classes; then the third is added and training continues.

Axes: B inputs, D their width, C classes, E experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from loriini.model import LoriiniConfig
from loriini.model.mixture import Mixture
from loriini.routing import DESIGNS, Routing, RoutingConfig
from loriini.routing.unit import RoutingContext, UnitLayout

MEANS_C = (1.0, -1.0, 0.0)
"""The mean of every coordinate, by class; the third class joins in the second stage."""

MODELS: dict[str, RoutingConfig] = {
    "AoE": replace(DESIGNS["aoe"], top_k=1, load_balance=0.0),
    "MoE": replace(DESIGNS["mixtral"], top_k=1, gates="softmax_all", load_balance=0.0),
}
"""The models compared. One selected expert must keep its softmax weight, or its router gets no gradient."""

NODES = {"AoE": "low_rank", "MoE": "gate"}
"""Where the scale of an expert's activation is measured: the input of its SiLU has no low rank in the MoE."""


@dataclass(frozen=True)
class Study:
    """Sizes within the paper's range of 32 to 256, and how to train; the paper states no other settings."""

    width: int = 64
    """Width of the inputs."""
    expert_width: int = 64
    head: float = 1.0
    """What the head's initial weights, those of `nn.Linear`, are multiplied by."""
    deviation: float = 0.15
    batch: int = 128
    steps: int = 300
    learning_rate: float = 3e-3
    every: int = 20
    measured: int = 512
    seeds: int = 5


MAIN = "inputs 64, experts 64"
STUDIES = {
    MAIN: Study(seeds=10),
    "inputs 32, experts 32": Study(32, 32),
    "inputs 128, experts 128": Study(128, 128),
    "inputs 256, experts 256": Study(256, 256),
    "inputs 32, experts 256": Study(32, 256),
    "inputs 256, experts 32": Study(256, 32),
    "head of zeros": Study(head=0.0),
    "head 4 times as large": Study(head=4.0),
}
"""By name: widths in the paper's range, alike and unlike, and other heads, of which it states nothing."""


class Classifier(nn.Module):
    """A mixture of two experts and a linear head."""

    def __init__(self, study: Study, routing: RoutingConfig) -> None:
        super().__init__()
        config = LoriiniConfig(
            hidden_size=study.width,
            intermediate_size=study.expert_width,
            num_attention_heads=1,  # of which there are none
            num_experts=2,
            routing=routing,
        )
        self.mixture = Mixture(config, layer_idx=0)
        self.head = nn.Linear(study.width, len(MEANS_C))
        for weight in self.mixture.parameters():
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
        with torch.no_grad():
            self.head.weight.mul_(study.head)

    def forward(self, x_BD: Tensor) -> tuple[Tensor, Routing]:
        """Logits (B, C) and the routing; every input is a sequence of one token."""
        y_B1D, routing = self.mixture(x_BD[:, None], RoutingContext(len(x_BD), 1), UnitLayout(1, 1))
        return self.head(y_B1D[:, 0]), routing


def sample(classes: int, inputs: int, study: Study) -> tuple[Tensor, Tensor]:
    """Inputs (B, D) of the first `classes` classes in equal shares, and their classes (B,)."""
    labels_B = torch.arange(inputs) % classes
    means_B1 = torch.tensor(MEANS_C)[labels_B][:, None]
    return means_B1 + study.deviation * torch.randn(inputs, study.width), labels_B


@torch.no_grad()
def measure(model: Classifier, node: str, x_BD: Tensor, labels_B: Tensor) -> dict[str, Any]:
    """By class and expert: the share of inputs and the mean L2 norm of the activation; by class: accuracy."""
    logits_BC, routing = model(x_BD)
    measures = {
        "load": (routing.gates > 0).float(),
        "scale": model.mixture.experts.activations(x_BD, node).norm(dim=-1),
        "accuracy": (logits_BC.argmax(-1) == labels_B).float(),
    }
    return {
        name: [round_all(values[labels_B == c].mean(0)) for c in range(len(MEANS_C))]
        for name, values in measures.items()
    }


def round_all(values: Tensor) -> Any:
    """A tensor as numbers of four decimals."""
    return (values.double() * 1e4).round().div(1e4).tolist()


def train_classifier(name: str, seed: int, study: Study) -> Iterator[dict[str, Any]]:
    """Both stages of one classifier; what is measured every few steps, always on the same inputs."""
    torch.manual_seed(seed)
    held_out = sample(len(MEANS_C), len(MEANS_C) * study.measured, study)
    model = Classifier(study, MODELS[name])
    optimizer = torch.optim.AdamW(model.parameters(), lr=study.learning_rate)
    for step in range(2 * study.steps + 1):
        if step % study.every == 0:
            yield {"step": step, **measure(model, NODES[name], *held_out)}
        x_BD, labels_B = sample(2 if step < study.steps else 3, study.batch, study)
        loss = nn.functional.cross_entropy(model(x_BD)[0], labels_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
