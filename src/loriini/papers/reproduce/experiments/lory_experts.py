"""Claims and charts of Lory's items about experts: specialisation by domain, and use over training."""

from collections.abc import Iterator, Mapping

import numpy as np

from loriini.papers.published import published_values
from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claims.claim import Claim, above, below
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values
from loriini.papers.reproduce.experiments import common as c

LATE = 0.67
"""Where the last third of training begins."""
SECOND_THIRD = (0.33, LATE)
TEN, LONG = "active", "active_long"
"""Windows of ten steps and of a tenth of training, as `measures.training` calls them."""
PAPER_SEGMENTS = next(
    round(value.value) for value in published_values("lory-fig9") if value.column == "segments"
)
"""In ten of the paper's steps."""
ABOUT_900_OF_1536 = (0.5, 0.67)
"""Share of active experts that counts as about 900 of 1,536."""
SPECIALISED = 0.02
"""Adjusted mutual information above which experts are called specialised."""


def agreement_by_layer(m: Measured, row: str = "0.3B/8E") -> dict[int, list[float]]:
    """Adjusted mutual information of experts and domain, by layer."""
    return m.per_layer(row, "domain_agreement")


def specialised_at_three_layers(m: Measured) -> Iterator[Claim]:
    """More in the middle and high layers than in the first; similar domains are routed similarly."""
    agreements = agreement_by_layer(m)
    layers = len(next(iter(agreements.values()), []))
    if not layers:
        return
    first, middle, last = (c.layer_values(agreements, i) for i in (0, layers // 2, layers - 1))
    for name, values in (("middle", middle), ("last", last)):
        quantity = f"agreement of experts and domain, {name} layer"
        yield Claim(quantity, values, low=SPECIALISED)
        yield above(f"{quantity} minus that of the first", values, first, unit="")
    alike = {pair: gate_distance(m, "0.3B/8E", *pair) for pair in (("arxiv", "python"), ("books", "wiki"))}
    quantity = "distance of the routing weights of arXiv and Python minus that of Books and Wikipedia"
    if all(alike.values()):
        yield below(quantity, *alike.values(), unit="")
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
    agreements = agreement_by_layer(m)
    for layer in range(1, len(next(iter(agreements.values()), []))):
        quantity = f"agreement of experts and domain, layer {layer}"
        yield Claim(quantity, c.layer_values(agreements, layer), low=SPECIALISED)


def specialisation_charts(m: Measured) -> Iterator[Chart]:
    """Mean gates by domain at every layer, and the agreement over layers."""
    if m.each("0.3B/8E", "routes", "layers"):
        yield c.route_tiles(m, "0.3B/8E", "mean_gates", "mean routing weight by domain")
        yield c.layer_chart({"0.3B/8E": agreement_by_layer(m)}, "agreement of experts and domain")


def agreement_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """The agreement by layer."""
    agreements = agreement_by_layer(m, row)
    layers = len(next(iter(agreements.values()), []))
    return {f"layer {i}": c.layer_values(agreements, i) for i in range(layers)}


def active_share(m: Measured, row: str, start: float, stop: float = 1.0, window: str = TEN) -> Values:
    """Mean share of experts active in windows of steps, over a part of the training."""
    by_seed = {}
    for seed, active in m.each(row, "training", window).items():
        shares = np.array(active["shares"]).mean(1)
        by_seed[seed] = float(c.part_of(shares, start, stop).mean())
    return by_seed


def warmup_helps(m: Measured) -> Iterator[Claim]:
    """Without the dense warm-up the loss is higher and fewer experts are used."""
    plain, without = "1.5B/32E", "1.5B/32E (no warmup)"
    yield above(
        "training loss without the warm-up minus that with it", *map(m.training_loss, (without, plain))
    )
    quantity = "share of active experts without the warm-up minus that with it, last third"
    yield below(quantity, *(active_share(m, row, LATE) for row in (without, plain)), unit="")


def utilisation(m: Measured) -> Iterator[Claim]:
    """The share of 32 experts that is active grows, to about 900 of 1,536; most of 8 and 16 are active early.

    Windows of fewer segments have fewer active experts, so a share is judged only where they hold as many as
    the paper's.
    """
    window = next((w for w in (TEN, LONG) if units_in_window(m, w) >= PAPER_SEGMENTS), None)
    for experts in (8, 16):
        quantity = f"share of {experts} experts that are active, second tenth of training"
        active = active_share(m, f"1.5B/{experts}E", 0.1, 0.2, window) if window else {}
        yield Claim(quantity, active, low=0.5)
    at_the_end = active_share(m, "1.5B/32E", 0.9, 1.0, window) if window else {}
    yield Claim("share of 32 experts that are active, last tenth", at_the_end, *ABOUT_900_OF_1536)
    early, late = (active_share(m, "1.5B/32E", *part) for part in (SECOND_THIRD, (LATE, 1.0)))
    yield above(
        "share of 32 experts that are active, last third minus that of the second", late, early, unit=""
    )


def units_in_window(m: Measured, window: str) -> int:
    """Units routed in a window of steps; 0 where no mixture was trained."""
    units = (active["units"] for row in m.rows for active in m.each(row, "training", window).values())
    return next(units, 0)


def windows_differ(m: Measured) -> Iterator[str]:
    """How many segments the windows of steps hold, here and in the paper."""
    ten, tenth = (units_in_window(m, window) for window in (TEN, LONG))
    if 0 < ten < PAPER_SEGMENTS:
        yield (
            f"ten steps hold {ten:,} segments and a tenth of training {tenth:,}, "
            f"but the paper's ten steps {PAPER_SEGMENTS:,}; an expert that few segments choose is active "
            "only in windows of many segments, so shares are compared with the paper's only where a window "
            "holds as many"
        )


def active_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Loss, and shares of active experts in ten steps and in a tenth of training."""
    return {
        "training loss": m.training_loss(row),
        "active in ten steps at the end, share": active_share(m, row, LATE),
        "active in the second tenth of training, share": active_share(m, row, 0.1, 0.2, LONG),
        "active in the last tenth of training, share": active_share(m, row, 0.9, 1.0, LONG),
    }


def loss_and_activity(m: Measured) -> Iterator[Chart]:
    """Curves of the loss and of the share of active experts."""
    yield from c.losses(m)
    yield c.active_chart(m)
