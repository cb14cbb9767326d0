"""Temporarily put a model in evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into `eval()`, and on leaving back into its previous mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def undisturbed(model: PreTrainedModel) -> Iterator[None]:
    """Like `evaluation_mode`; on leaving, also restore the random state of the CPU and the model's GPU."""
    devices = [model.device] if model.device.type == "cuda" else []
    with evaluation_mode(model), torch.random.fork_rng(devices):
        yield
