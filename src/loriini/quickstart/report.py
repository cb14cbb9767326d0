"""What the quickstart found, and `report.html`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from statistics import fmean
from typing import Any

from loriini.analyze.routes import ROUTES, Routes
from loriini.analyze.sections import document_and_nearest, expert_use_plots, who_routes_where
from loriini.common.extension import extension_arguments
from loriini.compare import figures
from loriini.compare.report import learning_section
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.quickstart.settings import DENSE, QuickstartSettings, documents_file
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import (
    NO_CLEAR_DIFFERENCE,
    NO_VALUE,
    duration,
    interval,
    is_clear,
    large,
    listing,
    percent,
    scored_tokens,
    sentence_case,
    shared_instance_cosine,
)
from loriini.train.records.metrics import METRICS, read_records

CAUSALITY = {
    "strict": "Every token is predicted from earlier tokens alone.",
    "after_first_segment": "The mixture routes the first {skip} tokens of an instance by themselves, which "
    "reveals a little of what is to be predicted: they are left out for both models.",
    "none": "The mixture routes by text that includes the tokens to be predicted. Its perplexity does not "
    "compare with the dense model's.",
}
UNCERTAINTY = (
    "Intervals cover the choice of held-out documents (a paired bootstrap), not that of the seed: these are "
    "single trainings, and another seed gives another difference."
)
MEAN = "The mean is over the domains' perplexities, in which hard domains weigh more."


@dataclass(frozen=True)
class Finished:
    """A finished job: everything that the report shows."""

    settings: QuickstartSettings
    out: Path
    results: Mapping[str, Any]
    """The object in `results.json`."""
    found: Mapping[str, Any]
    """The comparison of both trainings, as `loriini compare` makes it."""
    documents: Mapping[str, Mapping[str, Mapping[str, int]]]
    """Side (train or heldout) → domain → `documents` and `characters`."""
    samples: Sequence[Mapping[str, str]]
    """A `prompt` of each `domain`, and each model's continuation."""
    neighbors: Sequence[Mapping[str, Any]]
    """Some documents, each with its nearest neighbours."""
    costs: Mapping[str, Mapping[str, Any]]
    """By stage, `seconds` and `peak_memory_bytes`."""

    @property
    def page(self) -> Path:
        return self.out / REPORT

    @property
    def design(self) -> str:
        return self.settings.design

    @property
    def causality(self) -> str:
        """The causality of the mixture when text is scored."""
        causality: str = self.found["cells"][1]["causality"]
        return causality

    @property
    def overall(self) -> Difference | None:
        """The difference of the mean perplexities over domains; None if the models cannot be compared."""
        return self._difference(OVERALL)

    @property
    def means(self) -> tuple[float, float]:
        """Perplexity of the dense model and of the mixture, each the mean over domains."""
        dense, mixture = (self.results[name]["perplexity"].values() for name in (DENSE, self.design))
        return fmean(dense), fmean(mixture)

    @property
    def columns(self) -> list[str]:
        return ["domain", DENSE, self.design, "difference", "95 % interval"]

    def rows(self) -> list[list[str]]:
        """A row of `columns` for every domain and their mean."""
        dense, mixture = (self.results[name]["perplexity"] for name in (DENSE, self.design))
        rows = [
            self._row(domain, dense[domain], mixture[domain], self._difference(domain)) for domain in dense
        ]
        return [*rows, self._row("mean", *self.means, self.overall)]

    def _row(self, name: str, dense: float, mixture: float, difference: Difference | None) -> list[str]:
        bounds = interval(difference) if difference else NO_VALUE
        return [name, f"{dense:.2f}", f"{mixture:.2f}", percent(mixture / dense - 1), bounds]

    def verdict(self) -> str:
        """The headline; it names a better model only if `is_clear`."""
        dense_mean, mixture_mean = self.means
        scores = f"perplexity {mixture_mean:.2f} against {dense_mean:.2f}"
        mixture, dense = f"the {self.design} mixture", "the dense model"
        if self.causality == "none" or self.overall is None:
            return f"{sentence_case(mixture)} sees later tokens, so its perplexity does not compare: {scores}"
        if not is_clear(self.overall):
            return f"{sentence_case(NO_CLEAR_DIFFERENCE)} between {mixture} and {dense}: {scores}"
        better, worse = (mixture, dense) if self.overall.change < 0 else (dense, mixture)
        return f"With one seed, {better} predicts unseen text better than {worse}: {scores}"

    def _difference(self, domain: str) -> Difference | None:
        values = self.results["difference"].get(domain)
        return values and Difference.from_dict(values)


def write_report(job: Finished) -> Path:
    """Write the page and return its path."""
    run = job.out / "runs" / job.design
    metrics, routing = read_records(run / METRICS), job.settings.runs[job.design].routing
    sections = {
        "What was trained, on what": _setup_section(job),
        "Learning": learning_section(job.found, job.found["variants"]),
        "Perplexity by domain": _perplexity_section(job),
        "Use of experts": expert_use_plots(metrics, routing),
        "Who routes where": who_routes_where(Routes.load(run / ROUTES)),
        "Similar documents": similar_documents_section(job),
        "Samples": _samples_section(job),
        "Time and memory": _cost_section(job),
        "What to try next": _what_next(job),
    }
    return write_page(job.page, f"Loriini: {job.design} and dense", headline(job), sections.items())


def headline(job: Finished) -> Html:
    """The result in words, as far as the interval supports it, and what was measured."""
    tokens, (_, dense, mixture, change, bounds) = job.results["tokens"], job.rows()[-1]
    parameters = job.results["parameters"]
    ratio = parameters[f"{job.design}_active"] / parameters[DENSE]
    numbers = {
        f"perplexity, {job.design}": mixture,
        "perplexity, dense": dense,
        "difference": change,
        "95 % interval": bounds,
    }
    more = f" {job.design} uses {ratio:.2f} times the dense parameters a token." if ratio > 1.05 else ""
    return p.join(
        p.element("p", "Loriini · a mixture and a dense model", class_="kicker"),
        p.element("h1", job.verdict()),
        p.paragraph(
            f"Both models were trained on {large(tokens['train'])} tokens and scored on "
            f"{large(tokens['heldout'])} tokens of text that neither has seen."
        ),
        p.cards(numbers),
        p.note(f"{CAUSALITY[job.causality].format(skip=job.results['skip'])} {MEAN}{more} {UNCERTAINTY}"),
    )


def _setup_section(job: Finished) -> Html:
    runs, parameters, machine = job.settings.runs, job.results["parameters"], job.found["machine"]
    dense, total, active = (
        large(parameters[k]) for k in (DENSE, f"{job.design}_total", f"{job.design}_active")
    )
    models = [
        ["parameters", dense, total],
        ["parameters active for a token", dense, active],
        ["experts in each layer", *(str(run.model.num_experts) for run in runs.values())],
        ["feed-forward width", *(str(run.model.intermediate_size) for run in runs.values())],
    ]
    train, heldout = job.documents[TRAIN], job.documents[HELDOUT]
    texts = [[d, *_amount(train.get(d)), *_amount(heldout.get(d))] for d in {**train, **heldout}]
    run = runs[job.design]
    return p.join(
        p.table(["", DENSE, job.design], models),
        p.note(
            f"Both: {run.model.num_hidden_layers} layers of width {run.model.hidden_size}, {run.steps:,} "
            f"steps of {run.batch_size} instances, each {run.length:,} tokens of concatenated documents, "
            f"learning rate {run.optimizer.learning_rate:g}, seed {run.seed}. Machine: "
            f"{', '.join(f'{key} {value}' for key, value in machine.items())}."
        ),
        p.table(["domain", "documents", "characters", "held-out documents", "characters"], texts),
    )


def _amount(part: Mapping[str, int] | None) -> list[str]:
    return [f"{part['documents']:,}", large(part["characters"])] if part else [NO_VALUE, NO_VALUE]


def _perplexity_section(job: Finished) -> Html:
    about = p.paragraph(f"Lower is better. Counted is {scored_tokens(job.results)}. {MEAN}")
    compared = p.join(about, p.table(job.columns, job.rows()))
    if job.overall is not None:
        caption = f"Left of 0, {job.design} predicts better than the dense model. 95 % intervals."
        drawn = figures.differences_by_domain(job.results["difference"], DENSE)
        compared = p.join(compared, p.figure(drawn, caption))
    return compared


def similar_documents_section(job: Finished) -> Html:
    """How similar the documents of an instance are, and some documents with their nearest neighbours."""
    order = {name: shared_instance_cosine(mean) for name, mean in job.results["order"].items()}
    first, *others = [document_and_nearest(document) for document in job.neighbors] or [Html()]
    return p.join(
        p.paragraph(
            "Documents are ordered so that similar ones follow each other, then concatenated and cut into "
            "instances. Mean cosine similarity of documents that share an instance: "
            f"{listing([f'{mean} in {name} order' for name, mean in order.items()])}."
        ),
        first,
        p.folded("More documents and their nearest neighbours", *others) if others else "",
    )


def _samples_section(job: Finished) -> Html:
    lead = "Both models continue the same prompts. Models this small write the form of a text, not its sense."
    parts = [p.paragraph(lead)]
    for text in job.samples:
        continued = (p.quotation(name, text[name]) for name in (DENSE, job.design))
        prompt = p.quotation("prompt", text["prompt"])
        parts += [p.element("h3", text["domain"]), prompt, p.pair(*continued)]
    return p.join(*parts)


def _cost_section(job: Finished) -> Html:
    dense, mixture = (cell["tokens_per_second"] for cell in job.found["cells"])
    rows = [
        [stage, duration(cost["seconds"]), f"{large(cost['peak_memory_bytes'])}B"]
        for stage, cost in job.costs.items()
    ]
    return p.join(
        p.paragraph(
            f"In training, {job.design} processed {large(mixture)} tokens a second and the dense model "
            f"{large(dense)} (medians over steps): {mixture / dense:.2f} of the dense model's speed. "
            "`loriini bench` measures it side by side."
        ),
        p.table(["stage", "time", "peak memory of a process by its end"], rows),
    )


def _what_next(job: Finished) -> Html:
    out, run = job.out, str(job.out / "runs" / job.design)
    by_label = job.settings.runs[job.design].routing.scorer == "label"
    label = ["--label", min(job.documents[TRAIN])] if by_label else []
    designs = [DENSE, job.design, "lory" if job.design == "mixtral" else "mixtral"]
    text = ["--corpus", str(out / "corpus"), "--heldout", str(documents_file(out, HELDOUT))]
    text += ["--contexts", "strung"] if job.settings.contexts == "strung" else []
    same = ["--recipe", job.settings.size, "--steps", str(job.settings.runs[DENSE].steps)]
    commands = {
        ("compare", *designs, *same, *text, "--out", f"{out}-compared"): "with three seeds each",
        ("lens", run, "--prompt", "The", *label, "--out", f"{out}-lens.html"): "how the experts read a text",
        ("generate", run, "--prompt", "The", *label): "continue a text",
    }
    return p.items(
        p.join(p.code(join(["loriini", *words, *extension_arguments()])), f" – {meaning}")
        for words, meaning in commands.items()
    )
