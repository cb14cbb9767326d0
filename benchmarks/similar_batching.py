"""The papers' central experiment: {dense, Lory} × {similar, random order}, several seeds.

    python benchmarks/similar_batching.py --text FOLDER --out WORK --results benchmarks/results/similar_batching.json

FOLDER holds `DOMAIN.train.jsonl.zst` and `DOMAIN.heldout.jsonl.zst` of five domains.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from experiment import collect, make_corpora, run_grid, run_one

from loriini.recipes import quickstart_run
from loriini.train.run import Run

CHARACTERS, VOCAB_SIZE, LENGTH = 20_000_000, 2048, 512


def grid(out: Path, steps: int) -> dict[str, Run]:
    """The four cells."""
    return {
        f"{design}-{order}": replace(
            quickstart_run(design, "small", steps, 0), batch_size=8, corpus=((out / order).resolve(),)
        )
        for design in ("dense", "lory")
        for order in ("similar", "random")
    }


def main() -> None:
    """Run what is not done yet, then write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    runs = grid(a.out, a.steps)
    skip = runs["lory-similar"].routing.segment_length
    if a.only:
        run_one(replace(runs[a.only], seed=a.seed), a.out / "runs" / f"{a.only}-{a.seed}", skip)
        return
    make_corpora(a.text, a.out, ("similar", "random"), LENGTH, VOCAB_SIZE, CHARACTERS)
    run_grid(__file__, a.out, list(runs), range(a.seeds), a.jobs)
    collect(
        a.out, runs, range(a.seeds), skip, a.results, experiment="similar_batching", characters=CHARACTERS
    )


if __name__ == "__main__":
    main()
