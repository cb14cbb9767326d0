"""The main job: text, a dense model and a mixture of the same active size, and what the mixture gained."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from loriini.analyze.report import write_report
from loriini.analyze.routes import routes_by_domain
from loriini.atomic import write_json
from loriini.corpus.documents import write_documents
from loriini.corpus.inspection import neighbor_examples
from loriini.corpus.prepare import Corpus, PrepareSettings, order_cosines, prepare_documents
from loriini.corpus.stored import stored_documents
from loriini.errors import InputError
from loriini.evaluate.perplexity import HeldOut, check_label, evaluate, first_segment, tokenize_by_domain
from loriini.evaluate.samples import continue_text
from loriini.hardware import describe_machine, peak_resident
from loriini.jobs.artifact import Artifact, load_artifact
from loriini.model import LoriiniConfig
from loriini.model.loading import load_model
from loriini.progress import console
from loriini.recipes import SIZES, quickstart_run
from loriini.routing import DESIGNS
from loriini.sources import input_identity
from loriini.sources.document import Document
from loriini.sources.local_text import collect_local_text
from loriini.sources.split import split_documents
from loriini.train.corpora import read_corpora
from loriini.train.loop import train
from loriini.train.metrics import METRICS, read_metrics
from loriini.train.run import Run

TRAIN_CHARACTERS, HELDOUT_CHARACTERS = 40_000_000, 2_000_000
PROMPT_TOKENS, SAMPLE_TOKENS = 48, 64
HELDOUT_INSTANCES = 160  # of each domain: some 80,000 tokens
SIDES = ("train", "heldout")


@dataclass(frozen=True)
class Quickstart:
    """The settings of the main job. `steps` 0 takes the size's own. InputError for a wrong one."""

    documents: tuple[str, ...] = ()
    design: str = "lory"
    size: str = "small"
    steps: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(map(str, self.documents)))
        for name, table in (("size", SIZES), ("design", DESIGNS)):
            value = getattr(self, name)
            if value not in table:
                raise InputError(f"--{name} {value}: there is none of this name; choose {', '.join(table)}")
        if self.design == "dense":
            raise InputError("--design dense: the dense model is trained anyway; choose a mixture")
        if self.steps < 0:
            raise InputError(f"--steps {self.steps}: give a positive number of steps")
        quickstart_run(self.design, self.size, self.steps, self.seed).check()


def run_quickstart(settings: Quickstart, out: Path) -> None:
    """Do the whole job in the folder `out`; finished stages are not done again."""
    claim(settings, out)
    console.print(f"Everything goes to {out}", markup=False, highlight=False, soft_wrap=True)
    sides = cache(lambda: read_sides(settings))
    with stage(out, "gather documents"):
        heldout = write_documents(
            out / "corpora/heldout/documents",
            lambda drop: sides()["heldout"],
            {"side": "heldout"},
            input_identity(settings.documents),
        )
    with stage(out, "prepare corpus"):
        corpus = prepare_documents(
            out / "corpora/train",
            lambda drop: sides()["train"],
            input_identity(settings.documents),
            corpus_settings(settings),
        )
    runs = {
        "dense": quickstart_run("dense", settings.size, settings.steps, settings.seed),
        settings.design: quickstart_run(settings.design, settings.size, settings.steps, settings.seed),
    }
    check_labels(runs[settings.design], corpus, heldout)
    for name, run in runs.items():
        run = replace(run, corpus=(corpus.folder.resolve(),))
        with stage(out, f"train {run.name}"):
            train(run, read_corpora(run.corpus), out / "runs" / name)
    with stage(out, "evaluate and analyze"):
        texts = heldout_texts(heldout, out, runs["dense"].length)
        skip = first_segment(LoriiniConfig.from_pretrained(out / "runs" / settings.design / "model"))
        evaluations = {name: evaluate_run(out / "runs" / name, texts, skip) for name in runs}
        write_samples(out, tuple(runs), texts)
        write_json(out / "neighbors.json", neighbor_examples(corpus))
    write_results(out, settings, runs, corpus, evaluations)
    print_summary(json.loads((out / "results.json").read_text()), settings.design)
    print(write_report(out))


def claim(settings: Quickstart, out: Path) -> None:
    """Make `out` this job's; InputError when it holds something else."""
    path = out / "quickstart.json"
    wanted = json.loads(json.dumps(asdict(settings)))
    if path.exists():
        there = json.loads(path.read_text())
        changed = ", ".join(sorted(k for k in wanted if there.get(k) != wanted[k]))
        if changed and (out / "corpora").exists():
            raise InputError(f"{path}: this folder holds a job with other {changed}; choose another --out")
        if not changed:
            return
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: is there and is not a quickstart's folder; choose another --out")
    input_identity(settings.documents)  # complains of a missing path before anything is made
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, wanted)


@contextmanager
def stage(out: Path, name: str) -> Iterator[None]:
    """Add a stage's seconds, over interruptions too, and the memory peak by its end to `stages.json`."""
    path = out / "stages.json"
    started = time.perf_counter()
    try:
        yield
    finally:
        stages = json.loads(path.read_text()) if path.exists() else {}
        before = stages.get(name, {"seconds": 0.0, "peak_memory_bytes": 0})
        stages[name] = {
            "seconds": before["seconds"] + time.perf_counter() - started,
            "peak_memory_bytes": max(peak_resident(), before["peak_memory_bytes"]),
        }
        write_json(path, stages)


def read_sides(settings: Quickstart) -> dict[str, list[Document]]:
    """The documents to train on and those held out: the user's, or what is on this machine."""
    if not settings.documents:
        console.print("Gathering text from the running Python installation …")
        return collect_local_text()
    return split_documents(settings.documents, TRAIN_CHARACTERS, HELDOUT_CHARACTERS)


def corpus_settings(settings: Quickstart) -> PrepareSettings:
    """How the training documents become instances."""
    run = quickstart_run(settings.design, settings.size, settings.steps, settings.seed)
    return PrepareSettings(
        documents=settings.documents,
        tokenizer=f"bpe:{SIZES[settings.size].vocab_size}",
        length=run.length,
        seed=settings.seed,
        workers=torch.get_num_threads(),
    )


def check_labels(run: Run, corpus: Corpus, heldout: Artifact) -> None:
    """InputError where the mixture routes by label and a domain has no expert, or no text to train on."""
    names = run.label_names(corpus.instances)
    run.check(names)
    if names:
        for document in stored_documents(heldout):
            check_label(document, names)


def heldout_texts(heldout: Artifact, out: Path, length: int) -> dict[str, HeldOut]:
    """The held-out documents as instances, by domain."""
    _, tokenizer = load_model(out / "runs/dense")
    return tokenize_by_domain(stored_documents(heldout), tokenizer, length, HELDOUT_INSTANCES)


def evaluate_run(run: Path, texts: Mapping[str, HeldOut], skip: int) -> dict[str, Any]:
    """One model's `evaluation.json` and, of a mixture, `routes.npz`; both models skip the same tokens."""
    path = run / "evaluation.json"
    if not path.exists():
        model, _ = load_model(run)
        results = evaluate(model, texts, skip)
        if model.config.num_experts > 1:
            ids = {domain: text.ids for domain, text in texts.items()}
            routes_by_domain(model, ids).save(run / "routes.npz")
        write_json(path, results)
    evaluation: dict[str, Any] = json.loads(path.read_text())
    return evaluation


def write_samples(out: Path, names: tuple[str, ...], texts: Mapping[str, HeldOut]) -> None:
    """`samples.json`: for each domain the start of a held-out text, and how both models go on."""
    path = out / "samples.json"
    if path.exists():
        return
    models = {name: load_model(out / "runs" / name) for name in names}
    tokenizer = models["dense"][1]
    samples = []
    for domain, text in texts.items():
        prompt = tokenizer.decode(text.ids[len(text.ids) // 2, :PROMPT_TOKENS], skip_special_tokens=True)
        written = {
            name: continue_text(model, tokenizer, prompt, SAMPLE_TOKENS, label=domain)
            for name, (model, _) in models.items()
        }
        samples.append({"domain": domain, "prompt": prompt, **written})
    write_json(path, samples)


def write_results(
    out: Path,
    settings: Quickstart,
    runs: Mapping[str, Run],
    corpus: Corpus,
    evaluations: Mapping[str, dict[str, Any]],
) -> None:
    """`results.json`, exactly the contract's, and `settings.json`, what else the report tells."""
    stages = json.loads((out / "stages.json").read_text())
    configs = {name: LoriiniConfig.from_pretrained(out / "runs" / name / "model") for name in runs}
    losses = {name: [m["loss"] for m in read_metrics(out / "runs" / name / METRICS)] for name in runs}
    cosines = order_cosines(corpus)
    design, run = settings.design, runs[settings.design]
    results = {
        **{
            name: {
                "perplexity": evaluations[name]["perplexity"],
                "perplexity_all": evaluations[name]["perplexity_all"],
                "loss": float(np.nanmean(np.array(losses[name][-50:], dtype=float))),
            }
            for name in runs
        },
        "parameters": {
            "dense": configs["dense"].parameters()[0],
            f"{design}_total": configs[design].parameters()[0],
            f"{design}_active": configs[design].parameters()[1],
        },
        "tokens": {
            "train": run.steps * run.batch_size * run.length,
            "heldout": sum(evaluations[design]["tokens"].values()),
        },
        "seconds": {name: round(measured["seconds"], 1) for name, measured in stages.items()},
        "order": {"random": cosines["random"], "similar": cosines["similar"]},
    }
    write_json(out / "results.json", results)
    documents = {side: domain_sizes(load_artifact(out / "corpora" / side / "documents")) for side in SIDES}
    write_json(
        out / "settings.json",
        {
            "design": design,
            "size": {"name": settings.size, **asdict(run.model)},
            "num_experts": run.model.num_experts,
            "segment_length": run.routing.segment_length,
            "length": run.length,
            "steps": run.steps,
            "batch_size": run.batch_size,
            "learning_rates": {name: r.optimizer.learning_rate for name, r in runs.items()},
            "seed": settings.seed,
            "causality": run.routing.causality,
            "machine": describe_machine(),
            "documents": documents,
            "corpus_tokens": corpus.manifest["stages"]["tokens"]["counts"]["tokens"],
            "peak_memory_bytes": {name: measured["peak_memory_bytes"] for name, measured in stages.items()},
        },
    )


def domain_sizes(stored: Artifact) -> dict[str, dict[str, int]]:
    """How many documents and characters each domain holds."""
    documents, characters = Counter[str](), Counter[str]()
    for document in stored_documents(stored):
        documents[document.domain] += 1
        characters[document.domain] += len(document.text)
    return {
        domain: {"documents": documents[domain], "characters": characters[domain]} for domain in documents
    }


def print_summary(results: Mapping[str, Any], design: str) -> None:
    """The final table, on standard output."""
    dense, mixture = results["dense"]["perplexity"], results[design]["perplexity"]
    table = Table()
    for column in ("domain", "dense", design, "change"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    means = (float(np.mean(list(dense.values()))), float(np.mean(list(mixture.values()))))
    rows = [(domain, dense[domain], mixture[domain]) for domain in dense]
    for domain, before, after in [*rows, ("mean", *means)]:
        table.add_row(domain, f"{before:.2f}", f"{after:.2f}", f"{after / before - 1:+.1%}")
    output = Console(width=None if sys.stdout.isatty() else 80)
    left_out = ", segment 1 left out" if mixture != results[design]["perplexity_all"] else ""
    output.print(f"Perplexity of held-out text{left_out}")
    output.print(table)
