"""Sections of a report that sets a mixture beside a dense model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from loriini.analyze import page as p
from loriini.analyze import plots
from loriini.analyze.curves import Metrics
from loriini.analyze.page import Html
from loriini.analyze.sections import document_and_nearest
from loriini.analyze.wording import counts, duration, large, listing, memory, percent
from loriini.evaluate.perplexity import check_comparable

DENSE = "dense"
"""The two models' names in the files, whatever the mixture's design."""
EQUAL = 0.005
"""A relative difference of perplexities that is called none."""

CAUSALITY = {
    "strict": "Every token is predicted from earlier tokens alone.",
    "after_first_segment": "The mixture routes segment 1, the first {T} tokens of each instance of {L}, by "
    "its own text, which gives away a little of what is to be predicted: these tokens are left out for both "
    "models. Every later token is predicted from earlier tokens alone.",
    "none": "The mixture routes by text that includes the tokens to be predicted, so its perplexity is not "
    "that of a causal model: do not set it against the dense model's.",
}
SHAPE = {
    "hidden_size": "hidden width",
    "intermediate_size": "feed-forward width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
}

COMMANDS = {
    "loriini quickstart --steps {steps}": "train four times as long: experts drift apart with time",
    "loriini quickstart --size SIZE": "a smaller or a larger pair of models",
    "loriini quickstart --documents PATH…": "your own text",
    "loriini quickstart --design {other}": "another routing design in the mixture's place",
    "loriini designs": "all designs, and where they differ",
    "loriini generate DIR/runs/{design} --prompt TEXT": "let the mixture write; DIR is this page's folder",
    "loriini recipes": "the papers' models, and small ones, ready to train",
}


@dataclass(frozen=True)
class Comparison:
    """What a quickstart's files say; `metrics` by DENSE and the design.

    InputError for models that were evaluated on different tokens.
    """

    results: Mapping[str, Any]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metrics]

    def __post_init__(self) -> None:
        check_comparable({name: self.results[name] for name in (DENSE, self.design)})

    @property
    def design(self) -> str:
        """The mixture's name to the reader."""
        return self.settings["design"]

    @property
    def counted(self) -> "Scores":
        """Perplexity of the tokens that the comparison counts: those after segment 1, where there is one."""
        return Scores(self.results[DENSE]["perplexity"], self.results[self.design]["perplexity"])

    @property
    def whole(self) -> "Scores":
        """Perplexity of all tokens."""
        return Scores(self.results[DENSE]["perplexity_all"], self.results[self.design]["perplexity_all"])

    @property
    def segmented(self) -> bool:
        """Whether a segment 1 was left out."""
        return self.counted != self.whole


@dataclass(frozen=True)
class Scores:
    """Perplexity of both models by domain."""

    dense: Mapping[str, float]
    mixture: Mapping[str, float]

    @property
    def changes(self) -> dict[str, float]:
        """The mixture's relative difference by domain; below 0 it is better."""
        return {domain: self.mixture[domain] / x - 1 for domain, x in self.dense.items()}

    @property
    def means(self) -> tuple[float, float]:
        """Means over domains, dense and mixture."""
        return fmean(self.dense.values()), fmean(self.mixture.values())


def headline(c: Comparison) -> Html:
    """The measured result in words, whichever wins, and what exactly was measured."""
    scores, tokens = c.counted, c.results["tokens"]
    dense, mixture = scores.means
    change = mixture / dense - 1
    won = [domain for domain, change in scores.changes.items() if change < 0]
    return p.join(
        p.element("p", "Loriini · a mixture beside a dense model", class_="kicker"),
        p.element("h1", f"{_verdict(c, change)}: perplexity {mixture:.2f} against {dense:.2f}"),
        p.paragraph(
            f"Both models were trained for {c.settings['steps']:,} steps on {large(tokens['train'])} tokens. "
            f"On {large(tokens['heldout'])} tokens of text that neither has seen, the mean perplexity of "
            f"{c.design} is ",
            p.strong(f"{percent(abs(change)).lstrip('+')} {'lower' if change < 0 else 'higher'}"),
            f" than the dense model's. It is lower in {_won(won, len(scores.dense))}.",
        ),
        p.cards(
            {
                f"perplexity, {c.design}": f"{mixture:.2f}",
                "perplexity, dense": f"{dense:.2f}",
                "difference": percent(change),
                "domains won": f"{len(won)} of {len(scores.dense)}",
            }
        ),
        p.note(
            CAUSALITY[c.settings["causality"]].format(T=c.settings["segment_length"], L=c.settings["length"]),
            " The mean is over domains, each counting the same. This is one run of each model with one "
            "seed: a difference of a per cent can be chance.",
        ),
    )


def _verdict(c: Comparison, change: float) -> str:
    models = [f"the {c.design} mixture", "the dense model"]
    if c.settings["causality"] == "none":
        return f"The {c.design} mixture sees ahead, so this is no contest"
    if abs(change) < EQUAL:
        return f"The {c.design} mixture and the dense model predict unseen text equally well"
    better, worse = models if change < 0 else models[::-1]
    return f"{better[0].upper()}{better[1:]} predicts unseen text better than {worse}"


def _won(domains: Sequence[str], of: int) -> str:
    if not domains:
        return "no domain"
    return (
        f"all {of} domains"
        if len(domains) == of > 1
        else f"{len(domains)} of {of} domains: {listing(domains)}"
    )


def setup(c: Comparison) -> Html:
    """The two models, the documents, the machine."""
    s, parameters, rates = c.settings, c.results["parameters"], c.settings["learning_rates"]
    dense, total, active = (
        large(parameters[k]) for k in ("dense", f"{c.design}_total", f"{c.design}_active")
    )
    models = [
        ["parameters", dense, total],
        ["parameters at work for a token", dense, active],
        ["experts in each layer", "1", str(s["num_experts"])],
        ["peak learning rate", f"{rates[DENSE]:g}", f"{rates[c.design]:g}"],
    ]
    train, heldout = s["documents"]["train"], s["documents"]["heldout"]
    texts = [[d, *_amount(train.get(d)), *_amount(heldout.get(d))] for d in {**train, **heldout}]
    shape = ", ".join(f"{word} {s['size'][name]}" for name, word in SHAPE.items() if name in s["size"])
    segments = f", in segments of {s['segment_length']:,}" if c.segmented else ""
    machine = "{processor}, {cores} cores, {precision}, torch {torch}, Python {python}".format(**s["machine"])
    return p.join(
        p.pair(
            p.table(["", DENSE, c.design], models),
            p.join(
                p.paragraph(
                    f"Each step reads {s['batch_size']} instances. An instance is {s['length']:,} tokens of "
                    f"joined documents{segments}."
                ),
                p.note(f"Both models: {shape}. Seed {s['seed']}."),
                p.note(f"Machine: {machine}."),
            ),
        ),
        p.table(["domain", "documents", "characters", "held out: documents", "characters"], texts),
        p.note(f"Passed over: {counts(s['skipped'])}.") if s.get("skipped") else "",
    )


def _amount(part: Mapping[str, int] | None) -> list[str]:
    return [f"{part['documents']:,}", large(part["characters"])] if part else ["–", "–"]


def perplexity(c: Comparison) -> Html:
    """Every domain as bars and as a table: the tokens that count, and all where that is not the same."""
    changes = c.counted.changes
    best, worst = min(changes, key=changes.__getitem__), max(changes, key=changes.__getitem__)
    views = {"Tokens after segment 1, the measure above": c.counted} if c.segmented else {}
    views["All tokens"] = c.whole
    return p.join(
        p.paragraph(
            f"Lower is better. Beside the dense model, {c.design} does best in ",
            p.strong(f"{best} ({percent(changes[best])})"),
            " and worst in ",
            p.strong(f"{worst} ({percent(changes[worst])})"),
            ".",
        ),
        p.pair(*(_view(c, name, scores) for name, scores in views.items())),
    )


def _view(c: Comparison, name: str, scores: Scores) -> Html:
    """Some tokens' perplexity by domain."""
    rows = [
        [d, f"{scores.dense[d]:.2f}", f"{scores.mixture[d]:.2f}", percent(x)]
        for d, x in scores.changes.items()
    ]
    dense, mixture = scores.means
    rows.append(["mean", f"{dense:.2f}", f"{mixture:.2f}", percent(mixture / dense - 1)])
    return p.join(
        p.element("h3", name),
        p.figure(
            plots.perplexity_bars(scores.dense, scores.mixture, c.design),
            f"Held-out perplexity by domain, and how far {c.design} is from dense.",
        ),
        p.table(["domain", DENSE, c.design, "difference"], rows),
    )


def similar_documents(c: Comparison, neighbors: Sequence[Mapping[str, Any]]) -> Html:
    """What the order of documents does to an instance, and some documents with their nearest."""
    order = c.results["order"]
    examples = [document_and_nearest(document) for document in neighbors]
    return p.join(
        p.pair(
            p.paragraph(
                "Before documents are joined and cut into instances, similar ones are put side by side. Two "
                "that share an instance then have a mean cosine of ",
                p.strong(f"{order['similar']:.3f}"),
                f", against {order['random']:.3f} in random order: the text so far says more of the text to "
                "come, and that is what a router which looks back can learn from.",
            ),
            p.figure(
                plots.order_bars(order), "Mean cosine of documents that share an instance, by their order."
            ),
        ),
        *examples[:1],
        p.folded("More documents and their nearest", *examples[1:]) if examples[1:] else "",
    )


def samples(c: Comparison, texts: Sequence[Mapping[str, str]]) -> Html | None:
    """How both models go on with the same prompts; None without any."""
    if not texts:
        return None
    lead = "The same prompts, taken up by both models. From models this small, expect form rather than sense."
    return p.join(p.paragraph(lead), *(part for text in texts for part in _sample(c, text)))


def _sample(c: Comparison, text: Mapping[str, str]) -> Iterator[Html]:
    yield p.element("h3", text["domain"])
    yield p.quotation("prompt", text["prompt"])
    yield p.pair(p.quotation(DENSE, text[DENSE]), p.quotation(c.design, text[c.design]))


def cost(c: Comparison) -> Html:
    """Seconds and memory of each stage, the longest first, and the speed of both trainings."""
    seconds = dict(sorted(c.results["seconds"].items(), key=lambda stage: -stage[1]))
    peaks = c.settings.get("peak_memory_bytes", {})
    stages = {**seconds, "all": sum(seconds.values())}
    peaks = {**peaks, "all": max(peaks.values())} if peaks else {}
    rows = [
        [stage, duration(s), memory(peaks[stage]) if stage in peaks else "–"] for stage, s in stages.items()
    ]
    dense, mixture = (_speed(c.metrics[model]) for model in (DENSE, c.design))
    speeds = p.paragraph(
        f"In training, {c.design} read {large(mixture)} tokens a second and the dense model {large(dense)} "
        "(medians over steps): ",
        p.strong(f"{mixture / (dense or 1):.2f} of the dense model's speed"),
        ".",
    )
    return p.join(
        speeds if dense and mixture else "",
        p.pair(
            p.figure(plots.stage_bars(seconds), "Where the time went, the longest stage first."),
            p.table(["stage", "time", "peak memory by its end"], rows),
        ),
    )


def _speed(metrics: Metrics) -> float:
    """Median tokens a second over the steps with the final number of experts; 0 without steps."""
    return median(
        [m["tokens_per_second"] for m in metrics if m["experts"] == metrics[-1]["experts"]] or [0.0]
    )


def what_next(c: Comparison) -> Html:
    """Commands that go on from here."""
    filled = {
        "design": c.design,
        "steps": 4 * c.settings["steps"],
        "other": "mixtral" if c.design != "mixtral" else "lory",
    }
    return p.items(
        p.join(p.code(command.format(**filled)), " – ", meaning) for command, meaning in COMMANDS.items()
    )
