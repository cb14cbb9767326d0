"""The lens: how a model routes and predicts one text, token by token.

Axes: N tokens of the text, U units of routing, layers L, experts E.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.analyze.lens_page import write_lens_page
from loriini.analyze.reading import Lens, Reading
from loriini.analyze.routes import ROUTES, Routes
from loriini.common.errors import InputError
from loriini.common.folders import model_folder, name_of
from loriini.common.hardware import Precision
from loriini.common.progress import progress, warn
from loriini.evaluate.heldout import AS_IN_TRAINING
from loriini.evaluate.perplexity import score_tokens
from loriini.model import LoriiniForCausalLM
from loriini.model.generate.prompts import check_ids
from loriini.model.generate.routing_inputs import refuse_unused_label, routing_inputs
from loriini.model.weights.loading import check_finite, load_model
from loriini.model.weights.run_record import training_of
from loriini.reporting.curves import Floats
from loriini.routing.unit import RoutingContext, unit_layout

LENS = "lens.html"
MOST_TOKENS = 4096
"""Tokens of a text that are read unless `--tokens` says otherwise."""


def write_lens(
    run: Path,
    text: str,
    out: Path,
    dense: Path | None = None,
    label: str | None = None,
    device: str | None = None,
    tokens: int = MOST_TOKENS,
) -> Path:
    """Write a page on how the model of `run` routes and predicts a text; returns its path.

    Args:
        dense: a dense model with the same tokenizer, whose loss is shown next to the mixture's.
        label: the text's domain, for a model that routes by label.
        tokens: how many tokens are read at most; the page says how many are left out.

    InputError for a text of fewer than two tokens, a dense `run`, and a `dense` that is a mixture or has
    another tokenizer.
    """
    if tokens < 2:
        raise InputError(f"--tokens {tokens}: give at least 2")
    model, tokenizer = load_model(run, device)
    if not model.config.is_mixture:
        raise InputError(f"{run}: a dense model, so there is nothing to route; give it as --dense")
    refuse_unused_label(label, model.config)
    ids_N, pieces = tokenize(text, tokenizer)
    if len(ids_N) < 2:
        raise InputError("the text is a single token, and the first is not predicted; give a longer text")
    left_out = max(0, len(pieces) - tokens)
    if left_out:
        warn(f"the text has {len(pieces):,} tokens, the first {tokens:,} are read; see --tokens")
    ids_N, pieces = ids_N[:tokens], pieces[:tokens]
    models = {run: model}
    if dense is not None:
        models[dense] = _load_dense(dense, device, text, ids_N)
    runs = {path: training_of(path) for path in models}
    length = min(runs[path].context(each.config) for path, each in models.items())
    check_ids(ids_N, model)
    reading = read_text(model, ids_N, pieces, length, runs[run].evaluated_in, label)
    design, named, losses_N = model.config.routing, None, None
    if dense is not None:
        named = name_of(dense)
        losses_N = read_text(models[dense], ids_N, pieces, length, runs[dense].evaluated_in).losses_N
    lens = Lens(name_of(run), design, reading, left_out, label, named, losses_N, _routes_of(run, reading))
    return write_lens_page(lens, out)


def tokenize(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, list[str]]:
    """The ids (N,) of a text as in evaluation, ended by EOS, and the part of the text that each stands for.

    The parts concatenate to the text. EOS, and a token that continues a character, have an empty part.
    """
    if not tokenizer.is_fast:
        raise InputError("the lens needs to know where tokens begin, so a tokenizer with a tokenizer.json")
    encoded = tokenizer(text, return_offsets_mapping=True, **AS_IN_TRAINING)
    ends = [end for _, end in encoded["offset_mapping"]]
    if not ends:
        raise InputError("the text is empty; give --text FILE or --prompt TEXT with some words")
    ends[-1] = len(text)
    reached = np.maximum.accumulate([0, *ends])
    pieces = [text[start:end] for start, end in pairwise(reached)]
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return torch.tensor([*encoded["input_ids"], *end]), [*pieces, *("" for _ in end)]


@torch.no_grad()
def read_text(
    model: LoriiniForCausalLM,
    ids_N: Tensor,
    pieces: Sequence[str],
    length: int,
    precision: Precision = "auto",
    label: str | None = None,
) -> Reading:
    """Route and predict a text in contexts of `length` predictions, as `evaluate --contexts strung` does.

    The first token of a context is not predicted, and its last one is predicted but not routed.
    """
    unit_N = np.full(len(ids_N), -1)
    losses_N = np.full(len(ids_N), np.nan)
    gates: list[Floats] = []
    units = 0
    starts = range(0, len(ids_N), length + 1)
    with progress("lens", len(starts)) as advance:
        for number, start in enumerate(starts):
            ids_L = ids_N[start : start + length + 1]
            if len(ids_L) > 1:
                stop, inputs = start + len(ids_L), routing_inputs(model, label, 1, number)
                out = score_tokens(model, ids_L[None], precision, **inputs)
                check_finite(out.loss, "the model's losses")
                losses_N[start + 1 : stop] = out.loss[0].double().cpu().numpy()
                gates.append(
                    torch.stack([routing.gates for routing in out.routings or ()]).double().cpu().numpy()
                )
                slots = unit_layout(model.config.routing, RoutingContext(1, len(ids_L) - 1)).slots_per_unit
                unit_N[start : stop - 1] = units + np.arange(len(ids_L) - 1) // slots
                units += gates[-1].shape[1]
            advance()
    return Reading(tuple(pieces), tuple(starts), unit_N, np.concatenate(gates, axis=1), losses_N)


def _load_dense(path: Path, device: str | None, text: str, ids_N: Tensor) -> LoriiniForCausalLM:
    """The dense model. InputError for a mixture and for another tokenizer."""
    model, tokenizer = load_model(path, device)
    if model.config.is_mixture:
        raise InputError(f"--dense {path}: a mixture; give the run of a dense model")
    if not torch.equal(tokenize(text, tokenizer)[0][: len(ids_N)], ids_N):
        raise InputError(
            f"--dense {path}: its tokenizer is not the mixture's, so their losses do not compare; "
            "give a dense model trained on the same corpus"
        )
    return model


def _routes_of(run: Path, reading: Reading) -> Routes | None:
    """The routes by domain that `loriini analyze` measured for a run, if they are of this model's shape."""
    folder = model_folder(run)
    for path in (folder / ROUTES, folder.parent / ROUTES):
        if path.exists():
            routes = Routes.load(path)
            if routes.choices[:, 0].shape == reading.gates_LUE[:, 0].shape:
                return routes
    return None
