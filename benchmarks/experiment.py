"""A grid of runs on the same text: trained, evaluated and written down; the experiments share it.

Runs are independent folders, so an interrupted experiment goes on where it stopped.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from loriini.atomic import write_json
from loriini.corpus.documents import write_documents
from loriini.corpus.prepare import prepare_documents
from loriini.corpus.settings import PrepareSettings
from loriini.corpus.stored import stored_documents
from loriini.evaluate.perplexity import evaluate, tokenize_by_domain
from loriini.hardware import describe_machine
from loriini.jobs.artifact import load_artifact
from loriini.model.loading import load_model
from loriini.sources.split import split_documents
from loriini.train.corpora import read_corpora
from loriini.train.loop import train
from loriini.train.metrics import METRICS, read_metrics
from loriini.train.run import Run

DOMAINS = ("arxiv", "books", "wiki", "web", "python")
CHARACTERS, VOCAB_SIZE = 20_000_000, 2048
SKIPPED_TOKENS = 128  # the longest segment of the grids


def make_corpora(
    text: Path, out: Path, orders: Sequence[str], length: int, longest: int | None = None
) -> None:
    """The same whole documents of the five domains in every order, and their held-out text.

    Documents of more than `longest` characters are left out; None: none are.
    """
    files = [str(text / f"{domain}.{side}.jsonl.zst") for domain in DOMAINS for side in ("train", "heldout")]
    sides = split_documents(files, CHARACTERS, CHARACTERS // 10, longest=longest)
    write_documents(out / "heldout", lambda drop: sides["heldout"], {"side": "heldout"})
    tokenizer: Path | None = None
    for order in orders:
        settings = PrepareSettings(
            tokenizer=f"bpe:{VOCAB_SIZE}",
            length=length,
            order=order,
            workers=2,
        )
        corpus = prepare_documents(
            out / order,
            lambda drop: sides["train"],
            {"characters": str(CHARACTERS), "longest": str(longest)},
            settings,
            tokenizer,
        )
        tokenizer = tokenizer or corpus.tokenizer


def run_one(run: Run, out: Path) -> dict[str, Any]:
    """Train and evaluate one run; every model's perplexity skips the same first tokens of an instance."""
    torch.set_num_threads(1)
    corpora = run.corpus[0].parent
    train(run, read_corpora(run.corpus), out)
    path = out / "evaluation.json"
    if not path.exists():
        model, tokenizer = load_model(out)
        heldout = tokenize_by_domain(
            stored_documents(load_artifact(corpora / "heldout")), tokenizer, run.length
        )
        write_json(path, evaluate(model, heldout, skip=SKIPPED_TOKENS))
    metrics = read_metrics(out / METRICS)
    evaluation = json.loads(path.read_text())
    losses = [m["loss"] for m in metrics]
    later = [m["tokens_per_second"] for m in metrics[len(metrics) // 2 :]]
    return {
        "perplexity": evaluation["perplexity"],
        "perplexity_all": evaluation["perplexity_all"],
        "mean_perplexity": sum(evaluation["perplexity"].values()) / len(evaluation["perplexity"]),
        "causality": evaluation["causality"],
        "training_loss": mean(losses[-50:]),
        "losses": [round(mean(losses[i : i + 25]), 4) for i in range(0, len(losses), 25)],
        "tokens_per_second": median(later),
        "tokens": metrics[-1]["tokens"],
        **{
            name: [round(mean(layer), 4) for layer in zip(*(m[name] for m in metrics[-50:]), strict=True)]
            for name in ("gate_entropy", "load_entropy")
            if name in metrics[-1]
        },
    }


def experiment(
    script: str,
    grid: Callable[[Path, int], dict[str, Run]],
    orders: Sequence[str],
    steps: int,
    length: int = 512,
    longest: int | None = None,
    **about: Any,
) -> Path:
    """The command line of an experiment: make its corpora, run its grid, write its results; their path.

    Every (run, seed) is a process of one thread, `--jobs` of them at once.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True, help="folder of DOMAIN.{train,heldout}.jsonl.zst")
    parser.add_argument("--out", type=Path, required=True, help="where corpora and runs are made")
    parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--add", action="store_true", help="keep the rows in RESULTS; run those it lacks")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    a = parser.parse_args()
    runs = grid(a.out, a.steps)
    if a.only:
        run_one(replace(runs[a.only], seed=a.seed), a.out / "runs" / f"{a.only}-{a.seed}")
        return a.results
    make_corpora(a.text, a.out, orders, length, longest)

    def start(task: tuple[str, int]) -> None:
        name, seed = task
        options = [
            "--text",
            a.text,
            "--out",
            a.out,
            "--results",
            a.results,
            "--steps",
            a.steps,
            "--only",
            name,
            "--seed",
            seed,
        ]
        subprocess.run([sys.executable, script, *map(str, options)], check=True)
        print(f"{time.strftime('%H:%M:%S')} {name} seed {seed}", flush=True)

    before = json.loads(a.results.read_text()) if a.add else {"runs": {}, "results": []}
    kept = {(row["name"], row["seed"]) for row in before["results"]}
    tasks = [(name, seed) for seed in range(a.seeds) for name in runs if (name, seed) not in kept]
    with ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(start, tasks))
    about |= {"longest_document_characters": longest}
    collect(a.out, runs, tasks, a.results, before, **about)
    return a.results


def collect(
    out: Path,
    runs: Mapping[str, Run],
    tasks: Iterable[tuple[str, int]],
    results: Path,
    before: Mapping[str, Any],
    **about: Any,
) -> None:
    """Write every finished run's figures, the settings that made them and the machine to `results`.

    The rows and settings of `before`, an older file, stay as they are; every row has its own date.
    """
    today = time.strftime("%Y-%m-%d")
    rows = [{"date": before.get("date"), **row} for row in before["results"]]
    for name, seed in tasks:
        row = run_one(replace(runs[name], seed=seed), out / "runs" / f"{name}-{seed}")
        rows.append({"name": name, "seed": seed, "date": today, **row})
    results.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        results,
        {
            **about,
            "date": today,
            "machine": describe_machine(),
            "runs": {name: _portable(run) for name, run in runs.items()} | before["runs"],
            "skipped_tokens": SKIPPED_TOKENS,
            "characters": CHARACTERS,
            "results": sorted(rows, key=lambda row: (list(runs).index(row["name"]), row["seed"])),
        },
    )


def _portable(run: Run) -> dict[str, Any]:
    """A run without the paths of this machine."""
    return {**run.to_dict(), "corpus": [path.name for path in run.corpus]}
