"""The toy study of Autonomy of Experts (appendix B): who classifies what, by a router or by activations.

Inputs are Gaussian vectors of three classes: one of positive mean, one of negative mean, one of zero mean, so
narrow that they do not overlap within three standard deviations. A classifier of one mixture of two experts,
one of them active, learns the first two classes; then the third is added and training continues.

Axes: B inputs, D their width, C classes, E experts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from loriini.common.progress import progress
from loriini.model import LoriiniConfig
from loriini.model.mixture import Mixture
from loriini.papers.reproduce.charts import Chart, band, lines
from loriini.papers.reproduce.claim import Claim
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.quantities import Values
from loriini.papers.reproduce.scales import Scale
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


TAKEN = 0.9
"""Share of a class's inputs from which on an expert counts as having taken the class."""
EVENLY = 0.4
"""The smaller of two experts' shares of a class from which on both count as sharing it evenly."""
LEARNED = 0.99
"""Accuracy of every class that stands for a loss near zero."""
FAVOURITE = "AoE: one expert's share of classes one and two, first stage"
OTHER = "AoE: the other expert's share of class three"
SPLIT = "MoE: difference between classes one and two in an expert's share, first stage"
SPREAD = "MoE: the smaller expert's share of class three"
LOWEST = "{}: lowest accuracy of a class"


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
    "head of zeros": Study(head=0.0),
    "head 4 times as large": Study(head=4.0),
}
"""By name: widths in the paper's range, and other heads, of which it states nothing."""


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


def toy(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """Loads, norms and accuracy over training of both classifiers in every study, by seed."""
    found = {}
    with torch.random.fork_rng(), progress("studies", len(STUDIES)) as advance:
        for row, study in STUDIES.items():
            several = range(max(seeds, study.seeds))
            found[row] = {n: [list(train_classifier(n, seed, study)) for seed in several] for n in MODELS}
            advance()
    return {"rows": list(STUDIES), "studies": found}


def who_takes_what(m: Measured, row: str) -> dict[str, Values]:
    """The quantities of a study that the finding is about, by seed."""
    aoe, moe = (m.computed("studies", row, name) for name in ("AoE", "MoE"))
    return {
        FAVOURITE: {seed: favourite_share(middle(run)["load"]) for seed, run in aoe.items()},
        OTHER: {seed: others_share(run[-1]["load"]) for seed, run in aoe.items()},
        SPLIT: {seed: split(middle(run)["load"]) for seed, run in moe.items()},
        SPREAD: {seed: min(run[-1]["load"][2]) for seed, run in moe.items()},
        **{
            LOWEST.format(name): {seed: min(run[-1]["accuracy"]) for seed, run in runs.items()}
            for name, runs in (("AoE", aoe), ("MoE", moe))
        },
    }


def middle(run: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured at the end of the first stage."""
    return run[len(run) // 2]


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


def who_classifies_what(m: Measured) -> Iterator[Claim]:
    """A router splits two classes and spreads the third; AoE gives two to one expert, the third to the other.

    So at all widths and with every head (appendix B), where classifiers have learned: the paper trains them
    until the loss is near zero. Other classifiers are measured too, but decide nothing.
    """
    main = who_takes_what(m, MAIN)
    for what, low in ((FAVOURITE, TAKEN), (OTHER, TAKEN), (SPLIT, TAKEN), (SPREAD, EVENLY)):
        yield Claim(what, main[what], low=low)
    for name in MODELS:
        yield Claim(LOWEST.format(name), main[LOWEST.format(name)], low=LEARNED)
    for row in [row for row in STUDIES if row != MAIN]:
        found = who_takes_what(m, row)
        for name, what, low in (("AoE", OTHER, 0.5), ("MoE", SPREAD, EVENLY)):
            if fmean(found[LOWEST.format(name)].values()) >= LEARNED:
                yield Claim(f"{row}: {what}", found[what], low=low)


def toy_charts(m: Measured) -> Iterator[Chart]:
    """Shares of one expert and activation norms over training, means over seeds.

    The expert is the one that has more of class one at the end of the first stage.
    """
    for name in MODELS:
        runs = m.extra["studies"][MAIN][name]
        steps = [point["step"] for point in runs[0]]
        first = [int(middle(run)["load"][0][1] > middle(run)["load"][0][0]) for run in runs]
        share, norm = (
            {
                (k, other): {
                    seed: [point[what][k][expert ^ other] for point in run]
                    for seed, (run, expert) in enumerate(zip(runs, first, strict=True))
                }
                for k in range(3)
                for other in (0, 1)
            }
            for what in ("load", "scale")
        )
        shares = {f"class {k + 1}": band(steps, share[k, 0]) for k in range(3)}
        yield lines(f"{name}: share of the first expert", "training steps", "share of the class", shares)
        norms = {
            f"class {k + 1}, {'other' if other else 'first'} expert": band(steps, norm[k, other])
            for k in (0, 2)
            for other in (0, 1)
        }
        yield lines(f"{name}: activation norms", "training steps", "mean L2 norm", norms)


TOY_EXPERIMENT = Experiment(
    "aoe-fig5",
    who_classifies_what,
    columns=who_takes_what,
    charts=toy_charts,
    trains=False,
    compute=toy,
    note="widths of inputs and experts, and the initial weights of the head, are those of the table's rows; "
    "classifiers below 99 % of a class have no part in the verdict",
)
