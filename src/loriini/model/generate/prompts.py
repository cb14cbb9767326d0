"""Token ids of a prompt, from a model's tokenizer."""

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.model.modeling import LoriiniForCausalLM


def opening_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """[BOS] if the tokenizer puts it before every text, as those of Llama 2 and Mixtral do; else []."""
    ids: list[int] = tokenizer("", verbose=False)["input_ids"]
    return [tokenizer.bos_token_id] if ids[:1] == [tokenizer.bos_token_id] else []


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """A prompt's token ids: the BOS that the tokenizer adds by itself, if any, then the text's."""
    encoded: list[int] = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    return [*opening_ids(tokenizer), *encoded]


def check_ids(ids: Tensor, model: LoriiniForCausalLM) -> None:
    """InputError if a tokenizer made ids (any shape) that the model does not embed."""
    rows = model.config.vocab_size
    if ids.numel() and (largest := int(ids.max())) >= rows:
        raise InputError(
            f"the tokenizer makes the id {largest:,}, but the model embeds {rows:,} tokens; "
            "give the model with the tokenizer that it was trained with"
        )
