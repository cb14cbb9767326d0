"""Lory's items: trained models."""

import itertools
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from loriini.papers.published import ITEMS, PaperRun, published_values
from loriini.papers.reproduce.charts import SMOOTHING, Chart, band, lines
from loriini.papers.reproduce.claim import (
    Claim,
    above,
    below,
    close,
    judged_against_leak,
    not_judged,
    well_below,
)
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.quantities import Values, difference
from loriini.papers.reproduce.texts import SHORT
from loriini.reporting.curves import running_mean

SIZES = ("0.3B", "1.5B")
EXPERTS = (8, 16, 32)
SEES_LATER_TOKENS = (
    "not judged: in training, Expert Choice sees later tokens, so its loss is too low to compare"
)
UNLIKE_TEXT = "whether the gain is largest on unlike text: here every domain is in the training text"
FROM_SCRATCH = "Lory without warm-up"
AGAINST_TOKEN_LEVEL: dict[str, c.Relation] = {
    **dict.fromkeys(("arxiv", "books", "python"), below),
    "wiki": close,
    "web": above,
}
"""How Lory's loss compares with that of token-level Expert Choice by domain."""
CLOSE_CURVES = 0.05
"""Nats up to which two training losses count as "close" where the paper shows a small gap."""
CLOSE_ANSWERS = 0.01
"""Share of the questions up to which two accuracies count as about equal."""
LATE = 0.67
"""Where the last third of training begins."""
SECOND_THIRD = (0.33, LATE)
PAPER_SEGMENTS = next(v.value for v in published_values("lory-fig9") if v.column == "segments")
"""Segments in ten of the paper's steps."""
ABOUT_900_OF_1536 = (0.5, 0.67)
"""Share of active experts that counts as about 900 of 1,536."""
SPECIALISED = 0.02
"""Adjusted mutual information above which experts are called specialised."""


def training_by_size(m: Measured) -> Iterator[Claim]:
    """Below dense, lower with more experts, and in fewer than half of the tokens."""
    for size in SIZES:
        rows = [size, *(f"{size}/{experts}E" for experts in EXPERTS)]
        for fewer, more in itertools.pairwise(rows):
            yield c.compare(below, "training loss", m.training_loss, more, fewer)
        reached = tokens_to_reach(m, f"{size}/32E", m.training_loss(size))
        yield Claim(f"share of the tokens in which {size}/32E reaches {size}'s final loss", reached, high=0.5)


def tokens_to_reach(m: Measured, row: str, wanted: Values) -> Values:
    """The share of training after which the smoothed loss stays at or below a value; 1 if it never does."""
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
            yield c.compare(below, "mean loss", m.loss, f"{size}/{experts}E", size)
        yield from c.by_domain(below, m, f"{size}/32E", size)
    yield Claim(UNLIKE_TEXT, {})


def causal_against_prefix(m: Measured) -> Iterator[Claim]:
    """Segments routed by the one before are much better than all by the first."""
    pair = ("causal segment routing", "prefix routing")
    yield c.compare(well_below, "training loss", m.training_loss, *pair)
    yield c.compare(well_below, "held-out loss", m.loss, *pair)


def similar_against_random(m: Measured) -> Iterator[Claim]:
    """The gain over dense is larger on similar documents, and grows."""
    pairs = {order: (f"0.3B/8E ({order} batch)", f"0.3B ({order} batch)") for order in ("sim", "rand")}
    similar, random = (gain(m.training_loss, *pair) for pair in pairs.values())
    yield Claim("gain in training loss in similar order", similar, low=0.0, unit="nats")
    yield above("gain in similar order minus that in random order", similar, random)
    held_out = (gain(m.loss, *pair) for pair in pairs.values())
    yield above("gain in held-out loss in similar order minus that in random order", *held_out)
    gains = gain_curves(m, "sim")
    second, last = (c.mean_of_part(gains, *part) for part in (SECOND_THIRD, (LATE, 1.0)))
    yield above("gain in the last third of training minus that in the second, similar order", last, second)


def gain(of: c.Quantity, row: str, dense: str) -> Values:
    """How far a loss of a model is below the dense model's."""
    return difference(of(dense), of(row))


def gain_curves(m: Measured, order: str) -> dict[int, list[float]]:
    """Dense less Lory over training, by seed."""
    dense, lory = m.curve(f"0.3B ({order} batch)"), m.curve(f"0.3B/8E ({order} batch)")
    return {
        seed: np.subtract(*np.array([dense[seed], lory[seed]], np.float64)).tolist()
        for seed in dense
        if seed in lory
    }


def batching_charts(m: Measured) -> Iterator[Chart]:
    yield from c.losses(m)
    gains = {
        f"{name} order": band(m.curve(f"0.3B ({order} batch)", "tokens"), gain_curves(m, order), SMOOTHING)
        for order, name in (("sim", "similar"), ("rand", "random"))
        if gain_curves(m, order)
    }
    yield lines("dense minus Lory", "training tokens", "nats a token", gains, loss=True)


def training_against_expert_choice(m: Measured) -> Iterator[Claim]:
    """Well below segment-level Expert Choice, also without a dense warm-up; close to token-level."""
    close_to = partial(close, within=CLOSE_CURVES)
    for relation, row, other in (
        (well_below, "Lory", "EC, segment-level"),
        (well_below, FROM_SCRATCH, "EC, segment-level"),
        (close_to, "Lory", "EC, token-level"),
    ):
        claim = c.compare(relation, "training loss", m.training_loss, row, other)
        yield judged_against_leak(claim, too_low=False, why=SEES_LATER_TOKENS)


def perplexity_against_expert_choice(m: Measured) -> Iterator[Claim]:
    """Below segment-level in every domain; below, equal to or above token-level by the paper's domains."""
    lory, segment, token = ("0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", "0.3B/8E (EC, tok-level)")
    yield c.compare(below, "mean loss", m.loss, FROM_SCRATCH, segment)
    yield from c.by_domain(below, m, lory, segment)
    for domain, relation in AGAINST_TOKEN_LEVEL.items():
        yield c.compare(relation, f"{domain}: loss", partial(m.loss, domain=domain), lory, token)


def better_at_7b(m: Measured) -> Iterator[Claim]:
    """Below dense in every domain, by less than the smaller model in similar order."""
    yield from c.by_domain(below, m, "7B/4E", "7B")
    yield smaller_gain_at_7b(m.loss, "gain")


def smaller_training_gain_at_7b(m: Measured) -> Iterator[Claim]:
    """A training loss below dense, by less than the smaller model in similar order."""
    of = m.training_loss
    yield Claim("gain in training loss of 7B/4E", gain(of, "7B/4E", "7B"), low=0.0, unit="nats")
    yield smaller_gain_at_7b(of, "gain in training loss")


def smaller_gain_at_7b(of: c.Quantity, what: str) -> Claim:
    """The gain over dense of the 7B model against that of 0.3B."""
    quantity = f"{what} of 7B/4E, random order, minus that of 0.3B/8E, similar order"
    return below(quantity, gain(of, "7B/4E", "7B"), gain(of, "0.3B/8E", "0.3B"))


def better_answers(m: Measured, pairs: Mapping[str, str]) -> Iterator[Claim]:
    """More questions answered, and right answers more likely."""
    for pair in pairs.items():
        yield c.compare(partial(above, unit="of the questions"), "accuracy", m.accuracy, *pair)
        yield c.compare(above, "log-likelihood of the right answer", m.likelihood, *pair)


def prompt_about_as_good(m: Measured) -> Iterator[Claim]:
    """Held-out loss and answers, routed once by the prompt and at every segment.

    Answers decide nothing where both ways are as good as guessing.
    """
    for experts in (8, 16):
        rows = (f"1.5B/{experts}E (prompt)", f"1.5B/{experts}E (segment)")
        quantity = f"1.5B/{experts}E: loss routed by prompt minus that by segment"
        prompt, segment = map(m.loss, rows)
        yield close(quantity, prompt, segment)
        quantity = f"1.5B/{experts}E: accuracy routed by prompt minus that by segment"
        prompt, segment = map(m.accuracy, rows)
        claim = close(quantity, prompt, segment, CLOSE_ANSWERS, unit="of the questions")
        clear = c.is_above_chance(prompt) and c.is_above_chance(segment)
        yield claim if clear else not_judged(claim, c.AT_CHANCE)


def inference_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {
        "mean, %": c.scaled(m.accuracy(row), 100),
        "log-likelihood": m.likelihood(row),
        "perplexity": c.exp(m.loss(row)),
    }


def agreement_by_layer(m: Measured, row: str) -> list[dict[int, float]]:
    """Adjusted mutual information of experts and domain in each layer, by seed."""
    by_seed = m.per_layer(row, "domain_agreement")
    layers = len(next(iter(by_seed.values()), ()))
    return [{seed: values[layer] for seed, values in by_seed.items()} for layer in range(layers)]


def specialised_at_three_layers(m: Measured) -> Iterator[Claim]:
    """More in the middle and high layers than in the first; similar domains are routed similarly."""
    layers = agreement_by_layer(m, "0.3B/8E")
    if not layers:
        return
    for name, values in (("middle", layers[len(layers) // 2]), ("last", layers[-1])):
        quantity = f"agreement of experts and domain, {name} layer"
        yield Claim(quantity, values, low=SPECIALISED)
        yield above(f"{quantity} minus that of the first", values, layers[0], unit="")
    alike = [gate_distance(m, "0.3B/8E", *pair) for pair in (("arxiv", "python"), ("books", "wiki"))]
    quantity = "distance of the routing weights of arXiv and Python minus that of Books and Wikipedia"
    if all(alike):
        yield below(quantity, *alike, unit="")
    else:  # text without these domains
        yield Claim(quantity, {})


def gate_distance(m: Measured, row: str, one: str, other: str) -> Values:
    """Mean over layers of the distance between two domains' mean gates."""
    distances = {}
    for seed, layers in m.each(row, "routes", "layers").items():
        if one in layers[0]["mean_gates"] and other in layers[0]["mean_gates"]:
            gates = [[layer["mean_gates"][domain] for domain in (one, other)] for layer in layers]
            distances[seed] = float(np.linalg.norm(np.subtract(*np.swapaxes(gates, 0, 1)), axis=-1).mean())
    return distances


def specialised_everywhere(m: Measured) -> Iterator[Claim]:
    """Also at the layers between."""
    for layer, values in enumerate(agreement_by_layer(m, "0.3B/8E")[1:], 1):
        yield Claim(f"agreement of experts and domain, layer {layer}", values, low=SPECIALISED)


def specialisation_charts(m: Measured) -> Iterator[Chart]:
    """Mean gates by domain at every layer, and the agreement over layers."""
    if m.each("0.3B/8E", "routes", "layers"):
        yield c.route_tiles(m, "0.3B/8E", "mean_gates", "mean routing weight by domain")
        agreement = {"0.3B/8E": m.per_layer("0.3B/8E", "domain_agreement")}
        yield c.layer_chart(agreement, "agreement of experts and domain")


def agreement_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {f"layer {i}": values for i, values in enumerate(agreement_by_layer(m, row))}


def active_curves(m: Measured, row: str) -> dict[int, list[float]]:
    """Share of experts active in ten steps over training, mean over layers."""
    recorded = m.each(row, "training", "active", "shares")
    return {seed: np.mean(shares, axis=1).tolist() for seed, shares in recorded.items()}


def active_share(m: Measured, row: str, start: float, stop: float = 1.0) -> Values:
    """Mean share of experts active in ten steps, over a part of the training."""
    return c.mean_of_part(active_curves(m, row), start, stop)


def warmup_helps(m: Measured) -> Iterator[Claim]:
    """Without the dense warm-up the loss is higher and fewer experts are used."""
    without, plain = "1.5B/32E (no warmup)", "1.5B/32E"
    yield c.compare(above, "training loss", m.training_loss, without, plain)
    active = partial(active_share, m, start=LATE)
    yield c.compare(partial(below, unit=""), "share of active experts, last third,", active, without, plain)


def utilisation(m: Measured) -> Iterator[Claim]:
    """The share of 32 experts that is active grows, to about 900 of 1,536; most of 8 and 16 are active early.

    Windows of fewer segments have fewer active experts, so a share is judged only where ten steps route as
    many segments as the paper's.
    """
    routed = (active["units"] for row in m.rows for active in m.each(row, "training", "active").values())
    alike = next(routed, 0) >= PAPER_SEGMENTS
    for experts in (8, 16):
        quantity = f"share of {experts} experts that are active, second tenth of training"
        active = active_share(m, f"1.5B/{experts}E", 0.1, 0.2) if alike else {}
        yield Claim(quantity, active, low=0.5)
    at_the_end = active_share(m, "1.5B/32E", 0.9) if alike else {}
    yield Claim("share of 32 experts that are active, last tenth", at_the_end, *ABOUT_900_OF_1536)
    early, late = (active_share(m, "1.5B/32E", *part) for part in (SECOND_THIRD, (LATE, 1.0)))
    quantity = "share of 32 experts that are active, last third minus that of the second"
    yield above(quantity, late, early, unit="")


def active_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {"training loss": m.training_loss(row), "active in ten steps, share": active_share(m, row, LATE)}


def loss_and_activity(m: Measured) -> Iterator[Chart]:
    yield from c.losses(m)
    series = {
        row: band(m.each(row, "training", "active", "tokens"), shares)
        for row in m.finished
        if (shares := active_curves(m, row))
    }
    yield lines("experts active in ten steps", "training tokens", "share of all experts", series)


BY_SIZE = {f"{size}/{experts}E": size for size in SIZES for experts in EXPERTS}
PAIR_03 = {row: ITEMS["lory-table4"].runs[row] for row in ("0.3B", "0.3B/8E")}
NO_WARMUP = {FROM_SCRATCH: PaperRun("0.3b-lory-8e", overrides=("--warmup.dense_share=0",))}

by_training_loss = partial(Experiment, columns=c.training_columns, charts=c.losses)
by_perplexity = partial(
    Experiment, measures=("heldout",), columns=c.perplexity_columns, charts=c.perplexities
)
by_answers = partial(Experiment, measures=("questions",), columns=c.question_columns)
by_prompt = partial(
    Experiment, claims=prompt_about_as_good, measures=("heldout", "questions"), columns=inference_columns
)
by_routes = partial(Experiment, measures=("routes",), columns=agreement_columns, charts=specialisation_charts)
by_use = partial(Experiment, columns=active_columns, charts=loss_and_activity)

LORY_EXPERIMENTS = (
    by_training_loss("lory-fig2-left", training_by_size),
    by_perplexity("lory-fig2-right", perplexity_by_size),
    by_answers("lory-table1", partial(better_answers, pairs=BY_SIZE)),
    by_training_loss("lory-fig3", causal_against_prefix, ("heldout",)),
    Experiment(
        "lory-fig4", similar_against_random, ("heldout",), c.training_columns, batching_charts, kind=SHORT
    ),
    by_training_loss("lory-fig5", training_against_expert_choice, more_runs=NO_WARMUP),
    by_perplexity("lory-table2", perplexity_against_expert_choice, more_runs=NO_WARMUP),
    by_routes("lory-fig6", specialised_at_three_layers),
    by_routes("lory-fig11", specialised_everywhere),
    by_prompt("lory-table6"),
    by_prompt("lory-table9"),
    by_perplexity("lory-table7", better_at_7b, more_runs=PAIR_03),
    by_answers("lory-table8", partial(better_answers, pairs={"7B/4E": "7B"})),
    by_training_loss("lory-fig8", smaller_training_gain_at_7b, more_runs=PAIR_03),
    by_use("lory-fig10", warmup_helps),
    by_use("lory-fig9", utilisation),
)
