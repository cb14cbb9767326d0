"""How fast documents become tokens, beside the tokenizers library alone on the same cores.

python benchmarks/tokenising.py --text FILE… --results benchmarks/results/tokenising.json

Ours is the whole `tokens` stage: read documents, encode, write, sync. The library only encodes,
with as many threads as we have workers, texts that are in memory, in batches of the same size.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from statistics import median

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine
from loriini.data.jobs.artifact import Artifact, load_artifact
from loriini.data.jobs.processes import ProcessExecutor
from loriini.data.prepare.text.documents import document_batches, write_documents
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.prepare.tokenized.tokenizer import write_tokenizer
from loriini.data.prepare.tokenized.tokens import BATCH_CHARACTERS, write_tokens
from loriini.data.read import read_documents
from loriini.data.read.document import Document

CHARACTERS = 150_000_000
ROUNDS = 3
WORKERS = (1, 2)
TOKENIZER = "bpe:32768"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, nargs="+", default=[])
    parser.add_argument("--results", type=Path)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(encode_alone(arguments.alone))
        return
    if not arguments.text or not arguments.results:
        parser.error("give --text FILE… and --results FILE")
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments.text, Path(folder))
    write_json(arguments.results, result)
    print(json.dumps(result, indent=1))


def measure(paths: list[Path], folder: Path) -> dict:
    documents = write_documents(folder / "documents", lambda skipped: sample(paths), {})
    tokenizer = write_tokenizer(folder / "tokenizer", TOKENIZER, documents)
    rows = []
    for workers in WORKERS:
        ours, library = [], []
        for number in range(ROUNDS):
            library.append(library_seconds(folder, workers))
            ours.append(our_seconds(folder / f"tokens-{workers}-{number}", documents, tokenizer, workers))
        megabytes = documents.counts["characters"] / 1e6
        rows.append(
            {
                "workers": workers,
                "ratio": median(library) / median(ours),
                "median_s": {"ours": median(ours), "tokenizers": median(library)},
                "characters_per_second": {"ours": megabytes / median(ours) * 1e6},
                "runs_s": {"ours": ours, "tokenizers": library},
            }
        )
    return {
        "experiment": "tokenising",
        "date": date.today().isoformat(),
        "machine": describe_machine(),
        "load": os.getloadavg()[0],
        "tokenizer": TOKENIZER,
        "characters": documents.counts["characters"],
        "documents": documents.counts["documents"],
        "rows": rows,
    }


def sample(paths: list[Path]) -> list[Document]:
    """About CHARACTERS of text, as much of each file."""
    chosen: list[Document] = []
    for path in paths:
        left = CHARACTERS // len(paths)
        for document in read_documents([path]):
            chosen.append(document)
            left -= len(document.text)
            if left <= 0:
                break
    return chosen


def our_seconds(folder: Path, documents: Artifact, tokenizer: Artifact, workers: int) -> float:
    started = time.perf_counter()
    write_tokens(folder, documents, tokenizer, ProcessExecutor(workers))
    return time.perf_counter() - started


def library_seconds(folder: Path, threads: int) -> float:
    """The library in a process of its own, since it fixes its threads at the first call."""
    parallel = {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": str(threads > 1).lower()}
    command = [sys.executable, __file__, "--alone", str(folder)]
    done = subprocess.run(command, env={**os.environ, **parallel}, capture_output=True, text=True, check=True)
    return float(done.stdout)


def encode_alone(folder: Path) -> float:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    documents = stored_documents(load_artifact(folder / "documents"))
    batches = document_batches(documents, BATCH_CHARACTERS)
    texts = [[document.text for document in batch] for batch in batches]
    started = time.perf_counter()
    for batch in texts:
        tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
