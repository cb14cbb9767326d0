"""Lory's items: trained models."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from loriini.papers.published.items import PaperRun
from loriini.papers.published.items.lory import DENSE_03, LORY_03, MODEL_03
from loriini.papers.reproduce.charts import SMOOTHING, Chart, band, lines
from loriini.papers.reproduce.claims.claim import Claim, above, below, close, judged_against_leak, well_below
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values, difference
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.experiments import lory_answers as of_answers
from loriini.papers.reproduce.experiments import lory_experts as of_experts
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.lory_answers import EXPERTS, SIZES
from loriini.papers.reproduce.texts import SHORT
from loriini.reporting.curves import running_mean

SEES_LATER_TOKENS = (
    "not judged: in training, Expert Choice sees later tokens, so its loss is too low to compare"
)
UNLIKE_TEXT = "whether the gain is largest on unlike text: here every domain is in the training text"
FROM_SCRATCH = "Lory without warm-up"
AGAINST_TOKEN_LEVEL = {"arxiv": below, "books": below, "python": below, "wiki": close, "web": above}
"""How Lory's loss compares with that of token-level Expert Choice by domain."""
CLOSE_CURVES = 0.05
"""Nats up to which two training losses count as "close" where the paper shows a small gap."""


def training_by_size(m: Measured) -> Iterator[Claim]:
    """Below dense, lower with more experts, and in fewer than half of the tokens."""
    for size in SIZES:
        rows = [size, *(f"{size}/{experts}E" for experts in EXPERTS)]
        for fewer, more in itertools.pairwise(rows):
            quantity = f"training loss of {more} minus that of {fewer}"
            yield below(quantity, m.training_loss(more), m.training_loss(fewer))
        reached = tokens_to_reach(m, f"{size}/32E", m.training_loss(size))
        yield Claim(f"share of the tokens in which {size}/32E reaches {size}'s final loss", reached, high=0.5)


def tokens_to_reach(m: Measured, row: str, wanted: Values) -> Values:
    """The share of training after which the smoothed loss stays at or below a value; 1 if it never does.

    Where it always was, the share is that of the curve's first point.
    """
    found = {}
    for seed, loss in m.curve(row).items():
        if seed in wanted:
            smooth = running_mean(np.array(loss, np.float64), SMOOTHING)
            above_ = np.flatnonzero(smooth > wanted[seed])
            reached = above_[-1] + 1 if len(above_) else 0
            found[seed] = min(1.0, float(reached + 1) / len(smooth))
    return found


def perplexity_by_size(m: Measured) -> Iterator[Claim]:
    """Below dense in every domain, at every size and number of experts on average."""
    for size in SIZES:
        for experts in EXPERTS:
            row = f"{size}/{experts}E"
            yield below(f"mean loss of {row} minus that of {size}", m.loss(row), m.loss(size))
        for domain in m.domains(size):
            row = f"{size}/32E"
            quantity = f"{domain}: loss of {row} minus that of {size}"
            yield below(quantity, m.loss(row, domain), m.loss(size, domain))
    yield Claim(UNLIKE_TEXT, {})


def causal_against_prefix(m: Measured) -> Iterator[Claim]:
    """Segments routed by the one before are much better than all by the first."""
    segment, prefix = "causal segment routing", "prefix routing"
    for kind, loss in (("training", m.training_loss), ("held-out", m.loss)):
        quantity = f"{kind} loss of {segment} minus that of {prefix}"
        yield well_below(quantity, *map(loss, (segment, prefix)))


def similar_against_random(m: Measured) -> Iterator[Claim]:
    """The gain over dense is larger on similar documents, and grows."""
    gains = {
        order: difference(
            m.training_loss(f"0.3B ({order} batch)"), m.training_loss(f"0.3B/8E ({order} batch)")
        )
        for order in ("sim", "rand")
    }
    yield Claim("gain in training loss in similar order", gains["sim"], low=0.0, unit="nats")
    yield above("gain in similar order minus that in random order", gains["sim"], gains["rand"])
    held = [
        difference(m.loss(f"0.3B ({order} batch)"), m.loss(f"0.3B/8E ({order} batch)"))
        for order in ("sim", "rand")
    ]
    yield above("gain in held-out loss in similar order minus that in random order", *held)
    curve = gain_curves(m, "sim")
    middle = {
        seed: float(np.mean(g[len(g) // 3 : round(of_experts.LATE * len(g))])) for seed, g in curve.items()
    }
    late = {seed: float(np.mean(g[round(of_experts.LATE * len(g)) :])) for seed, g in curve.items()}
    yield above("gain in the last third of training minus that in the second, similar order", late, middle)


def gain_curves(m: Measured, order: str) -> dict[int, list[float]]:
    """Dense less Lory over training, by seed."""
    dense, lory = m.curve(f"0.3B ({order} batch)"), m.curve(f"0.3B/8E ({order} batch)")
    return {
        seed: np.subtract(*np.array([dense[seed], lory[seed]], np.float64)).tolist()
        for seed in dense
        if seed in lory
    }


def batching_charts(m: Measured) -> Iterator[Chart]:
    """The losses, and the gain over training in either order."""
    yield from c.losses(m)
    gains = {
        f"{name} order": band(m.curve(f"0.3B ({order} batch)", "tokens"), gain_curves(m, order), SMOOTHING)
        for order, name in (("sim", "similar"), ("rand", "random"))
        if gain_curves(m, order)
    }
    yield lines("dense minus Lory", "training tokens", "nats a token", gains, loss=True)


against_leak = partial(judged_against_leak, too_low=False, why=SEES_LATER_TOKENS)
"""A claim about a training loss minus that of Expert Choice, judged where this is not too low to do so."""


def training_against_expert_choice(m: Measured) -> Iterator[Claim]:
    """Well below segment-level Expert Choice, also without a dense warm-up; close to token-level."""
    segment = "EC, segment-level"
    for row in ("Lory", FROM_SCRATCH):
        quantity = f"training loss of {row} minus that of {segment}"
        yield against_leak(well_below(quantity, m.training_loss(row), m.training_loss(segment)))
    claim = close(
        "training loss of Lory minus that of EC, token-level",
        m.training_loss("Lory"),
        m.training_loss("EC, token-level"),
        CLOSE_CURVES,
    )
    yield against_leak(claim)


def perplexity_against_expert_choice(m: Measured) -> Iterator[Claim]:
    """Below segment-level in every domain; below, equal to or above token-level by the paper's domains."""
    lory, segment, token = ("0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", "0.3B/8E (EC, tok-level)")
    quantity = f"mean loss of {FROM_SCRATCH} minus that of EC, segment-level"
    yield below(quantity, m.loss(FROM_SCRATCH), m.loss(segment))
    for domain in m.domains(lory):
        quantity = f"{domain}: loss of Lory minus that of EC, segment-level"
        yield below(quantity, m.loss(lory, domain), m.loss(segment, domain))
    for domain, expected in AGAINST_TOKEN_LEVEL.items():
        quantity = f"{domain}: loss of Lory minus that of EC, token-level"
        yield expected(quantity, m.loss(lory, domain), m.loss(token, domain))


def gain(m: Measured, row: str, dense: str, training: bool = False) -> Values:
    """How far a model's loss is below the dense model's."""
    of = m.training_loss if training else m.loss
    return difference(of(dense), of(row))


def better_at_7b(m: Measured) -> Iterator[Claim]:
    """Below dense in every domain, by less than the smaller model in similar order."""
    for domain in m.domains("7B"):
        quantity = f"{domain}: loss of 7B/4E minus that of 7B"
        yield below(quantity, m.loss("7B/4E", domain), m.loss("7B", domain))
    yield below(
        "gain of 7B/4E, random order, minus that of 0.3B/8E, similar order",
        gain(m, "7B/4E", "7B"),
        gain(m, "0.3B/8E", "0.3B"),
    )


def smaller_training_gain_at_7b(m: Measured) -> Iterator[Claim]:
    """A training loss below dense, by less than the smaller model in similar order."""
    yield Claim("gain in training loss of 7B/4E", gain(m, "7B/4E", "7B", True), low=0.0, unit="nats")
    yield below(
        "gain in training loss of 7B/4E, random order, minus that of 0.3B/8E, similar order",
        gain(m, "7B/4E", "7B", True),
        gain(m, "0.3B/8E", "0.3B", True),
    )


PAIR_03 = {"0.3B": DENSE_03, "0.3B/8E": LORY_03["0.3B/8E"]}

FIRST_SEGMENT = (
    "training losses count the first segment of an instance, which Lory routes by its own mean in training, "
    "so that its experts depend on tokens to be predicted"
)

UNEQUAL_WARMUP = (
    "Lory starts as a dense model, but Expert Choice cannot, because its gates do not sum to 1: it is a "
    f"mixture from the first step, as is {FROM_SCRATCH}"
)
NO_WARMUP = {FROM_SCRATCH: PaperRun(MODEL_03, overrides=("--warmup.dense_share=0",))}
NO_NUMBER = (
    "the paper calls prefix routing much worse and prints no number, so the claim is a difference of 2 % of "
    "perplexity"
)

by_training_loss = partial(Experiment, columns=c.training_columns, charts=c.losses)
by_perplexity = partial(
    Experiment, measures=("heldout",), columns=c.perplexity_columns, charts=c.perplexities
)
by_answers = partial(
    Experiment,
    measures=("questions",),
    columns=c.question_columns,
    charts=of_answers.answer_charts,
    note=c.QUESTIONS_NOTE,
)
by_prompt = partial(
    Experiment,
    claims=of_answers.prompt_about_as_good,
    measures=("prompt", "segment", "questions", "questions by segment"),
    columns=of_answers.inference_columns,
    charts=of_answers.inference_chart,
    note=c.QUESTIONS_NOTE,
)
by_routes = partial(
    Experiment,
    measures=("routes",),
    columns=of_experts.agreement_columns,
    charts=of_experts.specialisation_charts,
)
by_use = partial(
    Experiment,
    columns=of_experts.active_columns,
    charts=of_experts.loss_and_activity,
    remarks=of_experts.windows_differ,
)

LORY_EXPERIMENTS = (
    by_training_loss("lory-fig2-left", training_by_size, note=FIRST_SEGMENT),
    by_perplexity("lory-fig2-right", perplexity_by_size),
    by_answers("lory-table1", of_answers.answers_by_size),
    by_training_loss("lory-fig3", causal_against_prefix, ("heldout",), note=f"{NO_NUMBER}; {FIRST_SEGMENT}"),
    Experiment(
        "lory-fig4",
        similar_against_random,
        ("heldout",),
        c.training_columns,
        batching_charts,
        kind=SHORT,
        note=f"on short documents, of which an instance holds several; {FIRST_SEGMENT}",
    ),
    by_training_loss(
        "lory-fig5",
        training_against_expert_choice,
        more_runs=NO_WARMUP,
        note=f"{UNEQUAL_WARMUP}; {FIRST_SEGMENT}",
    ),
    by_perplexity("lory-table2", perplexity_against_expert_choice, more_runs=NO_WARMUP, note=UNEQUAL_WARMUP),
    by_routes("lory-fig6", of_experts.specialised_at_three_layers),
    by_routes("lory-fig11", of_experts.specialised_everywhere),
    by_prompt("lory-table6"),
    by_prompt("lory-table9", same_as="lory-table6"),
    by_perplexity("lory-table7", better_at_7b, more_runs=PAIR_03),
    by_answers("lory-table8", partial(of_answers.better_answers, pairs={"7B/4E": "7B"})),
    by_training_loss("lory-fig8", smaller_training_gain_at_7b, more_runs=PAIR_03, note=FIRST_SEGMENT),
    by_use("lory-fig10", of_experts.warmup_helps),
    by_use("lory-fig9", of_experts.utilisation),
)
