"""Text written by a model: greedy or sampled, prompt-routed unless told otherwise, with a cache."""

import torch
from transformers import PreTrainedTokenizerBase

from loriini.errors import InputError
from loriini.model import LoriiniForCausalLM
from loriini.model.labels import labels_of


@torch.no_grad()
def continue_text(
    model: LoriiniForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    max_new_tokens: int = 64,
    greedy: bool = False,
    routing: str = "prompt",
    seed: int = 0,
    label: str | None = None,
) -> str:
    """The model's continuation of `prompt`; an empty prompt is the BOS (or EOS) token alone.

    A label-routed model routes it to the expert of `label`; others have no use for one. InputError without a
    token to write, without a label where it is needed, and where segments are to be routed by a design that
    has none.
    """
    if max_new_tokens < 1:
        raise InputError(f"--max-new-tokens {max_new_tokens}: give at least 1")
    if routing == "segment" and model.config.routing.unit == "sequence":
        raise InputError("--routing segment: this model routes whole sequences; use --routing prompt")
    ids = (
        tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"].to(model.device).long()
    )
    torch.manual_seed(seed)
    sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 0.8, "top_k": 50}
    out = model.eval().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        inference_routing=routing,
        routing_labels=labels_of(model, label, 1),
        pad_token_id=model.config.eos_token_id,
        **sampling,
    )
    prompt_length = max(1, ids.shape[1])  # an empty prompt becomes one token
    return tokenizer.decode(out[0, prompt_length:], skip_special_tokens=True)
