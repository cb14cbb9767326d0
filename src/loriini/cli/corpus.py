"""Commands that make and look at corpora."""

import argparse
import json
from pathlib import Path

from loriini.cli.parser import Add, output
from loriini.cli.table import show
from loriini.errors import InputError


def prepare_arguments(add: Add) -> None:
    """What `prepare` takes."""
    add("name", type=_folder_name)
    add("--documents", nargs="+", required=True, metavar="[NAME=]PATH[:WEIGHT]", help="files, folders, URLs")
    add("--out", type=output, required=True)
    add("--tokenizer", default="bpe:8192", help="bpe:SIZE, or the path of a tokenizer")
    add("--length", type=int, default=1024, help="context in tokens")
    add("--order", default="similar", help="similar, papers or random")
    add("--encoder", default="lsa", help="lsa, or a sentence-transformers or Hugging Face encoder")
    add("--pooling", default="mean", help="mean or cls, of a plain Hugging Face encoder")
    add("--encoder-backend", default="torch", help="torch or openvino")
    add("--workers", type=int, default=1, help="tasks done at once, each on one thread")
    add("--executor", default="local", help="local, slurm or ray")
    add("--executor-options", nargs="+", default=(), metavar="KEY=VALUE", help="of Slurm's or Ray's executor")
    add("--seed", type=int, default=0)
    add("--on-error", choices=("stop", "skip"), default="stop")
    add("--min-characters", type=int, default=0, help="leave out shorter documents")
    add("--max-document-characters", type=int, help="leave out longer documents")
    for part in ("text", "id", "domain"):
        add(f"--{part}-field", default=part)


def _folder_name(name: str) -> str:
    """A name, which may not lead to another folder."""
    if name == ".." or name != Path(name).name:
        raise InputError(f"{name!r}: a corpus's name is one folder in --out, no path; choose one such as web")
    return name


def prepare(arguments: argparse.Namespace) -> None:
    """Make a corpus of documents."""
    from loriini.corpus.accounts import left_out
    from loriini.corpus.prepare import PrepareSettings
    from loriini.corpus.prepare import prepare as make

    names = (
        *("tokenizer", "length", "order", "encoder", "pooling", "encoder_backend"),
        *("workers", "seed", "on_error"),
        *("min_characters", "max_document_characters"),
    )
    fields = {f"{part}_field": getattr(arguments, f"{part}_field") for part in ("text", "id", "domain")}
    settings = {name: getattr(arguments, name) for name in (*names, "executor")}
    corpus = make(
        arguments.out / arguments.name,
        PrepareSettings(
            documents=tuple(map(str, arguments.documents)),
            executor_options=tuple(arguments.executor_options),
            **settings,
            **fields,
        ),
    )
    counts = {name: stage["counts"] for name, stage in corpus.manifest["stages"].items()}
    print(
        f"{corpus.folder}: {counts['documents']['documents']:,} documents, "
        f"{counts['tokens']['tokens']:,} tokens, {len(corpus.instances):,} instances of "
        f"{corpus.instances.length:,}"
    )
    if reasons := left_out(corpus.manifest):
        told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
        print(f"left out: {told}; each is in documents/dropped.jsonl or duplicates/duplicates.jsonl")
    if renamed := counts["documents"]["renamed_ids"]:
        print(f"renamed: {renamed:,} documents that had the id of an earlier one")


def convert_arguments(add: Add) -> None:
    """What `convert` takes."""
    add("source", type=Path, help="a corpus; or a Megatron prefix, or parquet files with input_ids")
    add("--to", choices=("megatron", "dataset", "corpus"), required=True)
    add("--out", type=output, required=True)
    add("--tokenizer", help="of the tokens, for --to corpus")
    add("--length", type=int, default=1024, help="context in tokens, for --to corpus")


def convert(arguments: argparse.Namespace) -> None:
    """A corpus into what other programs read, or tokens of theirs into a corpus."""
    from loriini.convert.exchange import CORPUS_FORMATS, export_corpus, import_corpus
    from loriini.corpus.prepare import open_corpus

    if arguments.to in CORPUS_FORMATS:
        print(export_corpus(open_corpus(arguments.source), arguments.to, arguments.out))
    elif not arguments.tokenizer:
        raise InputError("--to corpus needs --tokenizer PATH, the one that made the tokens")
    else:
        made = import_corpus(arguments.out, arguments.source, arguments.tokenizer, arguments.length)
        print(f"{made.folder}: {len(made.instances):,} instances of {made.instances.length:,}")


def inspect_arguments(add: Add) -> None:
    """What `inspect` takes."""
    add("corpus", type=Path)
    add("--json", action="store_true", help="numbers and histograms as JSON")
    add("--verify", action="store_true", help="first read every file again and compare it with its SHA-256")


def inspect(arguments: argparse.Namespace) -> None:
    """What a corpus holds, in numbers, and a page with documents and their neighbours."""
    from loriini.analyze.corpus import inspect_and_write, summary
    from loriini.corpus.inspection import inspect_corpus
    from loriini.corpus.prepare import open_corpus
    from loriini.corpus.verify import verify

    verified = verify(arguments.corpus) if arguments.verify else None
    corpus = open_corpus(arguments.corpus)
    if arguments.json:
        print(json.dumps(inspect_corpus(corpus), indent=1))
        return
    found, page = inspect_and_write(corpus)
    told = {**summary(found), "page": page}
    if verified is not None:
        told["files as written"] = f"all {verified:,}"
    show([{"what": what, "value": value} for what, value in told.items()], ("what", "value"), as_json=False)
