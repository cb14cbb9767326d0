"""Sections of a report that sets a mixture beside a dense model. Each is None when there is nothing to show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loriini.analyze import plots
from loriini.analyze.page import (
    Html,
    cards,
    code,
    element,
    figure,
    folded,
    items,
    join,
    note,
    pair,
    paragraph,
    quotation,
    strong,
    table,
)
from loriini.analyze.plots import Metrics
from loriini.analyze.wording import counts, duration, geometric_mean, large, listing, memory, percent

DENSE, MIXTURE = "dense", "lory"
"""The two models' names in the files, whatever the mixture's design."""
EQUAL = 0.005
"""A relative difference of perplexities that is called none."""

CAUSALITY = {
    "strict": "Every token is predicted from earlier tokens alone. The tokens of segment 1, the first {T} of each "
    "stretch of {L}, are left out here so that designs can be compared; a table below counts them too.",
    "after_first_segment": "The tokens of segment 1, the first {T} of each stretch of {L}, are left out for both "
    "models: {design} routes segment 1 by its own text, which gives away a little of what is to be predicted. Every "
    "later token is predicted from earlier tokens alone.",
    "none": "{design} routes by text that includes the tokens to be predicted. Its perplexity is not that of a "
    "causal model: do not hold it against the dense one's.",
}


@dataclass(frozen=True)
class Comparison:
    """What the files of a quickstart say; `metrics` under both models' names."""

    results: Mapping[str, Any]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metrics]

    @property
    def design(self) -> str:
        """The mixture's name to the reader."""
        return self.settings["design"]

    def perplexities(self, key: str = "perplexity") -> tuple[dict[str, float], dict[str, float]]:
        """By domain, of the dense model and of the mixture; a domain without counted tokens is left out."""
        dense, mixture = (self.results[model][key] for model in (DENSE, MIXTURE))
        domains = [d for d in dense if dense[d] is not None and mixture.get(d) is not None]
        return {d: dense[d] for d in domains}, {d: mixture[d] for d in domains}


def headline(c: Comparison) -> Html:
    """The measured result in words, whichever wins, and what exactly was measured."""
    dense, mixture = c.perplexities()
    d, m = geometric_mean(dense.values()), geometric_mean(mixture.values())
    won = [domain for domain in dense if mixture[domain] < dense[domain]]
    steps, tokens = c.settings["steps"], c.results["tokens"]
    causality = CAUSALITY[c.settings["causality"]]
    lead = (
        f"Both models were trained for {steps:,} steps on {large(tokens['train'])} tokens. On {large(tokens['heldout'])} "
        f"tokens of text that neither has seen, the mean perplexity of {c.design} is "
    )
    return join(
        element("p", "Loriini · a mixture beside a dense model", class_="kicker"),
        element("h1", f"{_verdict(c, m / d - 1)}: perplexity {m:.2f} against {d:.2f}"),
        paragraph(
            lead, strong(_compared(m / d - 1)), f". It is the lower one in {_domains_won(won, list(dense))}."
        ),
        cards(
            [
                (f"perplexity, {c.design}", f"{m:.2f}"),
                ("perplexity, dense", f"{d:.2f}"),
                ("difference", percent(m / d - 1)),
                ("domains won", f"{len(won)} of {len(dense)}"),
            ]
        ),
        note(
            causality.format(design=c.design, T=c.settings["segment_length"], L=c.settings["length"]),
            " Means over domains are geometric. This is one run of each model with one seed: a difference of a per "
            "cent can be chance.",
        ),
    )


def _verdict(c: Comparison, change: float) -> str:
    if c.settings["causality"] == "none":
        return f"{c.design} sees ahead, so this is no contest"
    if abs(change) < EQUAL:
        return f"{c.design} and dense predict unseen text equally well"
    better, worse = (c.design, DENSE) if change < 0 else (DENSE, c.design)
    return f"{better} predicts unseen text better than {worse}"


def _compared(change: float) -> str:
    return f"{abs(change):.1%} {'lower' if change < 0 else 'higher'} than the dense model's".replace(
        "%", " %"
    )


def _domains_won(won: Sequence[str], domains: Sequence[str]) -> str:
    if len(won) in (0, len(domains)):
        return (
            "no domain" if not won else f"all {len(domains)} domains" if len(won) > 1 else "the only domain"
        )
    return f"{len(won)} of {len(domains)} domains: {listing(won)}"


def setup(c: Comparison) -> Html:
    """The two models, the documents, the machine."""
    s, parameters = c.settings, c.results["parameters"]
    dense, total, active = parameters["dense"], parameters["lory_total"], parameters["lory_active"]
    rates = s["learning_rates"]
    models = [
        ["parameters", large(dense), large(total)],
        ["parameters at work for a token", large(dense), large(active)],
        ["experts in each layer", "1", str(s["num_experts"])],
        ["peak learning rate", f"{rates[DENSE]:g}", f"{rates[MIXTURE]:g}"],
    ]
    train, heldout = s["documents"]["train"], s["documents"]["heldout"]
    texts = [
        [domain, *_amount(train.get(domain)), *_amount(heldout.get(domain))]
        for domain in {**train, **heldout}
    ]
    shape = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in s["size"].items())
    machine = s["machine"]
    return join(
        pair(
            table(["", DENSE, c.design], models),
            table(["domain", "documents", "characters", "held out", "characters"], texts),
        ),
        paragraph(
            f"Each step is {s['batch_size']} stretches of {s['length']:,} tokens; the mixture decides anew every "
            f"{s['segment_length']} tokens."
            if _segmented(c)
            else "",
        ),
        note(f"Both models: {shape}. Seed {s['seed']}."),
        note(
            f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['precision']}, "
            f"torch {machine['torch']}, Python {machine['python']}."
        ),
        note(f"Passed over: {counts(s['skipped'])}.") if s.get("skipped") else "",
    )


def _amount(part: Mapping[str, int] | None) -> list[str]:
    return [large(part["documents"]), large(part["characters"])] if part else ["–", "–"]


def perplexity(c: Comparison) -> Html:
    """Every domain as a table and as bars, after segment 1 and with all tokens."""
    after, whole = c.perplexities(), c.perplexities("perplexity_all")
    dense, mixture = after
    changes = {domain: mixture[domain] / dense[domain] - 1 for domain in dense}
    best, worst = min(changes, key=changes.__getitem__), max(changes, key=changes.__getitem__)
    header = ["", "dense", c.design, "difference", "dense, all", f"{c.design}, all", "difference"]
    rows = [[domain, *_row(after, domain), *_row(whole, domain)] for domain in dense]
    means = [{"mean": geometric_mean(model.values())} for model in (*after, *whole)]
    rows.append(["mean", *_row((means[0], means[1]), "mean"), *_row((means[2], means[3]), "mean")])
    return join(
        paragraph(
            f"Lower is better. Beside the dense model, {c.design} does best in ",
            strong(f"{best} ({percent(changes[best])})"),
            " and worst in ",
            strong(f"{worst} ({percent(changes[worst])})"),
            ".",
        )
        if best != worst
        else paragraph("Lower is better."),
        pair(
            figure(
                plots.perplexity_bars(dense, mixture, c.design), "Tokens after segment 1, the measure above."
            ),
            figure(plots.perplexity_bars(*whole, c.design), "All tokens, those of segment 1 too."),
        ),
        table(header, rows),
    )


def _row(models: tuple[Mapping[str, float], Mapping[str, float]], domain: str) -> list[str]:
    dense, mixture = (model.get(domain) for model in models)
    if dense is None or mixture is None:
        return ["–"] * 3
    return [f"{dense:.2f}", f"{mixture:.2f}", percent(mixture / dense - 1)]


def similar_documents(c: Comparison, neighbors: Sequence[Mapping[str, Any]]) -> Html:
    """What the order of documents does to an instance, and some documents with their nearest."""
    order = c.results["order"]
    examples = [_example(document) for document in neighbors]
    return join(
        paragraph(
            "Before documents are joined and cut into stretches, each is put next to its most similar. Two documents "
            "that share a stretch then have a mean cosine of ",
            strong(f"{order['similar']:.3f}"),
            f", against {order['random']:.3f} in random order: the text before says more of the text behind, which "
            "is what a router that looks back can learn from.",
        ),
        figure(plots.order_bars(order), "Mean cosine between documents that share a stretch, by order."),
        *examples[:1],
        folded("More examples", *examples[1:]) if examples[1:] else "",
    )


def _example(document: Mapping[str, Any]) -> Html:
    nearest = (
        quotation(f"{n['similarity']:.2f} · {n['domain']} · {n['id']}", n["text"])
        for n in document["neighbors"]
    )
    return join(
        element("h3", "A document and its nearest"),
        quotation(f"{document['domain']} · {document['id']}", document["text"]),
        pair(*nearest),
    )


def samples(c: Comparison, texts: Sequence[Mapping[str, str]]) -> Html | None:
    """How both models go on with the same prompts."""
    if not texts:
        return None
    return join(
        paragraph(
            "The same prompts, taken up by both models. At this size, look at the form rather than the sense."
        ),
        *(
            join(
                element("h3", text["domain"]),
                quotation("prompt", text["prompt"]),
                pair(quotation(DENSE, text[DENSE]), quotation(c.design, text[MIXTURE])),
            )
            for text in texts
        ),
    )


def cost(c: Comparison) -> Html:
    """Seconds and memory of each stage, and the speed of both trainings."""
    seconds, peaks = c.results["seconds"], c.settings.get("peak_memory_bytes", {})
    rows = [
        [stage, duration(s), memory(peaks[stage]) if stage in peaks else "–"] for stage, s in seconds.items()
    ]
    rows.append(["all", duration(sum(seconds.values())), memory(max(peaks.values())) if peaks else "–"])
    speeds = {model: _speed(c.metrics.get(model, ())) for model in (DENSE, MIXTURE)}
    return join(
        paragraph(
            f"In training {c.design} went through {large(speeds[MIXTURE])} tokens a second, ",
            strong(f"{speeds[MIXTURE] / speeds[DENSE]:.2f} of the dense model's speed"),
            f" ({large(speeds[DENSE])}; medians over steps).",
        )
        if all(speeds.values())
        else "",
        pair(
            figure(plots.stage_bars(seconds), "Where the time went."),
            table(["stage", "time", "peak memory"], rows),
        ),
    )


def _speed(metrics: Metrics) -> float:
    """Median tokens a second over the steps with the final number of experts; 0 without steps."""
    final = metrics[-1].get("experts", 1) if metrics else 1
    return median([m["tokens_per_second"] for m in metrics if m.get("experts", 1) == final] or [0.0])


def _segmented(c: Comparison) -> bool:
    return c.settings["causality"] == "after_first_segment"


def what_next(c: Comparison) -> Html:
    """Commands that go on from here."""
    design = "mixtral" if c.design != "mixtral" else "lory"
    commands = {
        f"loriini quickstart --steps {4 * c.settings['steps']}": "train four times as long; experts drift apart with time",
        "loriini quickstart --size SIZE": "a larger or smaller pair of models",
        "loriini quickstart --documents PATH…": "your own text: every folder or file a domain",
        f"loriini quickstart --design {design}": "another routing design in the mixture's place",
        "loriini designs": "all of them, and in which they differ",
        "loriini generate DIR/runs/lory --prompt TEXT": "let the mixture write; DIR is the folder of this page",
        "loriini recipes": "the papers' models and the small ones, ready to train",
    }
    return items(join(code(command), " – ", meaning) for command, meaning in commands.items())
