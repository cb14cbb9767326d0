"""transformers' generation, which passes the length of the prompt to every call."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from transformers import GenerationMixin

from loriini.model.arguments import ROUTING_ARGUMENTS
from loriini.model.context import count_tokens


class RoutedGenerationMixin(GenerationMixin):
    """Generation routed by its prompt, or segment by segment."""

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Tensor | None = None,
        **model_kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Adds `prompt_lengths`: the inputs are still the prompt alone, while later calls see more tokens."""
        if model_kwargs.get("prompt_lengths") is None:
            embeds, mask = model_kwargs.get("inputs_embeds"), model_kwargs.get("attention_mask")
            prompt = cast(Tensor, input_ids if embeds is None else embeds)
            model_kwargs["prompt_lengths"] = count_tokens(prompt, mask)
        return super()._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )

    @staticmethod
    def create_masks_for_generate(attention_mask: Tensor | None, **_: Any) -> Tensor | None:
        """The mask (B, H) unchanged, even for a static cache, whose layers are replaced by routed ones."""
        return attention_mask

    def _valid_auto_compile_criteria(self, *_: Any, **__: Any) -> bool:
        """False: transformers would compile calls with a static cache, but a routed cache grows."""
        return False

    def _validate_model_kwargs(self, model_kwargs: dict[str, Any]) -> None:
        """Accepts routing arguments that are not in the signature of `forward`."""
        super()._validate_model_kwargs({k: v for k, v in model_kwargs.items() if k not in ROUTING_ARGUMENTS})

    @torch.no_grad()
    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """transformers' generate, routed by the prompt unless `inference_routing="segment"`.

        An empty prompt becomes the BOS token of the call, else of the model; if neither has one, the EOS
        token in the same way.
        """
        ids = kwargs.pop("input_ids", inputs)
        if (ids is None or ids.shape[1] == 0) and kwargs.get("inputs_embeds") is None:
            given = kwargs.get("generation_config", args[0] if args else None)
            token = _first_token(kwargs, *(vars(each) for each in (given, self.generation_config) if each))
            ids = torch.full((1 if ids is None else ids.shape[0], 1), token, device=self.device)
            kwargs["attention_mask"] = torch.ones_like(ids)  # BOS may also be the padding token
        return super().generate(ids, *args, **kwargs)


def _first_token(*settings: Mapping[str, Any]) -> int:
    """The token of an empty prompt: BOS from the first settings that have it, else EOS in the same way."""
    for name in ("bos_token_id", "eos_token_id"):
        for given in settings:
            token = given.get(name)
            tokens = [] if token is None else torch.as_tensor(token).flatten().tolist()
            if tokens:
                return int(tokens[0])
    raise ValueError("an empty prompt needs a bos_token_id or an eos_token_id; set one in generation_config")
