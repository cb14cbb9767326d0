"""Export of a trained model: a Hugging Face folder, or a plain Llama."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from loriini.atomic import atomic
from loriini.errors import InputError
from loriini.model.conversion import to_llama
from loriini.model.labels import labels_of
from loriini.model.modeling import LoriiniForCausalLM


def export_hf(model: LoriiniForCausalLM, tokenizer: PreTrainedTokenizerBase, out: Path) -> Path:
    """Write the model unchanged; loading it needs `loriini`."""
    return _write(out, model.save_pretrained, tokenizer)


@torch.no_grad()
def export_llama(
    model: LoriiniForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    out: Path,
    label: str | None = None,
) -> Path:
    """Write a plain Llama whose FFNs are the experts merged as `prompt` routes them (Lory §3.1, inference).

    Its logits after this prompt are the model's own, prompt-routed; a label-routed model needs the prompt's
    `label`. InputError for designs that combine outputs, whose experts do not merge into one FFN.
    """
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"].long()
    if not ids.shape[1]:
        ids = torch.tensor([[model.config.eos_token_id]])
    ids = ids.to(model.device)
    lengths_B, labels_B = torch.tensor([ids.shape[1]]), labels_of(model, label, 1)
    routings = model(ids, prompt_lengths=lengths_B, routing_labels=labels_B).routings
    try:
        llama = to_llama(model, [routing.gates[0] for routing in routings])
    except ValueError as error:
        raise InputError(f"this model cannot be exported as a Llama: {error}; use --to hf") from error
    return _write(out, llama.save_pretrained, tokenizer)


def _write(out: Path, save: Callable[[Path], None], tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a model and its tokenizer into the folder `out`, atomically."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not empty; choose another --out")
    logging.disable_progress_bar()
    with atomic(out) as temporary:
        save(temporary)
        tokenizer.save_pretrained(temporary)
    return out
