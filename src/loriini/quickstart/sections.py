"""The quickstart's results, and the sections of the report on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

from loriini.analyze.sections import document_and_nearest
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.quickstart.settings import DENSE
from loriini.reporting import page as p
from loriini.reporting import plots
from loriini.reporting.curves import Metrics
from loriini.reporting.page import Html
from loriini.reporting.wording import (
    ALONE,
    NO_CLEAR_DIFFERENCE,
    NO_VALUE,
    amount,
    byte_size,
    cosine,
    duration,
    interval,
    is_clear,
    large,
    listing,
    percent,
    sentence_case,
)

CAUSALITY = {
    "strict": "Every token is predicted from earlier tokens alone.",
    "after_first_segment": "The mixture routes the first segment, {T} of an instance's {L} tokens, by that "
    "segment's own text, which reveals a little of what is to be predicted. These tokens are left out for "
    "both models. Every later token is predicted from earlier tokens alone.",
    "none": "The mixture routes by text that includes the tokens to be predicted. Its perplexity is not "
    "that of a causal model and does not compare with the dense model's.",
}
UNCERTAINTY = (
    "The interval says how far the difference could vary with the choice of held-out documents (a paired "
    "bootstrap). It covers neither the choice of the files or packages they come from, nor the seed: these "
    "are single trainings with one seed, and another seed gives another difference, easily by a per cent or "
    "more at this size."
)
MEAN = "The mean is over the domains' perplexities, in which hard domains weigh more."
SHAPE = {
    "hidden_size": "hidden width",
    "intermediate_size": "feed-forward width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
}


@dataclass(frozen=True)
class QuickstartFiles:
    """The content of a quickstart's files; `metrics` by DENSE and the design."""

    results: Mapping[str, Any]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Metrics]

    @property
    def design(self) -> str:
        """The mixture's name."""
        return self.settings["design"]

    @property
    def counted(self) -> "Perplexities":
        """Perplexity of the tokens that are compared: those after the first segment, if there is one."""
        return self._of_both("perplexity")

    @property
    def whole(self) -> "Perplexities":
        """Perplexity of all tokens."""
        return self._of_both("perplexity_all")

    def _of_both(self, measure: str) -> "Perplexities":
        return Perplexities(self.results[DENSE][measure], self.results[self.design][measure])

    @property
    def segmented(self) -> bool:
        """Whether a first segment was left out."""
        return self.counted != self.whole

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """The difference from the dense model with its interval, by domain and over all."""
        return {name: Difference.from_dict(value) for name, value in self.results["difference"].items()}


@dataclass(frozen=True)
class Perplexities:
    """Perplexity of both models by domain."""

    dense: Mapping[str, float]
    mixture: Mapping[str, float]

    @property
    def means(self) -> tuple[float, float]:
        """Means over domains, dense and mixture."""
        return fmean(self.dense.values()), fmean(self.mixture.values())


def headline(c: QuickstartFiles) -> Html:
    """The result in words, as far as the interval supports it, and what was measured."""
    tokens, (dense, mixture) = c.results["tokens"], c.counted.means
    change = mixture / dense - 1
    cards = {
        f"perplexity, {c.design}": f"{mixture:.2f}",
        "perplexity, dense": f"{dense:.2f}",
        "difference": percent(change),
        "95 % interval": interval(c.differences[OVERALL]),
    }
    return p.join(
        p.element("p", "Loriini · a mixture and a dense model", class_="kicker"),
        p.element("h1", _verdict(c)),
        p.paragraph(
            f"Both models were trained for {c.settings['steps']:,} steps on {large(tokens['train'])} tokens. "
            f"On {large(tokens['heldout'])} tokens of text that neither has seen, the perplexity of "
            f"{c.design}, averaged over domains, is ",
            p.strong(f"{amount(change)} {'lower' if change < 0 else 'higher'}"),
            f" than that of the dense model. {_domains(c)}",
        ),
        p.cards(cards),
        p.note(
            CAUSALITY[c.settings["causality"]].format(T=c.settings["segment_length"], L=c.settings["length"]),
            f" {MEAN} {_active_parameters(c)}",
            UNCERTAINTY,
        ),
    )


def _verdict(c: QuickstartFiles) -> str:
    """The headline; it names a winner only where `is_clear`."""
    scores = "perplexity {1:.2f} against {0:.2f}".format(*c.counted.means)
    mixture, dense = f"the {c.design} mixture", "the dense model"
    overall = c.differences[OVERALL]
    if c.settings["causality"] == "none":
        return f"{sentence_case(mixture)} sees later tokens, so its perplexity does not compare: {scores}"
    if not is_clear(overall):
        return f"{sentence_case(NO_CLEAR_DIFFERENCE)} between {mixture} and {dense}: {scores}"
    better, worse = mixture, dense
    if overall.change > 0:
        better, worse = worse, better
    return f"With one seed, {better} predicts unseen text better than {worse}: {scores}"


def _domains(c: QuickstartFiles) -> str:
    """The domains in which the mixture is better, worse or undecided, by their intervals."""
    domains = {name: difference for name, difference in c.differences.items() if name != OVERALL}
    if c.settings["causality"] == "none" or not domains:  # a single domain may be called OVERALL
        return ""
    clear = {name: difference.change for name, difference in domains.items() if is_clear(difference)}
    decided = {
        "lower in": [name for name, change in clear.items() if change < 0],
        "higher in": [name for name, change in clear.items() if change > 0],
        "undecided in": [name for name in domains if name not in clear],
    }
    return f"It is {'; '.join(f'{word} {listing(names)}' for word, names in decided.items() if names)}."


def _active_parameters(c: QuickstartFiles) -> str:
    """A remark where the mixture computes more for a token than the dense model does."""
    ratio = c.results["parameters"][f"{c.design}_active"] / c.results["parameters"][DENSE]
    return f"For each token {c.design} uses {ratio:.2f} times the dense parameters. " if ratio > 1.05 else ""


def setup_section(c: QuickstartFiles) -> Html:
    """The two models, the documents and the machine."""
    s, parameters, rates = c.settings, c.results["parameters"], c.settings["learning_rates"]
    dense, total, active = (
        large(parameters[k]) for k in ("dense", f"{c.design}_total", f"{c.design}_active")
    )
    models = [
        ["parameters", dense, total],
        ["parameters active for a token", dense, active],
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
                    f"Each step trains on {s['batch_size']} instances. An instance is {s['length']:,} tokens "
                    f"of concatenated documents{segments}."
                ),
                p.note(f"Both models: {shape}. Seed {s['seed']}."),
                p.note(f"Machine: {machine}."),
            ),
        ),
        p.table(["domain", "documents", "characters", "held-out documents", "characters"], texts),
    )


def _amount(part: Mapping[str, int] | None) -> list[str]:
    return [f"{part['documents']:,}", large(part["characters"])] if part else [NO_VALUE, NO_VALUE]


def perplexity_section(c: QuickstartFiles) -> Html:
    """Perplexity by domain as bars and tables: of the compared tokens, and of all if these differ."""
    views = {"Tokens after the first segment, as compared above": c.counted} if c.segmented else {}
    views["All tokens"] = c.whole
    return p.join(
        p.paragraph(f"Lower is better. {MEAN}"),
        p.pair(*(_view(c, name, scores) for name, scores in views.items())),
    )


def _view(c: QuickstartFiles, name: str, scores: Perplexities) -> Html:
    """Perplexity of some tokens by domain; intervals belong to the compared tokens."""
    differences = c.differences if scores == c.counted else {}
    rows = [_row(d, scores.dense[d], scores.mixture[d], differences.get(d)) for d in scores.dense]
    rows.append(_row("mean", *scores.means, differences.get(OVERALL)))
    columns = ["domain", DENSE, c.design, "difference", *(["95 % interval"] if differences else [])]
    return p.join(
        p.element("h3", name),
        p.figure(
            plots.perplexity_bars(scores.dense, scores.mixture, c.design),
            f"Held-out perplexity by domain, with the difference of {c.design} to dense.",
        ),
        p.table(columns, rows),
    )


def _row(name: str, dense: float, mixture: float, difference: Difference | None) -> list[str]:
    bounds = [interval(difference)] if difference else []
    return [name, f"{dense:.2f}", f"{mixture:.2f}", percent(mixture / dense - 1), *bounds]


def similar_documents_section(c: QuickstartFiles, neighbors: Sequence[Mapping[str, Any]]) -> Html:
    """How similar the documents of an instance are, and some documents with their nearest neighbours."""
    order = c.results["order"]
    examples = [document_and_nearest(document) for document in neighbors]
    drawn = {name: cosine(mean, ALONE) for name, mean in order.items()}
    if any(ALONE in mean for mean in drawn.values()):
        listed = listing([f"in {name} order {mean}" for name, mean in drawn.items()])
        return p.join(
            p.paragraph(f"Mean cosine similarity of documents that share an instance: {listed}."), *examples
        )
    return p.join(
        p.pair(
            p.paragraph(
                "Documents are ordered so that similar ones follow each other, then concatenated and cut "
                "into instances. The mean cosine similarity of documents that share an instance is ",
                p.strong(drawn["similar"]),
                f", against {drawn['random']} in random order. A router that decides by earlier text "
                "learns from text that says something about what follows.",
            ),
            p.figure(
                plots.bars(order, [f"{mean:.3f}" for mean in order.values()]),
                "Mean cosine of documents that share an instance, by order.",
            ),
        ),
        *examples[:1],
        p.folded("More documents and their nearest neighbours", *examples[1:]) if examples[1:] else "",
    )


def samples_section(c: QuickstartFiles, texts: Sequence[Mapping[str, str]]) -> Html | None:
    """How both models continue the same prompts; None without any."""
    if not texts:
        return None
    lead = "Both models continue the same prompts. Models this small write the form of a text, not its sense."
    return p.join(p.paragraph(lead), *(part for text in texts for part in _sample(c, text)))


def _sample(c: QuickstartFiles, text: Mapping[str, str]) -> Iterator[Html]:
    yield p.element("h3", text["domain"])
    yield p.quotation("prompt", text["prompt"])
    yield p.pair(p.quotation(DENSE, text[DENSE]), p.quotation(c.design, text[c.design]))


def cost_section(c: QuickstartFiles) -> Html:
    """Time and memory of each stage, the longest first, and the speed of both trainings."""
    seconds = dict(sorted(c.results["seconds"].items(), key=lambda stage: -stage[1]))
    peaks = c.settings["peak_memory_bytes"]
    stages = {**seconds, "all": sum(seconds.values())}
    peaks = {**peaks, "all": max(peaks.values())}
    rows = [[stage, duration(s), byte_size(peaks[stage])] for stage, s in stages.items()]
    dense, mixture = (_speed(c.metrics[model]) for model in (DENSE, c.design))
    speeds = p.paragraph(
        f"In training, {c.design} processed {large(mixture)} tokens a second and the dense model "
        f"{large(dense)} (medians over {c.settings['steps']:,} steps, one training after the other): "
        f"{mixture / (dense or 1):.2f} of the dense model's speed. Other work on the "
        "machine changes this; `loriini bench` measures it side by side."
    )
    return p.join(
        speeds if dense and mixture else "",
        p.pair(
            p.figure(
                plots.bars(seconds, list(map(duration, seconds.values()))),
                "Where the time went, the longest stage first.",
            ),
            p.table(["stage", "time", "peak memory by its end"], rows),
        ),
    )


def _speed(metrics: Metrics) -> float:
    """Median tokens a second over the steps with the final number of experts; 0 without steps."""
    return median(
        [m["tokens_per_second"] for m in metrics if m["experts"] == metrics[-1]["experts"]] or [0.0]
    )
