"""Export of a run or a model folder: convert, compare, write."""

import json
import math
import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from loriini.common.atomic import atomic, write_json
from loriini.common.errors import InputError
from loriini.common.folders import model_folder
from loriini.common.hardware import find_device
from loriini.common.json_file import read_object
from loriini.common.tokenizers import TOKENIZER_FILES
from loriini.common.weights import check_weights
from loriini.export.checkpoints import checkpoint_folder, load_checkpoint
from loriini.export.converters import RoutedBy, convert, decide, not_dense
from loriini.export.formats import FORMATS, ExportSettings
from loriini.export.gguf_file import FILE, check_gguf, import_gguf, write_gguf
from loriini.export.probe import Probe, cast_weights, probe
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.card import Exported, TrainingRecord, model_card
from loriini.model.weights.loading import load_model
from loriini.model.weights.run_record import run_of
from loriini.model.weights.saving import CARD, save_model_folder
from loriini.train.checkpoints.state import read_state
from loriini.train.folder import training_record

SETTINGS = "export.json"
SOURCE_FILES = ("*.safetensors", "chat_template*", *TOKENIZER_FILES)
"""The files in a model's folder of which an export is made."""
TOLERANCE = 1e-3
"""The largest logit difference of a float32 export, relative to the largest logit if that is above 1."""


def export_run(run: str | Path, settings: ExportSettings, out: str | Path, device: str | None = None) -> Path:
    """Export a run, or a Hugging Face model folder, into the folder `out`; returns what was written.

    An export of the same model with the same settings is left as it is. Raises InputError for any other
    existing `out`, and for a model that the format cannot represent.
    """
    run, out = Path(run), Path(out)
    source = _source(run, settings.step)
    wanted = {**asdict(settings), "source": source}
    if _is_exported(out, wanted):
        return _written(out, settings)
    if settings.to == "gguf":
        import_gguf()
    if settings.step is None:
        model, tokenizer = load_model(run, device)
        folder = run_of(run)
    else:
        model, tokenizer = load_checkpoint(run, settings.step)
        model, folder = model.to(find_device(device)), run
    record = None if folder is None else training_record(folder, settings.step)
    return export_model(model, tokenizer, settings, out, record, source)


def export_model(
    model: LoriiniForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    settings: ExportSettings,
    out: Path,
    record: TrainingRecord | None = None,
    source: str | None = None,
) -> Path:
    """Export a model that is in memory; see `export_run`. Its weights may be cast to `settings.dtype`."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not empty; choose another --out")
    routed_by, reason = RoutedBy(), not_dense(model.config)
    if FORMATS[settings.to].routed_once and not reason:
        routed_by = decide(model, tokenizer, settings.prompt, settings.label)
    elif settings.to == "gguf" and (settings.prompt or settings.label):
        raise InputError(f"--prompt, --label: this model has no dense form, as {reason}; leave them out")
    if settings.to == "gguf":
        check_gguf(tokenizer)
    trained_in, exported = model.dtype, convert(model, settings.to, routed_by)
    for token in ("bos_token_id", "eos_token_id"):  # a chat model ends at several
        setattr(exported.generation_config, token, getattr(model.generation_config, token))
    difference = compare_and_cast(exported, model, routed_by, settings.dtype)
    how = None if exported is model else _origin(exported, trained_in, settings, difference)
    card = model_card(model.config, record, how)
    target = Path(os.path.realpath(out))  # a link cannot be replaced by a folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic(target) as folder:
        if settings.to == "gguf":
            folder.mkdir()
            write_gguf(exported, tokenizer, _name(exported.dtype), folder / FILE)
            (folder / CARD).write_text(card, encoding="utf-8")
        else:
            save_model_folder(exported, tokenizer, card, folder)
            if exported is not model:
                add_earlier_settings(folder, tokenizer)
        write_json(
            folder / SETTINGS, {**asdict(settings), "source": source, "max_logit_difference": difference}
        )
    return _written(out, settings)


def add_earlier_settings(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add settings by which transformers 4, and programs built on it, read an export as version 5 does.

    Version 4 looks for rotary settings in other places and, if it finds none, silently takes its own default;
    and it does not know the class of the tokenizer.
    """
    config = read_object(folder / CONFIG_NAME, "export again")
    scaling = dict(config["rope_parameters"])
    config["rope_theta"] = scaling.pop("rope_theta")
    if scaling["rope_type"] != "default":
        config["rope_scaling"] = scaling
    write_json(folder / CONFIG_NAME, config)
    read = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "padding_side": tokenizer.padding_side,
        "truncation_side": tokenizer.truncation_side,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    values = read_object(folder / TOKENIZER_CONFIG_FILE, "export again")
    write_json(folder / TOKENIZER_CONFIG_FILE, {**values, **read})


def compare_and_cast(
    exported: PreTrainedModel, model: LoriiniForCausalLM, routed_by: RoutedBy, dtype: str | None
) -> float:
    """Compare an export with the model, then cast it; returns the largest logit difference after that.

    InputError if its weights or logits overflow in `dtype`.
    """
    target = exported.dtype if dtype is None else getattr(torch, dtype)
    casts = target != exported.dtype
    if exported is model and not casts:
        return 0.0
    expected = probe(model, routed_by.prompt_BL, routed_by.labels_B)
    difference = 0.0 if exported is model else compare(expected, exported)
    if casts:
        cast_weights(exported, target)
        refused, remedy = f"--dtype {dtype}", "choose bfloat16 or float32"
        try:
            check_weights(exported)  # float16 ends at 65,504
        except ValueError as error:
            raise InputError(f"{refused}: {error}; {remedy}") from error
        difference = expected.difference(exported)
        if not math.isfinite(difference):
            raise InputError(f"{refused}: the logits are not finite; {remedy}")
    return difference


def compare(expected: Probe, exported: PreTrainedModel) -> float:
    """The largest difference of a logit. RuntimeError if it is not finite, or large in float32."""
    difference = expected.difference(exported)
    exact = expected.logits_BLV.dtype == torch.float32
    large = exact and difference > TOLERANCE * max(1.0, expected.scale)
    if large or not math.isfinite(difference):
        raise RuntimeError(f"the exported model's logits differ by {difference:.1e}; nothing was written")
    return difference


def _origin(
    exported: PreTrainedModel, trained_in: torch.dtype, settings: ExportSettings, difference: float
) -> Exported:
    """The model card's description of the export."""
    how = f"as {type(exported).__name__.removesuffix('ForCausalLM')}"
    if chosen_by := settings.prompt or settings.label:
        quoted = json.dumps(shorten(chosen_by, 80), ensure_ascii=False)
        how += f", of the experts that the {'prompt' if settings.prompt else 'label'} {quoted} chose"
    how += f"; the largest difference of a logit to the model's was {difference:.1e} "
    how += f"({_name(exported.dtype)}, the model in {_name(trained_in)})"
    return Exported(how, FILE if settings.to == "gguf" else None)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _source(run: Path, step: int | None) -> str:
    """A hash of the paths, sizes and modification times of a model's files, or of a checkpoint's hashes."""
    if step is not None:
        known: object = read_state(checkpoint_folder(run, step)).get("sha256")
    else:
        files = sorted({file for pattern in SOURCE_FILES for file in model_folder(run).glob(pattern)})
        known = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return sha256(repr((str(run.resolve()), step, known)).encode()).hexdigest()


def _is_exported(out: Path, settings: dict[str, Any]) -> bool:
    """Whether `out` holds the export of these settings; InputError if it holds another's."""
    path = out / SETTINGS
    if not path.exists():
        return False
    there = read_object(path, "choose another --out")
    there.pop("max_logit_difference", None)
    changed = sorted(name for name in settings.keys() | there.keys() if there.get(name) != settings.get(name))
    if changed:
        raise InputError(
            f"{out}: holds another export (different: {', '.join(changed)}); choose another --out"
        )
    return True


def _written(out: Path, settings: ExportSettings) -> Path:
    return out / FILE if settings.to == "gguf" else out
