"""Runs small enough for a test: a pattern to learn, its corpus, and a finished run's folder."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from loriini import DESIGNS
from loriini.common.signals import Interrupted
from loriini.data.prepare.corpus import Corpus as Prepared
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.document import Document
from loriini.train import loop
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.optimizer import OptimizerConfig
from loriini.train.records.metrics import METRICS, read_records
from loriini.train.upcycle import WarmupConfig

VOCABULARY = 64
EOS = VOCABULARY - 1
COPIED_AT, STEPS = 4, 10


@dataclass(frozen=True)
class Pattern:
    """Instances that count up by one, two or three, from anywhere: the next token follows from two.

    The stride is an instance's label.
    """

    length: int = 32
    size: int = 48
    label_names: tuple[str, ...] = ("one", "two", "three")

    def __len__(self) -> int:
        return self.size

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        starts, strides = ids_B[:, None] * 7, 1 + ids_B[:, None] % 3
        return (starts + strides * np.arange(self.length + 1)) % EOS

    def positions(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """Documents of 13 tokens, the first of an instance shorter."""
        places_L = np.arange(self.length + 1)
        return np.minimum(places_L, (places_L + ids_B[:, None]) % 13)

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids_B % 3


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer of the words w0, w1, … and of the end of text."""
    vocabulary = {"<eos>" if i == EOS else f"w{i}": i for i in range(VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(folder)
    return folder


def byte_tokenizer(pairs: Sequence[tuple[str, str]] = ()) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 256 bytes, an end of text, and pairs; a character may be several tokens."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<eos>", *(a + b for a, b in pairs)]
    bpe = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(pairs)))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", bos_token="<eos>")


def tiny_corpus(folder: Path) -> TrainingCorpus:
    """The pattern as training reads it; its tokenizer lies in `folder`."""
    return TrainingCorpus(Pattern(), VOCABULARY, EOS, digest="pattern", tokenizer=write_tokenizer(folder))


def prepared(folder: Path, tokenizer: str = "bpe:300", length: int = 64) -> Prepared:
    """A corpus of sums, in random order."""
    documents = [Document(f"d{i}", f"{i} times {i} is {i * i}, they say. " * 4, "sums") for i in range(40)]
    settings = PrepareSettings(tokenizer=tokenizer, length=length, order="random")
    return prepare_documents(folder, lambda drop: documents, {"sums": "1"}, settings)


def tiny_run(design: str = "lory", **changes: Any) -> TrainConfig:
    """Ten steps of two layers of width 32, copied into three experts before the fifth; bit-exact on a CPU."""
    experts = 1 if design == "dense" else 3
    run = TrainConfig(
        name=f"tiny {design}",
        routing=replace(DESIGNS[design], segment_length=8),
        model=ModelShape(32, 48, 2, 2, num_experts=experts),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        warmup=WarmupConfig(dense_share=COPIED_AT / STEPS),
        steps=STEPS,
        batch_size=4,
        length=32,
        precision="fp32",
    )
    return replace(run, **changes)


def trained(run: TrainConfig, folder: Path) -> Path:
    """The folder of a finished run."""
    loop.train(run, tiny_corpus(folder / "tokenizer"), folder / "run")
    return folder / "run"


def metrics(out: Path) -> list[dict[str, Any]]:
    """What a run recorded of its steps, without speed and memory."""
    varying = ("tokens_per_second", "mfu", "peak_memory_bytes")
    return [{k: v for k, v in m.items() if k not in varying} for m in read_records(out / METRICS)]


def assert_same_bits(out: Path, whole: Path) -> None:
    """Two finished runs recorded the same of every step, and have the same bits in every weight."""
    assert metrics(out) == metrics(whole)
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (out, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())


def after_step(patch: pytest.MonkeyPatch, step: int, happens: Callable[[], None]) -> None:
    """Let something happen in training as soon as `step` is taken, before it is recorded."""
    start_step = loop.start_step

    def step_and_more(state: Any, *arguments: Any) -> Any:
        started = start_step(state, *arguments)
        if state.progress.step == step:
            happens()
        return started

    patch.setattr(loop, "start_step", step_and_more)


class Killed(Exception):
    """Stands for `kill -9`: nothing is saved."""


def kill() -> None:
    raise Killed


def interrupt(*_: object) -> None:
    """Stands for a function in which Ctrl-C is pressed."""
    raise KeyboardInterrupt


def signal_self(number: int = signal.SIGINT) -> None:
    """What Ctrl-C or a scheduler does."""
    os.kill(os.getpid(), number)


def stop(
    run: TrainConfig, corpus: TrainingCorpus, out: Path, step: int, happens: Callable[[], None] = signal_self
) -> str:
    """Train until something happens after a step that ends training; returns the message."""
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, step, happens)
        with pytest.raises((Interrupted, Killed)) as stopped:
            loop.train(run, corpus, out)
    return str(stopped.value)
