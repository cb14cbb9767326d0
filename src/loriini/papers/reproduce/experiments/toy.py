"""The toy study of Autonomy of Experts (appendix B): who classifies what, by a router or by activations.

Inputs are Gaussian vectors of three classes: one of positive mean, one of negative mean, one of zero mean, so
narrow that they do not overlap within three standard deviations. A classifier of one mixture of two experts,
one of them active, learns the first two classes; then the third is added and training continues.

Axes: B inputs, D their width, C classes, E experts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from loriini.model import LoriiniConfig
from loriini.model.mixture import Mixture
from loriini.papers.reproduce.charts import Chart, band, lines
from loriini.papers.reproduce.claim import Claim
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.scales import Scale
from loriini.routing import DESIGNS, Routing, RoutingConfig
from loriini.routing.unit import RoutingContext, UnitLayout

MEANS_C = (1.0, -1.0, 0.0)
"""The mean of every coordinate, by class; the third class joins in the second stage."""
DEVIATION = 0.15
MODELS: dict[str, RoutingConfig] = {
    "AoE": replace(DESIGNS["aoe"], top_k=1, load_balance=0.0),
    "MoE": replace(DESIGNS["mixtral"], top_k=1, gates="softmax_all", load_balance=0.0),
}
"""The models compared. One selected expert must keep its softmax weight, or its router gets no gradient."""


@dataclass(frozen=True)
class Study:
    """A width within the paper's range of 32 to 256, and how to train; the paper states no other settings."""

    width: int = 64
    """Width of inputs and experts."""
    seeds: int = 10
    steps: int = 300
    """Steps of each of the two stages."""
    every: int = 20
    """Steps between measurements."""
    batch: int = 128
    measured: int = 512
    """Held-out inputs of each class."""
    learning_rate: float = 3e-3


STUDY = Study()
TAKEN = 0.9
"""Share of a class's inputs from which on an expert counts as having taken the class."""
EVENLY = 0.4
"""The smaller of two experts' shares of a class from which on both count as sharing it evenly."""
LEARNED = 0.99
"""Accuracy of every class that stands for a loss near zero."""
Points = list[dict[str, Any]]
"""What is measured along a training: step, `load_CE` and `accuracy_C`."""


class Classifier(nn.Module):
    """A mixture of two experts and a linear head."""

    def __init__(self, width: int, routing: RoutingConfig) -> None:
        super().__init__()
        config = LoriiniConfig(
            hidden_size=width,
            intermediate_size=width,
            num_attention_heads=1,  # of which there are none
            num_experts=2,
            routing=routing,
        )
        self.mixture = Mixture(config, layer_idx=0)
        self.head = nn.Linear(width, len(MEANS_C))
        for weight in self.mixture.parameters():
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)

    def forward(self, x_BD: Tensor) -> tuple[Tensor, Routing]:
        """Logits (B, C) and the routing; every input is a sequence of one token."""
        y_B1D, routing = self.mixture(x_BD[:, None], RoutingContext(len(x_BD), 1), UnitLayout(1, 1))
        return self.head(y_B1D[:, 0]), routing


def sample(classes: int, inputs: int, width: int) -> tuple[Tensor, Tensor]:
    """Inputs (B, D) of the first `classes` classes in equal shares, and their classes (B,)."""
    labels_B = torch.arange(inputs) % classes
    means_B1 = torch.tensor(MEANS_C)[labels_B][:, None]
    return means_B1 + DEVIATION * torch.randn(inputs, width), labels_B


@torch.no_grad()
def measure(model: Classifier, x_BD: Tensor, labels_B: Tensor) -> dict[str, Any]:
    """By class the share of inputs that each expert takes, and the accuracy."""
    logits_BC, routing = model(x_BD)
    right_B, taken_BE = (logits_BC.argmax(-1) == labels_B).double(), (routing.gates > 0).double()
    of_class = [labels_B == c for c in range(len(MEANS_C))]
    return {
        "load_CE": [taken_BE[of].mean(0).tolist() for of in of_class],
        "accuracy_C": [right_B[of].mean().item() for of in of_class],
    }


def train_classifier(name: str, seed: int, study: Study) -> Iterator[dict[str, Any]]:
    """Both stages of one classifier; what is measured every few steps, always on the same inputs."""
    torch.manual_seed(seed)
    held_out = sample(len(MEANS_C), len(MEANS_C) * study.measured, study.width)
    model = Classifier(study.width, MODELS[name])
    optimizer = torch.optim.AdamW(model.parameters(), lr=study.learning_rate)
    for step in range(2 * study.steps + 1):
        if step % study.every == 0:
            yield {"step": step, **measure(model, *held_out)}
        x_BD, labels_B = sample(2 if step < study.steps else 3, study.batch, study.width)
        loss = nn.functional.cross_entropy(model(x_BD)[0], labels_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def toy(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """Both classifiers over training, by seed."""
    several = range(max(seeds, STUDY.seeds))
    with torch.random.fork_rng():
        runs = {name: [list(train_classifier(name, seed, STUDY)) for seed in several] for name in MODELS}
    return {"rows": [f"width {STUDY.width}"], "runs": runs}


def who_classifies_what(m: Measured) -> Iterator[Claim]:
    """A router splits two classes and spreads the third; AoE gives two to one expert, the third to the other.

    The paper trains the classifiers until the loss is near zero.
    """
    aoe, moe = (m.computed("runs", name) for name in ("AoE", "MoE"))
    favourite = {seed: favourite_share(middle(run)) for seed, run in aoe.items()}
    yield Claim("AoE: one expert's share of classes one and two, first stage", favourite, low=TAKEN)
    other = {seed: others_share(run[-1]["load_CE"]) for seed, run in aoe.items()}
    yield Claim("AoE: the other expert's share of class three", other, low=TAKEN)
    apart = {seed: split(middle(run)) for seed, run in moe.items()}
    quantity = "MoE: difference between classes one and two in an expert's share, first stage"
    yield Claim(quantity, apart, low=TAKEN)
    spread = {seed: min(run[-1]["load_CE"][2]) for seed, run in moe.items()}
    yield Claim("MoE: the smaller expert's share of class three", spread, low=EVENLY)
    for name, runs in (("AoE", aoe), ("MoE", moe)):
        lowest = {seed: min(run[-1]["accuracy_C"]) for seed, run in runs.items()}
        yield Claim(f"{name}: lowest accuracy of a class", lowest, low=LEARNED)


def middle(run: Points) -> list[list[float]]:
    """The loads at the end of the first stage."""
    load_CE: list[list[float]] = run[len(run) // 2]["load_CE"]
    return load_CE


def favourite_share(load_CE: list[list[float]]) -> float:
    """The share of the first two classes of the expert that has more of them."""
    return max((one + two) / 2 for one, two in zip(load_CE[0], load_CE[1], strict=True))


def others_share(load_CE: list[list[float]]) -> float:
    """The share of the third class of the expert that has less of the first two."""
    first, second, third = load_CE
    return third[0] if first[0] + second[0] < first[1] + second[1] else third[1]


def split(load_CE: list[list[float]]) -> float:
    """How far the first two classes differ in the first expert's share."""
    return abs(load_CE[0][0] - load_CE[1][0])


def toy_charts(m: Measured) -> Iterator[Chart]:
    """Shares over training of the expert that has more of class one at the end of the first stage."""
    for name in MODELS:
        runs = m.extra["runs"][name]
        first = [middle(run)[0].index(max(middle(run)[0])) for run in runs]
        of_first = list(enumerate(zip(runs, first, strict=True)))
        steps = [point["step"] for point in runs[0]]
        shares = {
            f"class {k + 1}": band(steps, {i: [p["load_CE"][k][e] for p in run] for i, (run, e) in of_first})
            for k in range(len(MEANS_C))
        }
        yield lines(f"{name}: share of the first expert", "training steps", "share of the class", shares)


TOY_EXPERIMENT = Experiment(
    "aoe-fig5",
    who_classifies_what,
    columns=lambda m, row: {claim.quantity: claim.values for claim in who_classifies_what(m)},
    charts=toy_charts,
    compute=toy,
)
