"""Scales: the papers' runs made small, each keeping the proportions that its finding is about."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from loriini.common.checks import check_choice
from loriini.papers.published import PaperRun
from loriini.recipes import default_vocabulary
from loriini.recipes.redesign import multiple_of_8, scaled_shape, with_design
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.launch import resolve_recipe
from loriini.train.speed import SpeedConfig

EXPERT_POINTS = 20
"""Steps at which the use of every single expert is recorded."""
Shape = tuple[int, int, int]
"""Width, layers, attention heads."""


@dataclass(frozen=True)
class Scale:
    """How large a reproduction is. Without `shapes` the papers' recipes are run as they are."""

    name: str
    shapes: Mapping[str, Shape]
    """By the first part of a recipe's name."""
    deviation: float = 0.64
    """Standard deviation of initial weights times √width: 0.02 at width 1,024. With 0.02 at any width and
    AdamW, models of width 64 stay at the first plateau of their loss for a random time, and seeds differ by
    more than rows do."""
    vocab_size: int | None = 1024
    """None: each recipe's."""
    steps: int = 200
    batch_size: int = 4
    length: int = 256
    segment_length: int = 64
    learning_rate: float = 4e-3
    warmup: float = 0.2
    """Least share of the steps over which the learning rate rises. At this rate, few steps of warm-up leave
    the wider models on a plateau, with a higher loss than the narrower."""
    characters: int = 2_000_000
    """Characters of training text; a tenth of it is held out."""
    short: int = 1500
    """Characters of the longest document in text of short documents; an instance holds several."""
    instances: int = 32
    """Held-out instances of each domain."""
    texts: int = 1
    """How many of an item's training texts are used, from the first."""

    def vocabulary(self, run: TrainConfig) -> int:
        """The size of the vocabulary of a run's corpus."""
        return self.vocab_size or default_vocabulary(run)


TINY = Scale(
    "tiny",
    {
        "0.3b": (64, 4, 2),
        "1.5b": (96, 4, 3),
        "7b": (128, 4, 4),
        "gpt2": (64, 4, 2),
        "732m": (96, 4, 3),
        "4b": (128, 4, 4),
    },
)
SMALL = replace(
    TINY,
    name="small",
    vocab_size=2048,
    steps=500,
    length=512,
    segment_length=128,
    characters=4_000_000,
    short=3000,
    instances=64,
    texts=2,
)
PAPER = Scale(
    "paper", {}, vocab_size=None, segment_length=256, characters=10**10, short=24_000, instances=256, texts=2
)
SCALES = {scale.name: scale for scale in (TINY, SMALL, PAPER)}


def find_scale(name: str) -> Scale:
    """The scale of this name; InputError for another."""
    check_choice("--scale", name, SCALES)
    return SCALES[name]


def paper_run(paper: PaperRun) -> TrainConfig:
    """The run as the paper trained it; its name is the same for all items that need it."""
    run = resolve_recipe(paper.recipe, paper.overrides)
    options = (text.removeprefix("--") for text in paper.overrides)
    name = " ".join(filter(None, (paper.recipe, paper.design, *options)))
    return replace(with_design(run, paper.design) if paper.design else run, name=name)


def scaled_run(paper: PaperRun, scale: Scale) -> TrainConfig:
    """A paper's run at a scale; the scale `paper` changes nothing.

    FFN widths, low ranks and the router's width keep their ratio to the model's width; design, number of
    experts, dense warm-up and weight decay are the recipe's. There is no dropout: with enough text, no text
    is read twice in the scale's steps. Products are in float32, so that losses are the same on all machines.
    """
    run = paper_run(paper)
    if not scale.shapes:
        return run
    width, layers, heads = scale.shapes[paper.recipe.partition("-")[0]]
    ratio = width / run.model.hidden_size
    scorer_width = run.routing.scorer_width and multiple_of_8(ratio * run.routing.scorer_width)
    return replace(
        run,
        model=replace(
            scaled_shape(run.model, width, layers, heads),
            dropout=0.0,
            initializer_range=scale.deviation * width**-0.5,
        ),
        routing=replace(run.routing, segment_length=scale.segment_length, scorer_width=scorer_width),
        optimizer=replace(
            run.optimizer, learning_rate=scale.learning_rate, warmup=max(run.optimizer.warmup, scale.warmup)
        ),
        precision="fp32",
        checkpoint=CheckpointConfig(every=0),
        speed=SpeedConfig(),
        steps=scale.steps,
        batch_size=scale.batch_size,
        micro_batch_size=0,
        length=scale.length,
        per_expert_every=max(1, scale.steps // EXPERT_POINTS),
    )
