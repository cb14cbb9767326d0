"""The `heldout` stage: a share of the documents, kept out of the order for evaluation."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loriini.common.errors import InputError, first_few
from loriini.common.progress import Advance, warn
from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks, task_counts
from loriini.data.prepare.arrays import IDS, Ids
from loriini.data.prepare.text.documents import document_line
from loriini.data.prepare.text.stored import Slice, slice_documents, whole_shards
from loriini.data.read.names import HELDOUT_DOCUMENTS
from loriini.data.read.sampling import is_held_out


def write_heldout(
    folder: Path, documents: Artifact, duplicates: Artifact, share: float, execute: Executor = SERIAL
) -> Artifact:
    """Write the held-out documents: their numbers, `ids.npy` int64, and stored lines, `documents.jsonl`.

    A document is held out if the hash of its text is below `share`, in [0, 1). Documents in `duplicates` are
    on neither side, so no held-out document has a near-duplicate in training. A text that is held out of one
    corpus is held out of every other whose share is at least as large.

    Raises:
        InputError: `share` is above 0, but no document is held out.
    """
    settings = {"heldout_share": share}
    inputs = {"documents": documents.digest, "duplicates": duplicates.digest}
    write = partial(_write, documents, duplicates, share, execute)
    return build_artifact(folder, settings, inputs, write)


def left_out(duplicates: Artifact, heldout: Artifact) -> Ids:
    """The numbers of the documents that are not ordered: near-duplicates and held-out documents."""
    return np.concatenate([stage.array(IDS) for stage in (duplicates, heldout)])


def _write(
    documents: Artifact, duplicates: Artifact, share: float, execute: Executor, folder: Path
) -> dict[str, Any]:
    shards = whole_shards(documents) if share else []
    tasks = [
        Task(f"choose-{i:05d}", partial(_choose, documents, duplicates, share, shard), len(shard))
        for i, shard in enumerate(shards)
    ]
    chosen = run_tasks("heldout", tasks, folder, execute)
    characters, domains = 0, Counter[str]()
    for counts in map(task_counts, chosen):
        characters += counts["characters"]
        domains.update(counts["domains"])
    concatenate_files((output / HELDOUT_DOCUMENTS for output in chosen), folder / HELDOUT_DOCUMENTS)
    ids = [np.empty(0, np.int64), *(np.load(output / IDS) for output in chosen)]
    np.save(folder / IDS, np.concatenate(ids))
    if share:
        _check_domains(documents.counts, domains, share)
    return {"documents": domains.total(), "characters": characters, "domains": domains}


def _choose(
    documents: Artifact, duplicates: Artifact, share: float, shard: Slice, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the held-out documents of a shard."""
    repeats = set(shard.among(duplicates.array(IDS)).tolist())
    ids, characters, domains = list[int](), 0, Counter[str]()
    with open(folder / HELDOUT_DOCUMENTS, "wb") as file:
        for number, document in enumerate(slice_documents(documents, shard), shard.first):
            if is_held_out(document.text, share) and number not in repeats:
                file.write(document_line(document))
                ids.append(number)
                characters += len(document.text)
                domains[document.domain] += 1
    np.save(folder / IDS, np.array(ids, np.int64))
    advance(len(shard))
    return {"characters": characters, "domains": domains}


def _check_domains(stored: Mapping[str, Any], held: Counter[str], share: float) -> None:
    """Raise InputError if no document is held out; warn of domains without a held-out document."""
    if not held:
        raise InputError(
            f"--heldout-share {share:g} holds out none of {stored['documents']:,} documents; give a larger "
            "share, or leave it out"
        )
    if missing := sorted(stored["domains"].keys() - held.keys()):
        warn(f"no document of {first_few(missing)} is held out; give a larger --heldout-share")
