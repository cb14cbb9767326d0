"""The language model: transformers' attention, norms, positions, masks and cache; our mixtures."""

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from loriini.model.arguments import check_attention, check_names, check_paged
from loriini.model.block import BLOCKS
from loriini.model.cache import CACHE, routed_cache
from loriini.model.configuration import LoriiniConfig
from loriini.model.context import additive_mask, routing_context
from loriini.model.generation import RoutedGenerationMixin
from loriini.model.initialization import draw_weights
from loriini.model.loss import (
    add_z_loss,
    call_loss,
    counted_items,
    counted_targets,
    kept_states,
    loss_in_parts,
    loss_of_rows,
    next_tokens,
    reads_weights_alone,
    share_of_batch,
    token_losses,
)
from loriini.model.mixture import Mixture
from loriini.model.outputs import DecoderOutput, LoriiniOutput
from loriini.routing import Routing
from loriini.routing.losses import Average, auxiliary_loss
from loriini.routing.unit import RoutingContext, UnitLayout, unit_layout


class LoriiniDecoderLayer(GradientCheckpointingLayer):
    """Attention and mixture, each with its norm before it and a residual connection around it."""

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
        context: RoutingContext,
        layout: UnitLayout,
        first_layer_routing: Routing | None,
        **attention: Any,
    ) -> tuple[Tensor, Routing]:
        """States (B, L, D) to states and this layer's decisions."""
        x_BLD = x_BLD + self.self_attn(self.input_layernorm(x_BLD), **attention)[0]
        cache = attention.get(CACHE)
        routed = cache.layers[self.layer_idx] if isinstance(cache, Cache) else None
        y_BLD, routing = self.mlp(
            self.post_attention_layernorm(x_BLD), context, layout, first_layer_routing, routed
        )
        return x_BLD + self.dropout(y_BLD), routing


class LoriiniPreTrainedModel(PreTrainedModel):
    """Weight initialisation and the settings that transformers asks for."""

    config: LoriiniConfig
    config_class = LoriiniConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("LoriiniDecoderLayer",)
    _skip_keys_device_placement = (CACHE,)
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: LoriiniConfig, *args: Any, **kwargs: Any) -> None:
        config.check()  # it may have been changed since it was made
        super().__init__(config, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        draw_weights(module, self.config)

    def _replicate_for_data_parallel(self) -> Any:
        """RuntimeError: `nn.DataParallel`, Trainer's choice for several GPUs, cannot gather routings."""
        raise RuntimeError(
            "nn.DataParallel cannot gather routings; start the script with torchrun, or set "
            "CUDA_VISIBLE_DEVICES=0 to train on one GPU"
        )

    def _set_gradient_checkpointing(self, *args: Any, **kwargs: Any) -> None:
        """ValueError for reentrant checkpoints, which drop the gradients of a layer's `Routing`."""
        checkpoint = kwargs.get("gradient_checkpointing_func")
        if getattr(checkpoint, "keywords", {"use_reentrant": False}).get("use_reentrant", True):
            raise ValueError("use_reentrant=True drops gradients of routing; pass use_reentrant=False")
        super()._set_gradient_checkpointing(*args, **kwargs)


class LoriiniModel(LoriiniPreTrainedModel):
    """The decoder without its output head."""

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LoriiniDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = BLOCKS[config.block].norm(config)
        self.positions = BLOCKS[config.block].positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.draws: Tensor | None
        drawn = torch.zeros((), dtype=torch.long) if config.routing.scorer == "random" else None
        self.register_buffer("draws", drawn)
        self.gradient_checkpointing = False
        self.post_init()

    @property
    def mixtures(self) -> list[Mixture]:
        """The MoE layers, first to last."""
        return [cast(LoriiniDecoderLayer, layer).mlp for layer in self.layers]

    def start_draws(self, seed: int) -> None:
        """Give random routers draws that no other seed below 2^30, nor evaluation, uses."""
        if self.draws is not None:
            self.draws.fill_((1 + seed % (1 << 30)) << 32)

    def begin_step(self) -> None:
        """Redraw random routers; call it once before each optimizer step."""
        if self.draws is not None:
            self.draws += 1

    def _draw(self, routing_draws: Tensor | None) -> Tensor | int:
        """What a random router draws: the step's in training, else that of each sequence or one for all."""
        if self.training and self.draws is not None:
            return self.draws.clone()
        return 0 if routing_draws is None else routing_draws

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        routing_labels: Tensor | None = None,
        routing_draws: Tensor | None = None,
        prompt_lengths: Tensor | None = None,
        inference_routing: str | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> DecoderOutput | tuple[Any, ...]:
        """Ids (B, L) or embeddings (B, L, D) to states; see `LoriiniForCausalLM.forward`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass either input_ids or inputs_embeds")
        if _given(output_attentions, self.config.output_attentions):
            raise ValueError("output_attentions is not supported: attention weights are never held whole")
        x_BLD = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if 0 in x_BLD.shape[:2]:
            raise ValueError(f"the input is {tuple(x_BLD.shape[:2])}: it has no sequences or no tokens")
        cache = routed_cache(cache, past_key_values, use_cache, self.config.num_hidden_layers)
        routed = cache if isinstance(cache, Cache) else None
        paged = cache is not routed
        if paged:
            check_paged(self.config)
        context = routing_context(
            self.config,
            x_BLD,
            attention_mask,
            routed,
            position_ids=position_ids,
            routing_labels=routing_labels,
            prompt_lengths=prompt_lengths,
            inference_routing=inference_routing,
            draw=self._draw(routing_draws),
        )
        check_attention(self.config, context)
        check_names(kwargs)
        mask = self._causal_mask(x_BLD, context, attention_mask, routed)
        position_ids = context.position_ids() if position_ids is None else position_ids
        x_BLD, position_arguments = self.positions(x_BLD, position_ids)
        attention = {"attention_mask": mask, "position_ids": position_ids, **position_arguments, **kwargs}
        attention["cache" if paged else CACHE] = cache
        x_BLD = self.dropout(x_BLD)
        layout = unit_layout(self.config.routing, context)
        routings: list[Routing] = []
        states, keeps_states = [x_BLD], _given(output_hidden_states, self.config.output_hidden_states)
        for layer in self.layers[: self.config.num_hidden_layers]:  # fewer for `assistant_early_exit`
            first = routings[0] if routings and self.config.routing.scope == "global" else None
            x_BLD, routing = layer(x_BLD, context, layout, first, **attention)
            routings.append(routing)
            states = [*states, x_BLD] if keeps_states else states
        x_BLD = self.norm(x_BLD)
        out = DecoderOutput(
            last_hidden_state=x_BLD,
            **{CACHE: routed},
            hidden_states=(*states[:-1], x_BLD) if keeps_states else None,
            routings=tuple(routings),
            context=context,
        )
        return out if _given(return_dict, self.config.return_dict) else out.to_tuple()

    def _causal_mask(
        self, x_BLD: Tensor, context: RoutingContext, attention_mask: Tensor | None, cache: Cache | None
    ) -> Any:
        """transformers' mask; in packed rows, positions separate documents and padding."""
        if context.packed and attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = None
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x_BLD,
            attention_mask=attention_mask,
            **{CACHE: cache},
            # of one document a row transformers would ask the device whether they are several
            position_ids=context.position_ids() if context.packed else None,
        )
        return additive_mask(mask, x_BLD)


def _given(argument: bool | None, default: bool) -> bool:
    """An argument of a call, or the configuration's value where it is None."""
    return default if argument is None else argument


class LoriiniForCausalLM(LoriiniPreTrainedModel, RoutedGenerationMixin):
    """The language model: a decoder of mixtures and an output head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.model = LoriiniModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.loss_of_rows = loss_of_rows
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        cache: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        prompt_lengths: Tensor | None = None,
        inference_routing: str | None = None,
        skip_logits: bool = False,
        reduction: Literal["mean", "none"] = "mean",
        average: Average | None = None,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> LoriiniOutput | tuple[Any, ...]:
        """Ids (B, L) to logits (B, L, V), a loss where there are labels, and every layer's `Routing`.

        - `position_ids` (B, L) or (1, L): a document begins wherever they start again within a row.
        - `labels` (B, L), to be shifted by one, or `shift_labels` (B, L), already shifted; -100 is ignored.
        - `routing_labels` (B,): each sequence's expert, for the label scorer.
        - `routing_draws` (B,): each sequence's draw of a random router in evaluation; by default one for all.
        - `prompt_lengths` (B,): how many of each sequence's first tokens, without padding, route it.
        - `cache` (`past_key_values` before transformers 5.24): an empty `DynamicCache`, or one filled here.
        - `use_cache`: make a cache and return it. The configuration's `use_cache` is for `generate` alone: a
          call that fills a cache takes its tokens for the prompt that routes them.
        - `inference_routing`: `prompt`, or `segment` to decide again whenever a segment is full.
        - `logits_to_keep`: how many last positions get logits, or the indices of those that do; 0: all.
        - `skip_logits`: with labels, neither hold nor return all logits, if the output head is not wrapped.
        - `reduction`: `none` returns each target's cross-entropy (B, L) as the loss, and no logits.
        - `average`: takes a statistic of this call's routing to its mean over processes.
        - `num_items_in_batch`: targets of all calls of a batch, whose losses then add up to the batch's.
        """
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction is {reduction!r}; it must be 'mean' or 'none'")
        # Not in the signature: transformers' Trainer would require every label that it finds there.
        shift_labels: Tensor | None = kwargs.pop("shift_labels", None)
        out = self.model(
            input_ids,
            attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            prompt_lengths=prompt_lengths,
            inference_routing=inference_routing,
            return_dict=True,
            **kwargs,
        )
        states = kept_states(out.last_hidden_state, logits_to_keep)
        if shift_labels is None and labels is not None:
            shift_labels = next_tokens(labels)
        skips = reduction == "none" or (skip_logits and reads_weights_alone(self.lm_head))
        logits = None if skips and shift_labels is not None else self.lm_head(states)
        losses: dict[str, Any] = {}
        if shift_labels is not None or self.training:
            losses = {"auxiliary_loss": auxiliary_loss(out.routings, self.config.design, average)}
        if shift_labels is not None:
            labels_BL, auxiliary = shift_labels.contiguous(), losses["auxiliary_loss"]
            losses |= self._losses(states, logits, labels_BL, out, reduction, num_items_in_batch, auxiliary)
        output = LoriiniOutput(
            logits=logits,
            **losses,
            **{CACHE: getattr(out, CACHE)},
            hidden_states=out.hidden_states,
            routings=out.routings,
        )
        return output if _given(return_dict, self.config.return_dict) else output.to_tuple()

    def _losses(
        self,
        states_BLD: Tensor,
        logits_BLV: Tensor | None,
        labels_BL: Tensor,
        out: DecoderOutput,
        reduction: str,
        items: Tensor | int | None,
        auxiliary: Tensor | None,
    ) -> dict[str, Any]:
        """The losses of a call with labels, by the names of its output's fields."""
        assert out.context is not None
        items = items if items is None else items + (items == 0)  # a batch without targets has a loss of 0
        targets_BL = counted_targets(labels_BL, states_BLD, out.context, self.config, self.training)
        counted = counted_items(labels_BL, targets_BL, items)
        z = self.config.output_z if self.training else 0.0
        if reduction == "none":
            call = call_loss(token_losses(states_BLD, self.lm_head, targets_BL, self.vocab_size))
        elif logits_BLV is None:
            call = loss_in_parts(states_BLD, self.lm_head, targets_BL, counted, z, self.loss_of_rows)
        else:
            arguments = {"num_items_in_batch": counted, "shift_labels": targets_BL}
            mean: Tensor = self.loss_function(logits_BLV, None, self.vocab_size, **arguments)
            call = add_z_loss(mean, logits_BLV, targets_BL, counted, z)
        loss = call.loss
        if auxiliary is not None and self.training and reduction == "mean":
            loss = loss + share_of_batch(auxiliary, labels_BL, items)
        return {"loss": loss, "cross_entropy": call.cross_entropy, "output_z_loss": call.output_z}
