"""The command that makes a corpus."""

import argparse
from functools import partial
from pathlib import Path

from loriini.cli.parser import Add, given, on_error_option, output_path
from loriini.common.errors import InputError


def prepare_arguments(add: Add) -> None:
    """Arguments of `loriini prepare`."""
    add("name", type=_folder_name, help="the corpus's name, a folder in --out")
    documents = (
        "files, folders, URLs or data sets; NAME is the domain of documents without one, WEIGHT the share "
        "that is read"
    )
    add("--documents", nargs="+", required=True, metavar="[NAME=]PATH[:WEIGHT]", help=documents)
    add("--out", type=output_path, required=True, metavar="DIR", help="write the corpus to DIR/NAME")
    option = partial(add, default=argparse.SUPPRESS)  # PrepareSettings has the defaults
    option("--tokenizer", help="bpe:SIZE to train one on the documents, or a path or Hub id (bpe:8192)")
    option(
        "--length",
        type=int,
        metavar="TOKENS",
        help="context of an instance in tokens, that of the runs that will read it (1024)",
    )
    option("--order", help="similar, plain, random, or a NumPy file of document ids (similar)")
    option(
        "--encoder",
        help="lsa, or the path or Hub id of a sentence-transformers or Hugging Face encoder (lsa)",
    )
    option("--pooling", help="mean or cls, for a plain Hugging Face encoder (mean)")
    option("--neighbors", type=int, metavar="K", help="nearest neighbours kept of each document (50)")
    option(
        "--heldout-share", type=float, metavar="S", help="share of the documents to keep for evaluation (0)"
    )
    option(
        "--reuse", metavar="CORPUS", help="link what would be the same from this corpus, and make the rest"
    )
    option("--workers", type=int, metavar="N", help="tasks that run at once, each on one thread (1)")
    option("--executor", help="local, slurm or ray (local)")
    option("--executor-options", nargs="+", metavar="KEY=VALUE", help="options of the slurm or ray executor")
    of_seed = (
        "seed of embeddings, neighbours and orders (0); samples and held-out documents do not depend on it"
    )
    option("--seed", type=int, help=of_seed)
    on_error_option(option)
    option("--min-characters", type=int, metavar="N", help="leave out shorter documents (0)")
    option("--max-document-characters", type=int, metavar="N", help="leave out longer documents (10000000)")
    for field in ("text", "id", "domain"):
        option(f"--{field}-field", metavar="NAME", help=f"field of a record that holds its {field} ({field})")


def _folder_name(name: str) -> str:
    """A single folder's name. InputError for a path, or nothing."""
    if name in ("", "..") or name != Path(name).name:
        raise InputError(f"{name!r}: a corpus's name is one folder in --out, not a path; choose one like web")
    return name


def prepare(arguments: argparse.Namespace) -> None:
    """Make a corpus from documents."""
    from dataclasses import fields

    from loriini.data.prepare.inspection import dropped_by_reason
    from loriini.data.prepare.prepare import prepare as prepare_corpus
    from loriini.data.prepare.settings import PrepareSettings
    from loriini.data.prepare.text.heldout import HELDOUT_DOCUMENTS
    from loriini.data.read.records import NOT_SAMPLED

    settings = given(arguments, [field.name for field in fields(PrepareSettings)])
    corpus = prepare_corpus(arguments.out / arguments.name, PrepareSettings(**settings))
    counts = {name: stage["counts"] for name, stage in corpus.manifest["stages"].items()}
    print(
        f"{corpus.folder}: {counts['documents']['documents']:,} documents, "
        f"{counts['tokens']['tokens']:,} tokens of a vocabulary of {counts['tokenizer']['vocab_size']:,}, "
        f"{len(corpus.instances):,} instances of {corpus.instances.length:,}"
    )
    if held := counts["heldout"]["documents"]:
        path = corpus.folder / "heldout" / HELDOUT_DOCUMENTS
        print(f"held out: {held:,} documents, in {path}")
    reasons = dropped_by_reason(corpus.manifest)
    listed = {reason: count for reason, count in reasons.items() if not reason.startswith(NOT_SAMPLED)}
    if listed:
        told = ", ".join(f"{reason} {count:,}" for reason, count in listed.items())
        print(f"left out: {told}; each is in documents/dropped.jsonl or duplicates/duplicates.jsonl")
    if unsampled := sum(reasons.values()) - sum(listed.values()):
        print(f"outside the samples: {unsampled:,} documents")
    if renamed := counts["documents"]["renamed_ids"]:
        print(f"renamed: {renamed:,} documents that had the id of an earlier one")
