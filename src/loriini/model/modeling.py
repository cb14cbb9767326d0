"""The language model: transformers' attention, norms, positions, masks and cache; our mixtures."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.pytorch_utils import Conv1D

from loriini.model.block import BLOCKS
from loriini.model.configuration import LoriiniConfig
from loriini.model.experts import Experts, FactorizedExperts, GeluExperts
from loriini.model.generation import RoutedGenerationMixin
from loriini.model.loss import IGNORED, fused_loss, next_tokens
from loriini.model.mixture import Mixture, RoutedCacheLayer
from loriini.routing import Routing
from loriini.routing.losses import Average, auxiliary_loss
from loriini.routing.scorer import MLP, Linear
from loriini.routing.unit import Call, Grid


@dataclass
class LoriiniOutput(CausalLMOutputWithPast):
    """transformers' output and `routings`: one `Routing` a layer.

    `loss` is the mean cross-entropy plus, in training, the weighted auxiliary losses, which `auxiliary_loss`
    gives alone. `prompt_lengths` (B,) is the prompt that was routed by, when one was.
    """

    auxiliary_loss: Tensor | None = None
    routings: tuple[Routing, ...] | None = None
    prompt_lengths: Tensor | None = None


@dataclass
class ModelOutput:
    """What the decoder returns: final states (B, L, D), its cache, its decisions, and how it was called."""

    last_hidden_state: Tensor
    past_key_values: Cache | None
    routings: tuple[Routing, ...]
    call: Call


class LoriiniDecoderLayer(GradientCheckpointingLayer):
    """Attention and mixture, each behind its norm and beside its residual."""

    def __init__(self, config: LoriiniConfig, layer_idx: int) -> None:
        super().__init__()
        block = BLOCKS[config.block]
        self.self_attn = block.attention(config, layer_idx)
        self.mlp = Mixture(config, layer_idx)
        self.input_layernorm = block.norm(config)
        self.post_attention_layernorm = block.norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.layer_idx = layer_idx

    def forward(
        self,
        x_BLD: Tensor,
        call: Call,
        grid: Grid,
        routing: Routing | None,
        past_key_values: Cache | None = None,
        **attention: Any,
    ) -> tuple[Tensor, Routing]:
        """States (B, L, D) to states and this layer's decisions."""
        normed = self.input_layernorm(x_BLD)
        x_BLD = x_BLD + self.self_attn(normed, past_key_values=past_key_values, **attention)[0]
        cache = None if past_key_values is None else past_key_values.layers[self.layer_idx]
        y_BLD, routing = self.mlp(self.post_attention_layernorm(x_BLD), call, grid, routing, cache)
        return x_BLD + self.dropout(y_BLD), routing


class LoriiniPreTrainedModel(PreTrainedModel):
    """Weight initialisation and what transformers asks to know."""

    config: LoriiniConfig
    config_class = LoriiniConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("LoriiniDecoderLayer",)
    _skip_keys_device_placement = ("past_key_values",)
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Experts | Linear | MLP | Conv1D):
            for name, weight in module.named_parameters(recurse=False):
                if name.endswith("bias"):
                    init.zeros_(weight)
                else:
                    init.normal_(weight, mean=0.0, std=self.config.initializer_range)
        # GPT-2 scales down what adds to the residual stream: two branches a layer.
        residual = self.config.initializer_range / (2 * self.config.num_hidden_layers) ** 0.5
        if isinstance(module, GPT2Attention):
            init.normal_(module.c_proj.weight, mean=0.0, std=residual)
        elif isinstance(module, GeluExperts):
            init.normal_(module.down_proj, mean=0.0, std=residual)
        elif isinstance(module, FactorizedExperts):
            # The product of factors of deviation s has √r s²; it is to have a full gate projection's.
            factor = (self.config.initializer_range / module.low_proj.shape[1] ** 0.5) ** 0.5
            init.normal_(module.low_proj, mean=0.0, std=factor)
            init.normal_(module.gate_proj, mean=0.0, std=factor)


class LoriiniModel(LoriiniPreTrainedModel):
    """The decoder without its output head."""

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(LoriiniDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = BLOCKS[config.block].norm(config)
        self.positions = BLOCKS[config.block].positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("draws", torch.zeros((), dtype=torch.long))
        self.gradient_checkpointing = False
        self.post_init()

    @property
    def mixtures(self) -> list[Mixture]:
        """The MoE layers, first to last."""
        return [cast(LoriiniDecoderLayer, layer).mlp for layer in self.layers]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        routing_labels: Tensor | None = None,
        prompt_lengths: Tensor | None = None,
        inference_routing: str | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Ids (B, L) or embeddings (B, L, D) to states; see `LoriiniForCausalLM.forward`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass either input_ids or inputs_embeds")
        x_BLD = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        past = prepare_cache(past_key_values, self.config)
        call = self._call(
            x_BLD, attention_mask, past_key_values, past, routing_labels, prompt_lengths, inference_routing
        )
        grid = call.grid(self.config.routing)
        if position_ids is None:
            position_ids = call.position_ids(x_BLD.device)
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x_BLD,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        x_BLD, placed = self.positions(x_BLD, position_ids)
        x_BLD = self.dropout(x_BLD)
        routing, routings = None, []
        for layer in self.layers:
            x_BLD, routing = layer(
                x_BLD,
                call,
                grid,
                routing if self.config.routing.scope == "global" else None,
                past_key_values=past_key_values,
                attention_mask=mask,
                position_ids=position_ids,
                **placed,
                **kwargs,
            )
            routings.append(routing)
        return ModelOutput(self.norm(x_BLD), past_key_values, tuple(routings), call)

    def _call(
        self,
        x_BLD: Tensor,
        attention_mask: Tensor | None,
        cache: Cache | None,
        past: int,
        labels: Tensor | None,
        prompt_lengths: Tensor | None,
        mode: str | None,
    ) -> Call:
        """What routing must know of this call; the first call that fills a cache is its prompt."""
        if mode not in (None, "prompt", "segment"):
            raise ValueError(f"inference_routing is {mode!r}; it is 'prompt' or 'segment'")
        routing = self.config.routing
        if mode == "segment" and routing.unit == "sequence":
            raise ValueError(
                "inference_routing='segment' needs a design that routes segments; this one routes sequences"
            )
        B, L = x_BLD.shape[:2]
        positions = None
        if attention_mask is not None and attention_mask.dim() == 2 and not bool(attention_mask.all()):
            counted = attention_mask.to(torch.long)
            positions = (counted.cumsum(1) - 1).masked_fill(counted == 0, -1)
        if cache is not None:
            full = torch.full((B,), L, device=x_BLD.device)
            here = full if positions is None else (positions >= 0).sum(1)
            prompt_lengths = cached_prompt(cache, past, here, prompt_lengths, mode)
        if prompt_lengths is not None:
            prompt_lengths = prompt_lengths.to(x_BLD.device)
        else:
            mode = None
        drawn = self.training and routing.scorer == "random"
        if drawn:
            self.draws += 1
        return Call(
            batch=B,
            length=L,
            past=past,
            positions_BH=positions,
            prompt_lengths_B=prompt_lengths,
            labels_B=labels,
            draw=self.draws.clone() if drawn else 0,
            routing=mode or ("training" if prompt_lengths is None else "prompt"),
        )


class LoriiniForCausalLM(LoriiniPreTrainedModel, RoutedGenerationMixin):
    """The language model: a decoder of mixtures and an output head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.model = LoriiniModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        routing_labels: Tensor | None = None,
        prompt_lengths: Tensor | None = None,
        inference_routing: str | None = None,
        skip_logits: bool = False,
        average: Average | None = None,
        **kwargs: Any,
    ) -> LoriiniOutput:
        """Ids (B, L) to logits (B, L, V), a loss where there are labels, and every layer's `Routing`.

        - `labels` (B, L) are shifted inside; `shift_labels` (B, L) already are. -100 is left out.
        - `routing_labels` (B,): the expert of each sequence, for the label scorer.
        - `prompt_lengths` (B,): one decision a layer and sequence, pooled over its first tokens, padding left
          out. Without it a call without a cache routes as in training, and the first call that fills a cache
          is the prompt.
        - `inference_routing`: `prompt`, or `segment` to decide again whenever a segment is full.
        - `skip_logits`: where there are labels, the loss comes from a fused head and there are no logits.
        - `average`: takes statistics of this call's routing to their mean over processes, for losses of a
          batch that is spread over several.
        """
        out = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            use_cache,
            routing_labels,
            prompt_lengths,
            inference_routing,
            **{k: v for k, v in kwargs.items() if k != "num_items_in_batch"},
        )
        states = out.last_hidden_state
        if not isinstance(logits_to_keep, int):
            states = states[:, logits_to_keep]
        elif logits_to_keep:
            states = states[:, -logits_to_keep:]
        if shift_labels is None and labels is not None:
            shift_labels = next_tokens(labels)
        fused = skip_logits and shift_labels is not None
        logits = None if fused else self.lm_head(states)
        loss = auxiliary = None
        if shift_labels is not None:
            targets, items = self._targets(shift_labels, out.call), kwargs.get("num_items_in_batch")
            if fused:
                loss = fused_loss(states, self.lm_head.weight, targets, items)
            else:
                loss = self.loss_function(
                    logits, None, self.vocab_size, num_items_in_batch=items, shift_labels=targets
                )
            routing = self.config.routing
            auxiliary = auxiliary_loss(out.routings, routing, average) if self._routes() else None
            if auxiliary is not None and self.training:
                loss = loss + auxiliary
        return LoriiniOutput(
            loss=loss,
            logits=logits,
            past_key_values=out.past_key_values,
            auxiliary_loss=auxiliary,
            routings=out.routings,
            prompt_lengths=out.call.prompt_lengths_B,
        )

    def _routes(self) -> bool:
        return self.config.num_experts > 1

    def _targets(self, targets_BL: Tensor, call: Call) -> Tensor:
        """The targets that count."""
        routing = self.config.routing
        if self.training and self._routes() and routing.segmented and routing.first_segment == "skip_loss":
            in_first = call.positions().to(targets_BL.device)[:, call.past :] < routing.segment_length
            targets_BL = targets_BL.masked_fill(in_first, IGNORED)
        return targets_BL.contiguous()


def cached_prompt(cache: Cache, past: int, here: Tensor, given: Tensor | None, mode: str | None) -> Tensor:
    """The lengths (B,) of the prompts in a cache: those of its first call, `given` or its tokens `here`."""
    state = cast(RoutedCacheLayer, cache.layers[0]).routing
    if past == 0:
        state["prompt_lengths"] = here if given is None else given
        if mode != "segment" and bool((state["prompt_lengths"] > here).any()):
            raise ValueError("a prompt must be given whole: its first call has fewer tokens than it")
    return state["prompt_lengths"]


def prepare_cache(cache: Cache | None, config: LoriiniConfig) -> int:
    """Let an empty cache carry routing too; returns the number of tokens in it."""
    if cache is None:
        return 0
    past = cache.get_seq_length()
    if past == 0 and not all(isinstance(layer, RoutedCacheLayer) for layer in cache.layers or [None]):
        cache.layers = [RoutedCacheLayer() for _ in range(config.num_hidden_layers)]
    if not all(isinstance(layer, RoutedCacheLayer) for layer in cache.layers):
        raise ValueError("this cache was filled by another model; start from an empty DynamicCache()")
    return past
