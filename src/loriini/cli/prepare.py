"""The command that makes a corpus."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from loriini.cli.arguments import OutFolder
from loriini.common.errors import InputError
from loriini.common.options import Option
from loriini.data.prepare.settings import PrepareSettings


def folder_name(name: str) -> str:
    """A single folder's name. InputError for a path, or nothing."""
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
            raise InputError("--documents is missing: give files, folders, URLs or data sets")
        from loriini.data.prepare.inspection import dropped_by_reason
        from loriini.data.prepare.prepare import prepare
        from loriini.data.prepare.text.heldout import HELDOUT_DOCUMENTS

        corpus = prepare(self.out / self.name, self.settings)
        counts = {name: stage["counts"] for name, stage in corpus.manifest["stages"].items()}
        documents, vocabulary = counts["documents"]["documents"], counts["tokenizer"]["vocab_size"]
        print(
            f"{corpus.folder}: {documents:,} documents, {counts['tokens']['tokens']:,} tokens of a "
            f"vocabulary of {vocabulary:,}, {len(corpus.instances):,} instances of "
            f"{corpus.instances.length:,}"
        )
        if held := counts["heldout"]["documents"]:
            path = corpus.folder / "heldout" / HELDOUT_DOCUMENTS
            print(f"held out: {held:,} documents, in {path}")
        if reasons := dropped_by_reason(corpus.manifest):
            told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
            print(f"left out: {told}; each is in documents/dropped.jsonl or duplicates/duplicates.jsonl")
        if renamed := counts["documents"]["renamed_ids"]:
            print(f"renamed: {renamed:,} documents that had the id of an earlier one")
