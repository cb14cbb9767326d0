"""Results of the quickstart: `results.json`, `settings.json` and the final table."""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine
from loriini.data.jobs.artifact import Artifact, load_artifact
from loriini.data.prepare.prepare import Corpus
from loriini.data.prepare.text.stored import stored_documents
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.model.weights.loading import load_config
from loriini.quickstart.settings import DENSE, Quickstart
from loriini.reporting.wording import NO_CLEAR_DIFFERENCE, amount, interval, is_clear, percent
from loriini.train.records.metrics import METRICS, read_records

RESULTS = "results.json"
SIDES = ("train", "heldout")
LAST_STEPS = 50
"""Steps at the end of training whose mean loss is reported."""

SCOPE = (
    "The interval covers the choice of documents, not that of the files or packages they come from, nor the "
    "seed, which matters most after few steps: repeat with --seed 1 and another --out."
)

Evaluations = Mapping[str, Mapping[str, Any]]
"""What `evaluate` returned, by model."""
Costs = Mapping[str, Mapping[str, Any]]
"""`Stages.costs()`."""


def write_results(
    out: Path,
    settings: Quickstart,
    corpus: Corpus,
    evaluations: Evaluations,
    differences: Mapping[str, Difference],
    costs: Costs,
) -> None:
    """Write `results.json` (keys: docs/files.md) and `settings.json`, what the report needs besides."""
    design, run = settings.design, settings.runs[settings.design]
    folders = {name: out / "runs" / name for name in settings.runs}
    configs = {name: load_config(folder) for name, folder in folders.items()}
    total, active = configs[design].parameters()
    results = {
        **{
            name: {
                "perplexity": evaluations[name]["perplexity"],
                "perplexity_all": evaluations[name]["perplexity_all"],
                "loss": final_loss(folder),
            }
            for name, folder in folders.items()
        },
        "difference": {name: difference.to_dict() for name, difference in differences.items()},
        "skip": evaluations[design]["skip"],
        "parameters": {
            DENSE: configs[DENSE].parameters()[0],
            f"{design}_total": total,
            f"{design}_active": active,
        },
        "tokens": {
            "train": run.steps * run.batch_size * run.length,
            "heldout": sum(evaluations[design]["tokens"].values()),
        },
        "seconds": {name: round(cost["seconds"], 1) for name, cost in costs.items()},
        "order": corpus.manifest["shared_instance_cosine"],
    }
    write_json(out / RESULTS, results)
    write_json(out / "settings.json", report_settings(out, settings, corpus, costs))


def report_settings(out: Path, settings: Quickstart, corpus: Corpus, costs: Costs) -> dict[str, Any]:
    """What the report needs besides the results: both models, the documents, the machine."""
    design, run = settings.design, settings.runs[settings.design]
    return {
        "design": design,
        "size": {"name": settings.size, **asdict(run.model)},
        "num_experts": run.model.num_experts,
        "segment_length": run.routing.segment_length,
        "length": run.length,
        "steps": run.steps,
        "batch_size": run.batch_size,
        "learning_rates": {name: r.optimizer.learning_rate for name, r in settings.runs.items()},
        "seed": settings.seed,
        "inputs": list(settings.documents),
        "text_field": settings.text_field,
        "domain_field": settings.domain_field,
        "on_error": settings.on_error,
        "causality": run.routing.causality,
        "machine": describe_machine(),
        "documents": {
            side: domain_sizes(load_artifact(out / "corpora" / side / "documents")) for side in SIDES
        },
        "corpus_tokens": corpus.manifest["stages"]["tokens"]["counts"]["tokens"],
        "peak_memory_bytes": {name: cost["peak_memory_bytes"] for name, cost in costs.items()},
    }


def final_loss(run: Path) -> float:
    """Mean training loss of a run's last steps; steps without a finite loss are left out."""
    losses = [step["loss"] for step in read_records(run / METRICS)]
    return float(np.nanmean(np.array(losses[-LAST_STEPS:], dtype=float)))


def domain_sizes(documents: Artifact) -> dict[str, dict[str, int]]:
    """{domain: {"documents", "characters"}} of stored documents."""
    counts, characters = Counter[str](), Counter[str]()
    for document in stored_documents(documents):
        counts[document.domain] += 1
        characters[document.domain] += len(document.text)
    return {domain: {"documents": counts[domain], "characters": characters[domain]} for domain in counts}


def print_table(evaluations: Evaluations, differences: Mapping[str, Difference], design: str) -> None:
    """Print both models' perplexity by domain, the differences, and no more than their intervals show."""
    dense, mixture = evaluations[DENSE]["perplexity"], evaluations[design]["perplexity"]
    rows = [(domain, dense[domain], mixture[domain], differences[domain]) for domain in dense]
    rows.append(("mean", fmean(dense.values()), fmean(mixture.values()), differences[OVERALL]))
    table = Table()
    for column in ("domain", DENSE, design, "change", "95 % interval"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    for name, before, after, difference in rows:
        perplexities = (f"{before:.2f}", f"{after:.2f}")
        table.add_row(name, *perplexities, percent(difference.change), interval(difference))
    skip = evaluations[design]["skip"]
    skipped = f" without the first {skip} tokens of each instance" if skip else ""
    width = None if sys.stdout.isatty() else 80
    output = Console(width=width, markup=False, emoji=False, highlight=False)
    output.print(f"Perplexity of held-out text{skipped}", table, sep="\n")
    if evaluations[design]["causality"] == "none":
        output.print(
            f"{design} sees later tokens, so its perplexity does not compare with the dense model's."
        )
    else:
        output.print(f"{design} relative to {DENSE}: {verdict(differences[OVERALL])}. {SCOPE}")


def verdict(difference: Difference) -> str:
    """What a difference shows: `3.1 % lower, 95 % interval −4.2 to −2.0 %`, or `no clear difference, …`."""
    direction = "lower" if difference.change < 0 else "higher"
    shown = f"{amount(difference.change)} {direction}" if is_clear(difference) else NO_CLEAR_DIFFERENCE
    return f"{shown}, 95 % interval {interval(difference)}"
