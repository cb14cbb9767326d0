"""Trained encoders: those of Hugging Face, and sentence-transformers models of one of these and a pooling.

Lory (§3.2) and In-Context Pretraining use `facebook/contriever` with mean pooling. A call tokenizes thousands
of texts at once and batches those of similar length, so that hardly any padding is computed.

Axes: N texts, L tokens, B texts in a batch, D embedding width.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loriini.common.errors import InputError, is_system_error
from loriini.common.hardware import autocast_dtype, pick_device
from loriini.common.hub import local_folder
from loriini.common.progress import console, without_progress_bars
from loriini.common.tokenizers import without_chance
from loriini.common.weights import check_weights
from loriini.data.jobs.processes import WORKER
from loriini.data.prepare.settings import MODULES, Pooling, check_encoder

Encoder = Callable[[list[str]], NDArray[np.float32]]
"""Texts to vectors (N, D) of any length; D never changes."""

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 1 << 17}
"""As many as fit a CPU's cache, and as keep a GPU busy."""
POOLINGS: dict[str, Pooling] = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""Poolings by the value, or in older models the flag, in a sentence-transformers model's settings."""
PLAIN = ["Transformer", "Pooling"]
"""The supported modules; a Normalize after them is redundant, as vectors are normalized anyway."""
MOST_TOKENS = 8192
"""Longer texts are truncated, even for an encoder that sets no limit."""
LENGTH_MULTIPLE = 16
"""Lengths of batches are rounded up to a multiple of it, so that fewer shapes occur."""


@dataclass(frozen=True)
class Network:
    """An encoder in two steps, between which texts are sorted by length."""

    tokenize: Callable[[list[str]], tuple[Tensor, Tensor]]
    """Texts to ids and mask (N, L), truncated to the model's maximum and padded on the right."""
    vectors: Callable[[Tensor, Tensor], Tensor]
    """Ids and mask (B, L) to (B, D)."""
    device: torch.device


def load_encoder(name: str, pooling: Pooling = "mean") -> Encoder:
    """Load an encoder by path or Hub id.

    It computes on one thread, in bfloat16 if the hardware supports it, on a GPU if there is one. A model with
    a `modules.json` is a sentence-transformers model and names its own pooling; `pooling` is for any other.
    No code of the model is run.

    Raises:
        InputError: there is no such model, `pooling` has no effect on it, or it has other modules than an
            encoder, its pooling and a normalization.
    """
    check_encoder(name, pooling)
    folder = local_folder(os.path.expanduser(name))
    with _readable(name), one_thread(), nullcontext() if console.is_terminal else without_progress_bars():
        network = _network(folder, pooling)
        encode(network, ["a text"])

    def encoder(texts: list[str]) -> NDArray[np.float32]:
        with _readable(name), one_thread():
            return encode(network, texts)

    return encoder


def worker_device() -> torch.device:
    """The device of this process; a machine's workers are spread over its GPUs."""
    device = pick_device()
    if device.type != "cuda" or WORKER not in os.environ:
        return device
    return torch.device("cuda", int(os.environ[WORKER]) % torch.cuda.device_count())


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn what the libraries raise for a damaged or foreign folder into a one-line InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # tokenizers raises bare Exception
        if is_system_error(error):
            raise
        raise InputError(
            f"encoder {name!r} cannot be used ({shorten(str(error), 300)}); "
            "give a sentence-transformers or Hugging Face encoder's path or name, or 'lsa'"
        ) from None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the last bits of a sum depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def encode(network: Network, texts: list[str]) -> NDArray[np.float32]:
    """Vectors of `texts`, in their order, computed in batches of similar length, the longest first."""
    ids_NL, mask_NL = network.tokenize(texts)
    lengths_N = mask_NL.sum(1)
    longest_first = lengths_N.argsort(descending=True, stable=True)
    vectors = []
    for rows, length in _batches(longest_first, lengths_N, TOKENS_PER_BATCH[network.device.type]):
        batch = (tensor_NL[rows, :length].to(network.device) for tensor_NL in (ids_NL, mask_NL))
        vectors.append(network.vectors(*batch).float())
    vectors_ND = torch.cat(vectors).cpu()
    return torch.empty_like(vectors_ND).index_copy_(0, longest_first, vectors_ND).numpy()


def pooled(states_BLD: Tensor, mask_BL: Tensor, pooling: Pooling) -> Tensor:
    """Each text's states (L, D) pooled into one vector: (B, D)."""
    if pooling == "cls":
        return states_BLD[:, 0]
    if pooling == "last":
        return states_BLD[torch.arange(len(mask_BL)), mask_BL.sum(1) - 1]
    weights_BL1 = mask_BL[..., None].to(states_BLD.dtype)
    return (states_BLD * weights_BL1).sum(1) / weights_BL1.sum(1)


def _batches(longest_first: Tensor, lengths_N: Tensor, tokens: int) -> Iterator[tuple[Tensor, int]]:
    """Rows of each batch and its length: at most `tokens` tokens, or one text."""
    start = 0
    while start < len(longest_first):
        length = -(-int(lengths_N[longest_first[start]]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        rows = longest_first[start : start + max(1, tokens // length)]
        yield rows, length
        start += len(rows)


def _network(folder: Path, pooling: Pooling) -> Network:
    from transformers import AutoModel, AutoTokenizer

    most = MOST_TOKENS
    if (folder / MODULES).exists():
        folder, pooling, most = _read_sentence_transformers(folder)
    device = worker_device()
    dtype = autocast_dtype("auto", device) or torch.float32
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right", trust_remote_code=False)
    without_chance(tokenizer, folder)
    model, loaded = AutoModel.from_pretrained(
        folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
    )
    if missing := sorted(name for name in loaded["missing_keys"] if "pooler" not in name):
        raise ValueError(f"it lacks {missing[0]}")
    check_weights(model)
    model = model.to(device).eval()
    most = min(tokenizer.model_max_length, _positions(model), most)

    def tokenize(texts: list[str]) -> tuple[Tensor, Tensor]:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
        return tokens["input_ids"], tokens["attention_mask"]

    def vectors(ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
        states_BLD = model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
        return pooled(states_BLD, mask_BL, pooling)

    return Network(tokenize, vectors, device)


def _read_sentence_transformers(folder: Path) -> tuple[Path, Pooling, int]:
    """The folder of a sentence-transformers model's encoder, its pooling, and the longest text in tokens.

    ValueError for another pooling, or other modules: these need code of sentence-transformers or the model.
    """
    entries = json.loads((folder / MODULES).read_bytes())
    kinds = [entry["type"] for entry in entries]
    if [kind.split(".")[-1] for kind in kinds] not in (PLAIN, [*PLAIN, "Normalize"]):
        raise ValueError(f"its modules.json names {', '.join(kinds)}, which are not {' and '.join(PLAIN)}")
    encoder, pooling = (folder / entry["path"] for entry in entries[:2])
    settings = json.loads((pooling / "config.json").read_bytes())
    named = [settings.get("pooling_mode"), *(name for name in POOLINGS if settings.get(name) is True)]
    found = {POOLINGS.get(name) for name in named if name}
    limits = encoder / "sentence_bert_config.json"
    most = (json.loads(limits.read_bytes()) if limits.exists() else {}).get("max_seq_length")
    match list(found):
        case ["mean" | "cls" | "last" as known]:
            return encoder, known, most or MOST_TOKENS
    raise ValueError(f"its pooling is not one of {', '.join(sorted(set(POOLINGS.values())))}")


def _positions(model: Any) -> float:
    """How many tokens a model has positions for; infinite if it does not say.

    RoBERTa and models like it count positions from the one after their padding's: the first are never used.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or math.inf
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    unused = getattr(table, "padding_idx", None)
    return positions - (0 if unused is None else unused + 1)
