"""Raw documents → a corpus to train on.

A corpus is a folder of finished stages (`loriini.corpus.stages`) and a manifest of them all, written last. A
stage that is finished is not run again, nor are the finished tasks of one that was interrupted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loriini.atomic import write_json
from loriini.corpus.instances import Instances, open_instances
from loriini.corpus.quality import instance_cosines
from loriini.corpus.settings import EXECUTION, PrepareSettings, check_encoder
from loriini.corpus.stages import Preparation, build_stages
from loriini.corpus.tokenizer import check_tokenizer
from loriini.corpus.tokens import Tokens, open_tokens
from loriini.errors import InputError
from loriini.jobs.artifact import MANIFEST, Artifact, load_artifact
from loriini.jobs.executors import make_executor
from loriini.jobs.lock import folder_lock
from loriini.sources import Fields, ReadOptions
from loriini.sources.streams import DocumentStream, ReadDocuments, open_streams


@dataclass(frozen=True)
class Corpus:
    """A finished corpus, mapped from disk."""

    folder: Path
    instances: Instances
    tokens: Tokens
    tokenizer: Path
    """The tokenizer's folder, for `transformers.AutoTokenizer`."""
    manifest: dict[str, Any]


def prepare(out: Path, settings: PrepareSettings) -> Corpus:
    """Read the documents of `settings` and make the corpus `out`, or return it if it is finished.

    Raises InputError for wrong documents or settings, when `out` was made with others, and while another
    process writes to it.
    """
    if not settings.documents:
        raise InputError("there is nothing to read; give documents, a file, a folder or a URL")
    options = ReadOptions(
        Fields(settings.text_field, settings.id_field, settings.domain_field),
        settings.on_error,
        min_characters=settings.min_characters,
        max_document_characters=settings.max_document_characters,
    )
    streams, identity = open_streams(settings.documents, out, options)
    return prepare_documents(out, streams, identity, settings)


def prepare_documents(
    out: Path,
    documents: ReadDocuments | Sequence[DocumentStream],
    identity: Mapping[str, str],
    settings: PrepareSettings,
) -> Corpus:
    """As `prepare`, with documents from anywhere.

    Args:
        out: the corpus's folder.
        documents: streams, each read by a task, or a function that yields them all and reports to its
            argument what it drops. Read only while they are not stored yet.
        identity: names and hashes of the documents: with another identity, `out` is refused.
        settings: the rest.
    """
    # Checked first, since the stages that need them may begin hours later.
    check_tokenizer(settings.tokenizer)
    check_encoder(settings.encoder, settings.encoder_backend)
    execute = make_executor(settings.executor, settings.workers, settings.executor_options)
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        stages = build_stages(out, Preparation(documents, identity, settings, execute))
        made = manifest_of({k: v for k, v in asdict(settings).items() if k not in EXECUTION}, stages)
        written = _read_manifest(out) or {}
        if {key: written.get(key) for key in made} != made:
            cosines = instance_cosines(stages, settings.order, settings.seed)
            write_json(out / MANIFEST, {**made, "shared_instance_cosine": cosines})
    return open_corpus(out)


def manifest_of(settings: Mapping[str, Any], stages: Mapping[str, Artifact]) -> dict[str, Any]:
    """A corpus's manifest: its settings, and every stage's counts and file hashes."""
    described = {name: {"counts": stage.counts, "files": stage.files} for name, stage in stages.items()}
    manifest: dict[str, Any] = json.loads(json.dumps({"settings": settings, "stages": described}))
    return manifest


def open_corpus(out: Path) -> Corpus:
    """Open a finished corpus; InputError when it is absent or unfinished."""
    manifest = _read_manifest(out)
    if manifest is None:
        raise InputError(
            f"{out}: no finished corpus here ({MANIFEST} is absent); run `loriini prepare` on it"
        )
    return Corpus(
        out,
        open_instances(load_artifact(out / "instances")),
        open_tokens(load_artifact(out / "tokens")),
        out / "tokenizer",
        manifest,
    )


def _read_manifest(out: Path) -> dict[str, Any] | None:
    """The corpus's manifest, None when there is none; InputError when it is not JSON."""
    try:
        return json.loads((out / MANIFEST).read_text())
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{out / MANIFEST}: not a readable manifest ({error}); remove it and rerun"
        ) from None
