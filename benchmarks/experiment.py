"""A grid of runs on the same text: trained, evaluated and written down; the experiments share it.

Runs are independent folders, so an interrupted experiment goes on where it stopped.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from loriini.data.artifact import load, write_json
from loriini.data.documents import stored_documents, write_documents
from loriini.data.prepare import PrepareSettings, prepare_documents
from loriini.data.split import split_documents
from loriini.evaluate.perplexity import evaluate, tokenize_by_domain
from loriini.model.loading import load_model
from loriini.train.command import read_corpora
from loriini.train.hardware import describe_machine
from loriini.train.loop import train
from loriini.train.metrics import METRICS, read_metrics
from loriini.train.run import Run

DOMAINS = ("arxiv", "books", "wiki", "web", "python")


def make_corpora(
    text: Path, out: Path, orders: Sequence[str], length: int, vocab_size: int, characters: int
) -> None:
    """The same chunks of the five domains in every order, and their held-out text."""
    files = [str(text / f"{domain}.{side}.jsonl.zst") for domain in DOMAINS for side in ("train", "heldout")]
    sides = split_documents(files, characters, characters // 10)
    write_documents(out / "heldout", lambda skipped: sides["heldout"], {"side": "heldout"})
    tokenizer: Path | None = None
    for order in orders:
        settings = PrepareSettings(
            tokenizer=f"bpe:{vocab_size}", length=length, order=order, max_characters=1200, workers=2
        )
        corpus = prepare_documents(
            out / order, lambda skipped: sides["train"], {"characters": str(characters)}, settings, tokenizer
        )
        tokenizer = tokenizer or corpus.tokenizer


def run_one(run: Run, out: Path, skip: int) -> dict[str, Any]:
    """Train and evaluate one run; every model's perplexity skips the same first tokens of an instance."""
    torch.set_num_threads(1)
    corpora = run.corpus[0].parent
    train(run, read_corpora(run.corpus), out)
    path = out / "evaluation.json"
    if not path.exists():
        model, tokenizer = load_model(out)
        heldout = tokenize_by_domain(stored_documents(load(corpora / "heldout")), tokenizer, run.length)
        write_json(path, evaluate(model, heldout, skip=skip))
    metrics = read_metrics(out / METRICS)
    evaluation = json.loads(path.read_text())
    last = [m["loss"] for m in metrics[-50:]]
    return {
        "perplexity": evaluation["perplexity"],
        "perplexity_all": evaluation["perplexity_all"],
        "mean_perplexity": sum(evaluation["perplexity"].values()) / len(evaluation["perplexity"]),
        "training_loss": sum(last) / len(last),
        "losses": [
            round(sum(m["loss"] for m in metrics[i : i + 25]) / 25, 4) for i in range(0, len(metrics), 25)
        ],
        "tokens": metrics[-1]["tokens"],
    }


def run_grid(script: str, out: Path, names: Sequence[str], seeds: Sequence[int], jobs: int) -> None:
    """Run every (name, seed) of an experiment's script in processes of one thread each, `jobs` at once."""

    def start(task: tuple[str, int]) -> None:
        name, seed = task
        command = [sys.executable, script, "--out", str(out), "--only", name, "--seed", str(seed)]
        subprocess.run(command, check=True)
        print(f"{time.strftime('%H:%M:%S')} {name} seed {seed} done", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start, [(name, seed) for seed in seeds for name in names]))


def collect(
    out: Path, runs: Mapping[str, Run], seeds: Sequence[int], skip: int, results: Path, **about: Any
) -> None:
    """Write every finished run's figures, the settings that made them and the machine to `results`."""
    rows = [
        {
            "name": name,
            "seed": seed,
            **run_one(replace(run, seed=seed), out / "runs" / f"{name}-{seed}", skip),
        }
        for name, run in runs.items()
        for seed in seeds
    ]
    write_json(
        results,
        {
            **about,
            "date": time.strftime("%Y-%m-%d"),
            "machine": describe_machine(),
            "runs": {name: _portable(run) for name, run in runs.items()},
            "skipped_tokens": skip,
            "results": rows,
        },
    )


def _portable(run: Run) -> dict[str, Any]:
    """A run without the paths of this machine."""
    return {**run.to_dict(), "corpus": [path.name for path in run.corpus]}
