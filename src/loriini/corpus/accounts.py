"""Every document and every token of a corpus, accounted for from stage to stage."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loriini.corpus.tokens import open_tokens
from loriini.jobs.artifact import Artifact


def check_accounts(stages: Mapping[str, Artifact]) -> None:
    """RuntimeError when what goes into a stage is not what came out of the one before.

    Documents in = stored + duplicates; tokens in = tokens in instances + tokens of the documents
    that were left out + the rest at the end, shorter than an instance.
    """
    counts = {name: stage.counts for name, stage in stages.items()}
    documents, tokens, order = counts["documents"], counts["tokens"], counts["order"]
    instances = counts["instances"]
    near = counts.get("duplicates", {"duplicates": 0})["duplicates"]
    accounts = {
        "documents read": (
            documents["documents_in"],
            documents["documents"] + documents["duplicates"],
        ),
        "documents stored": (documents["documents"], sum(documents["shards"])),
        "documents encoded": (tokens["documents"], documents["documents"]),
        "characters encoded": (tokens["characters_in"], documents["characters"]),
        "documents ordered": (order["documents"], documents["documents"] - near),
        "documents cut": (instances["documents_in"], order["documents"]),
        "tokens": (
            tokens["tokens"],
            instances["tokens"] + instances["tokens_left_out"] + _tokens_of_duplicates(stages),
        ),
    }
    for name in ("embeddings", "neighbors"):
        if name in counts:
            accounts[f"documents of {name}"] = (counts[name]["documents"], documents["documents"])
    for what, (there, expected) in accounts.items():
        if there != expected:
            raise RuntimeError(f"{what}: {there:,}, where {expected:,} must be")


def left_out(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Documents of a corpus that did not make it into the order, by reason; reasons without any are not told.

    `documents/dropped.jsonl` and `duplicates/duplicates.jsonl` have each of them.
    """
    counts = {name: stage["counts"] for name, stage in manifest["stages"].items()}
    stored = counts.get("documents", {})
    reasons = {
        **stored.get("skipped", {}),
        "exact duplicate": stored.get("duplicates", 0),
        "near-duplicate": counts.get("duplicates", {}).get("duplicates", 0),
    }
    return {reason: count for reason, count in reasons.items() if count}


def _tokens_of_duplicates(stages: Mapping[str, Artifact]) -> int:
    if "duplicates" not in stages:
        return 0
    left_out = np.load(stages["duplicates"].path("ids.npy"))
    offsets = open_tokens(stages["tokens"]).offsets
    return int((offsets[left_out + 1] - offsets[left_out]).sum())
