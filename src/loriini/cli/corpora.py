"""The commands that make a corpus, show it, and convert it to another program's format or back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from loriini.cli.arguments import OutFolder
from loriini.cli.output import print_rows
from loriini.common.checks import Count
from loriini.common.errors import InputError
from loriini.common.options import Option, refuse_given
from loriini.data.prepare.settings import PrepareSettings


def folder_name(name: str) -> str:
    """The name of a single folder. InputError for a path or an empty name."""
    if name in ("", "..") or name != Path(name).name:
        raise InputError(f"{name!r}: a corpus's name is one folder in --out, not a path; choose one like web")
    return name


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Make a corpus from documents."""

    name: Annotated[str, Option("NAME", positional=True, parse=folder_name)]
    """The corpus's name, a folder in `--out`."""
    out: OutFolder
    """Write the corpus to DIR/NAME."""
    settings: PrepareSettings = field(default_factory=PrepareSettings)

    less_memory: ClassVar = "lower --workers or --neighbors"
    resumes: ClassVar = True

    def run(self) -> None:
        if not self.settings.documents:
            raise InputError("--documents is missing: give files, folders or URLs")
        from loriini.data.prepare.inspection import dropped_by_reason
        from loriini.data.prepare.prepare import prepare
        from loriini.data.read.names import HELDOUT_DOCUMENTS

        corpus = prepare(self.out / self.name, self.settings)
        counts = corpus.counts
        documents, vocabulary = counts["documents"]["documents"], counts["tokenizer"]["vocab_size"]
        print(
            f"{corpus.folder}: {documents:,} documents, {counts['tokens']['tokens']:,} tokens of a "
            f"vocabulary of {vocabulary:,}, {len(corpus.instances):,} instances of "
            f"{corpus.instances.length:,}"
        )
        if held := counts["heldout"]["documents"]:
            path = corpus.folder / "heldout" / HELDOUT_DOCUMENTS
            print(f"held out: {held:,} documents, in {path}")
        if reasons := dropped_by_reason(counts):
            told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
            print(f"left out: {told}; each is in documents/dropped.jsonl or duplicates/duplicates.jsonl")


@dataclass(frozen=True)
class Inspect:
    """Print a corpus's statistics, and write a page that shows documents with their neighbours."""

    corpus: Annotated[Path, Option("CORPUS", positional=True)]
    """The corpus's folder."""
    json: bool = False
    """Print statistics and histograms as JSON, and write no page."""
    verify: bool = False
    """First compare every file with its SHA-256."""

    def run(self) -> None:
        from loriini.analyze.corpus import inspect_and_write, summary
        from loriini.data.prepare.corpus import explained_damage, open_corpus, verify
        from loriini.data.prepare.inspection import inspect_corpus

        verified = verify(self.corpus) if self.verify else None
        with explained_damage(self.corpus):
            corpus = open_corpus(self.corpus)
            if self.json:
                print(json.dumps(inspect_corpus(corpus), indent=1))
                return
            numbers, page = inspect_and_write(corpus)
        values = {**summary(numbers), **({} if page is None else {"page": str(page)})}
        if verified is not None:
            values["verified files"] = f"all {verified:,}"
        rows = [{"what": what, "value": value} for what, value in values.items()]
        print_rows(rows, ("what", "value"), as_json=False)


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert a corpus to another program's format, or another program's tokens to a corpus."""

    source: Annotated[Path, Option("CORPUS|PATH", positional=True)]
    """A corpus; with `--from`, a Megatron prefix or parquet files with input_ids."""
    to: Literal["megatron", "parquet"] | None = None
    """The format to write."""
    from_: Literal["megatron", "hf"] | None = None
    """The format to read; a corpus is written."""
    tokenizer: Annotated[str | None, Option("PATH")] = None
    """The tokenizer that made the tokens, for `--from`."""
    eos: str | None = None
    """The token that ends a document, where that tokenizer's files do not agree on one."""
    length: Count = 1024
    """Context of an instance in tokens, for `--from`."""
    out: OutFolder
    """Folder to write."""

    def run(self) -> None:
        from loriini.data.convert.corpus_export import export_corpus
        from loriini.data.convert.corpus_import import import_corpus
        from loriini.data.prepare.corpus import explained_damage, open_corpus

        if (self.to is None) == (self.from_ is None):
            raise InputError("give --to FORMAT or --from FORMAT, one of them")
        if self.to:
            refuse_given(self, ("tokenizer", "eos", "length"), "has no effect with --to; leave it out")
            with explained_damage(self.source):
                print(export_corpus(open_corpus(self.source), self.to, self.out))
            return
        if not self.tokenizer:
            raise InputError("--from needs --tokenizer PATH, the one that made the tokens")
        assert self.from_
        corpus = import_corpus(self.out, self.source, self.from_, self.tokenizer, self.length, self.eos)
        print(f"{corpus.folder}: {len(corpus.instances):,} instances of {corpus.instances.length:,}")
