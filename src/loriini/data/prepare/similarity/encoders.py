"""Trained encoders: sentence-transformers models, and Hugging Face encoders with mean or CLS pooling.

Lory (§3.2) and In-Context Pretraining use `facebook/contriever`, mean. A call tokenizes thousands of texts at
once and batches those of similar length, so that hardly any padding is computed.

Axes: N texts, L tokens, B texts in a batch, D embedding width.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from loriini.common.errors import InputError, is_system_error
from loriini.common.hardware import has_bf16, pick_device
from loriini.common.hub import check_weights
from loriini.common.progress import console, without_progress_bars
from loriini.data.jobs.processes import WORKER
from loriini.data.prepare.settings import Pooling, check_encoder

Encoder = Callable[[list[str]], NDArray[np.float32]]
"""Texts to vectors (N, D) of any length; D never changes."""

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 1 << 17}
"""What fits a processor's cache, and what keeps a GPU busy."""
OWN = "sentence_transformers."
MODULES = {
    "Transformer",
    "Pooling",
    "WeightedLayerPooling",
    "Normalize",
    "Dense",
    "LayerNorm",
    "Dropout",
    "CNN",
    "LSTM",
}
"""Modules of sentence-transformers that import nothing named in their settings, unlike Router or Asym."""
ACTIVATION = re.compile(r"torch\.nn\.modules\.\w+\.[A-Z]\w*")
"""Activation functions that a Dense layer may name."""
MOST_TOKENS = 8192
"""The longest text that is encoded whole, even where an encoder sets no limit."""
LENGTH_MULTIPLE = 16
"""Lengths are rounded up to a multiple of it, so that fewer shapes occur."""


@dataclass(frozen=True)
class Network:
    """An encoder in two steps, between which texts are sorted by length."""

    tokenize: Callable[[list[str]], tuple[Tensor, Tensor]]
    """Texts to ids and mask (N, L), truncated to the model's maximum and padded to the longest."""
    vectors: Callable[[Tensor, Tensor], Tensor]
    """Ids and mask (B, L) to (B, D)."""
    device: torch.device
    left_padded: bool = False


class PooledEncoder(nn.Module):
    """A Hugging Face encoder with pooling of its last states: ids and mask (B, L) → (B, D)."""

    def __init__(self, model: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling

    def forward(self, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
        states_BLD = self.model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
        if self.pooling == "cls":
            return states_BLD[:, 0]
        weights_BL1 = mask_BL[..., None].to(states_BLD.dtype)
        return (states_BLD * weights_BL1).sum(1) / weights_BL1.sum(1)


class SentenceEncoder(nn.Module):
    """A sentence-transformers model with the same signature as `PooledEncoder`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
        return self.model({"input_ids": ids_BL, "attention_mask": mask_BL})["sentence_embedding"]


def load_encoder(name: str, pooling: Pooling = "mean") -> Encoder:
    """Load an encoder by path or Hub id.

    It computes in bfloat16 if the hardware supports it, on a GPU if there is one. A model with a
    `modules.json` is a sentence-transformers model (extra `loriini[encoders]`), which does its own pooling.
    No code from the Hub is run.

    Args:
        name: a folder, or an id on the Hugging Face Hub, ORG/NAME.
        pooling: for any other model.

    Raises:
        InputError: there is no such model, `pooling` has no effect on it, or an extra is not installed.
    """
    check_encoder(name, pooling)
    from transformers.utils import cached_file

    device = worker_device()
    dtype = torch.bfloat16 if has_bf16(device) else torch.float32
    path = os.path.expanduser(name)
    with _readable(name), nullcontext() if console.is_terminal else without_progress_bars():
        modules = cached_file(path, "modules.json", _raise_exceptions_for_missing_entries=False)
        if modules:
            check_modules(Path(modules), partial(cached_file, path))
            network = _sentence_encoder(path, device, dtype)
        else:
            network = _pooled(path, pooling, device, dtype)
        encode(network, ["a text"])

    def encoder(texts: list[str]) -> NDArray[np.float32]:
        with _readable(name):
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
        columns = slice(-length, None) if network.left_padded else slice(length)
        batch = (tensor_NL[rows, columns].to(network.device) for tensor_NL in (ids_NL, mask_NL))
        vectors.append(network.vectors(*batch).float())
    vectors_ND = torch.cat(vectors).cpu()
    return torch.empty_like(vectors_ND).index_copy_(0, longest_first, vectors_ND).numpy()


def _batches(longest_first: Tensor, lengths_N: Tensor, tokens: int) -> Iterator[tuple[Tensor, int]]:
    """Rows of each batch and its length: at most `tokens` tokens, or one text."""
    start = 0
    while start < len(longest_first):
        length = -(-int(lengths_N[longest_first[start]]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        rows = longest_first[start : start + max(1, tokens // length)]
        yield rows, length
        start += len(rows)


def check_modules(modules: Path, file_of: Callable[[str], str | Path]) -> None:
    """ValueError if `modules.json`, or the settings of a Dense layer, name code of another package.

    sentence-transformers before 6.0 imports the former, and calls the latter. `file_of` finds a file of the
    model.
    """
    entries = json.loads(modules.read_bytes())
    types = [str(entry["type"]) for entry in entries]
    foreign = [name for name in types if not name.startswith(OWN) or name.split(".")[-1] not in MODULES]
    if foreign:
        raise ValueError(f"its modules.json names code, {foreign[0]}, which is not run")
    for entry in entries:
        if entry["type"].endswith(".Dense"):
            settings = json.loads(Path(file_of(f"{entry['path']}/config.json")).read_bytes())
            activation = settings.get("activation_function")
            if activation and not ACTIVATION.fullmatch(activation):
                raise ValueError(f"its layer {entry['path']} names code, {activation}, which is not run")


def _pooled(path: str, pooling: Pooling, device: torch.device, dtype: torch.dtype) -> Network:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right", trust_remote_code=False)
    model, loaded = AutoModel.from_pretrained(
        path, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
    )
    if missing := sorted(name for name in loaded["missing_keys"] if "pooler" not in name):
        raise ValueError(f"it lacks {missing[0]}")
    check_weights(model)
    model = model.to(device).eval()
    most = min(tokenizer.model_max_length, _positions(model), MOST_TOKENS)

    def tokenize(texts: list[str]) -> tuple[Tensor, Tensor]:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
        return tokens["input_ids"], tokens["attention_mask"]

    return Network(tokenize, PooledEncoder(model, pooling), device)


def _positions(model: Any) -> float:
    """How many tokens a model has positions for; infinite if it does not say.

    RoBERTa and models like it count positions from their padding's, so that some are never used.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or math.inf
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    unused = getattr(table, "padding_idx", None)
    return positions - (0 if unused is None else unused + 1)


def _sentence_encoder(path: str, device: torch.device, dtype: torch.dtype) -> Network:
    """ValueError for a model that does not read text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        path,
        device=str(device),
        trust_remote_code=False,
        model_kwargs={"dtype": dtype, "use_safetensors": True},
    )
    check_weights(model)
    prompt = model.prompts.get(model.default_prompt_name or "", "")

    tokens_of = getattr(model, "preprocess", None) or model.tokenize  # older releases
    if "attention_mask" not in tokens_of(["a text"]):
        raise ValueError("not a transformer that reads text")

    def tokenize(texts: list[str]) -> tuple[Tensor, Tensor]:
        tokens = tokens_of([prompt + text for text in texts])
        return tokens["input_ids"], tokens["attention_mask"]

    left_padded = getattr(model.tokenizer, "padding_side", "right") == "left"
    return Network(tokenize, SentenceEncoder(model.eval()), device, left_padded)
