"""Raw documents → a corpus to train on.

A corpus is a folder of finished stages (`stages.py`) and a manifest of them all, written last. A finished
stage is not run again, and an interrupted stage does not run its finished tasks again.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Any

from loriini.common.errors import InputError, first_few
from loriini.common.folders import MANIFEST, RUN
from loriini.common.progress import warn
from loriini.common.settings import settings_of_kind
from loriini.data.jobs.artifact import digest, write_manifest
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.corpus import (
    Corpus,
    corpus_manifest,
    explained_damage,
    is_corpus,
    load_stages,
    manifest_of,
    open_corpus,
)
from loriini.data.prepare.settings import PrepareSettings, check_encoder
from loriini.data.prepare.similarity.quality import instance_cosines
from loriini.data.prepare.stages import build_stages
from loriini.data.prepare.tokenized.tokenizer import check_tokenizer
from loriini.data.read.inputs import check_inputs, identity_of, input_files
from loriini.data.read.names import heldout_files
from loriini.data.read.read import warn_of_absent_fields, warn_of_text_next_to_records
from loriini.data.read.records import Fields, ReadOptions
from loriini.data.read.streams import DocumentStream, ReadDocuments, file_streams


def prepare(out: Path, settings: PrepareSettings) -> Corpus:
    """Read the documents of `settings` and make the corpus `out`, or return it if it is finished.

    Raises InputError for invalid documents or settings, if `out` was made with other ones or holds other
    files where a stage belongs, and while another process writes to it.
    """
    if not settings.documents:
        raise InputError("there is nothing to read; give documents, a file, a folder or a URL")
    check_inputs(settings.documents, out)
    _check(out, settings)
    options = ReadOptions(
        Fields(settings.text_field, settings.id_field, settings.domain_field),
        settings.on_error,
        settings.min_characters,
        settings.max_document_characters,
    )
    files = input_files(settings.documents)
    if not (out / "documents" / MANIFEST).exists():
        warn_of_absent_fields(files, options.fields)
    identity = identity_of(files)
    if held := heldout_files(list(identity)):
        warn(
            f"{first_few(held)}: among the documents, so a model of this corpus is trained on them; to hold "
            "them out, give the other files by name or pattern"
        )
    warn_of_text_next_to_records(files)
    return _prepare_locked(out, file_streams(files, identity, options), identity, settings)


def prepare_documents(
    out: Path,
    documents: ReadDocuments,
    identity: Mapping[str, str],
    settings: PrepareSettings,
    wait: bool = False,
) -> Corpus:
    """Make a corpus as `prepare` does, from documents of any source.

    `documents` yields them, and calls its argument with what it drops; one task calls it, only if they are
    not stored yet. `identity` holds names and hashes of the documents: InputError if `out` was made with
    another. With `wait`, wait while another process writes to `out`, instead of raising InputError.
    """
    _check(out, settings)
    streams = [DocumentStream(documents, digest([_content_settings(settings), dict(identity)]))]
    return _prepare_locked(out, streams, identity, settings, wait)


def _check(out: Path, settings: PrepareSettings) -> None:
    """Raise InputError, before anything is read, for an error that would otherwise come hours later."""
    if is_corpus(out.parent):
        raise InputError(f"--out {out.parent}: is a corpus itself; give the folder to make {out.name!r} in")
    if (out / RUN).exists():
        raise InputError(f"--out {out.parent}: {out.name} is a run there; choose another name or --out")
    load_stages(out)
    _check_same_settings(out, settings)
    earlier = settings.reuse
    if earlier and not (Path(earlier) / "documents" / MANIFEST).exists():
        raise InputError(f"--reuse {earlier}: holds no documents of a corpus; give an earlier DIR/NAME")
    check_tokenizer(settings.tokenizer, settings.eos)
    check_encoder(settings.encoder, settings.pooling)


def _check_same_settings(out: Path, settings: PrepareSettings) -> None:
    """InputError for a finished corpus of other settings: a stage that it lost would be made with these."""
    manifest = corpus_manifest(out)
    if manifest is None:
        return
    recorded, given = manifest["settings"], _content_settings(settings)
    if "documents" not in manifest["stages"]:
        raise InputError(f"{out}: holds an imported corpus; choose another --out")
    changed = [
        f"{name} {recorded.get(name)}, not {value}"
        for name, value in given.items()
        if recorded.get(name) != value
    ]
    if changed:
        raise InputError(
            f"{out}: was made with other settings ({shorten(', '.join(changed), 300)}); choose another name "
            f"or --out, with --reuse {out} to keep what they do not change"
        )


def _prepare_locked(
    out: Path,
    streams: Iterable[DocumentStream],
    identity: Mapping[str, str],
    settings: PrepareSettings,
    wait: bool = False,
) -> Corpus:
    with folder_lock(out, wait), explained_damage(out):
        stages = build_stages(out, streams, identity, settings)
        made = manifest_of(_content_settings(settings), stages)
        written = corpus_manifest(out) or {}
        if {key: written.get(key) for key in made} != made:
            cosines = instance_cosines(stages, settings.order, settings.seed)
            write_manifest(out / MANIFEST, {**made, "shared_instance_cosine": cosines})
    return open_corpus(out)


def _content_settings(settings: PrepareSettings) -> dict[str, Any]:
    """The settings that decide a corpus's contents, as JSON values."""
    aside = settings_of_kind(PrepareSettings, "aside")
    kept = {name: value for name, value in asdict(settings).items() if name not in aside}
    as_json: dict[str, Any] = json.loads(json.dumps(kept))
    return as_json
