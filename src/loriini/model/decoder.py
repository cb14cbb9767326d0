"""The decoder: transformers' attention, norms, positions, masks and cache; our mixtures."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.output_capturing import capture_outputs

from loriini.model.arguments import check_names
from loriini.model.block import BLOCKS
from loriini.model.configuration import LoriiniConfig
from loriini.model.context import additive_mask, routing_context
from loriini.model.generate.cache import CACHE, routed_cache
from loriini.model.mixture import Mixture
from loriini.model.outputs import DecoderOutput
from loriini.model.weights.initialization import draw_weights
from loriini.routing import Routing
from loriini.routing.unit import RoutingContext, UnitLayout, unit_layout


class LoriiniDecoderLayer(GradientCheckpointingLayer):
    """Attention and mixture, each with a norm before it and a residual connection around it."""

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
        own = None if cache is None else cache.layers[self.layer_idx]
        y_BLD, routing = self.mlp(
            self.post_attention_layernorm(x_BLD), context, layout, first_layer_routing, own
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
    _can_record_outputs = {"hidden_states": LoriiniDecoderLayer, "attentions": "self_attn"}  # noqa: RUF012

    def __init__(self, config: LoriiniConfig, *args: Any, **kwargs: Any) -> None:
        config.resolve()  # it may have been changed since it was made
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
    """The decoder without its output head; `LoriiniConfig` explains its settings."""

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LoriiniDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = BLOCKS[config.block].norm(config)
        self.positions = BLOCKS[config.block].positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.router_seed: Tensor | None
        seed = torch.zeros((), dtype=torch.long) if config.routing.scorer == "random" else None
        self.register_buffer("router_seed", seed)
        self.gradient_checkpointing = False
        self.post_init()

    @property
    def mixtures(self) -> list[Mixture]:
        """The MoE layers, first to last."""
        return [cast(LoriiniDecoderLayer, layer).mlp for layer in self.layers]

    def set_router_seed(self, seed: int) -> None:
        """Seed random routers: seeds below 2^30 start far apart, and away from the seeds of evaluation."""
        if self.router_seed is not None:
            self.router_seed.fill_((1 + seed % (1 << 30)) << 32)

    def begin_step(self) -> None:
        """Redraw random routers; call it once before each optimizer step."""
        if self.router_seed is not None:
            self.router_seed += 1

    def _router_seed(self, router_seeds: Tensor | None) -> Tensor | int:
        """The seed of random routers: the step's in training; else each sequence's, or 0 for all."""
        if self.training and self.router_seed is not None:
            return self.router_seed.clone()
        return 0 if router_seeds is None else router_seeds

    @capture_outputs
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
        router_seeds: Tensor | None = None,
        prompt_lengths: Tensor | None = None,
        inference_routing: str | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> DecoderOutput:
        """Ids (B, L) or embeddings (B, L, D) to states; see `LoriiniForCausalLM.forward`."""
        asked = self.config.output_attentions if output_attentions is None else output_attentions
        if asked and self.config._attn_implementation != "eager":
            raise ValueError(
                "output_attentions needs weights that only eager attention holds: "
                "model.set_attn_implementation('eager')"
            )
        check_names(kwargs)
        x_BLD = self._embed(input_ids, inputs_embeds)
        cache = routed_cache(cache, past_key_values, use_cache, self.config.num_hidden_layers)
        context = routing_context(
            self.config,
            x_BLD,
            attention_mask,
            cache,
            position_ids=position_ids,
            routing_labels=routing_labels,
            prompt_lengths=prompt_lengths,
            inference_routing=inference_routing,
            router_seed=self._router_seed(router_seeds),
        )
        x_BLD, attention = self._prepare(x_BLD, context, attention_mask, position_ids, cache)
        attention = {**attention, **kwargs, CACHE: cache}
        x_BLD, routings = self._run_layers(x_BLD, context, attention)
        return DecoderOutput(x_BLD, **{CACHE: cache}, routings=routings, context=context)

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """States (B, L, D) of ids or embeddings. ValueError for both or neither, and for empty ones."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass either input_ids or inputs_embeds")
        x_BLD: Tensor = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if 0 in x_BLD.shape[:2]:
            raise ValueError(f"the input is {tuple(x_BLD.shape[:2])}: it has no sequences or no tokens")
        return x_BLD

    def _prepare(
        self,
        x_BLD: Tensor,
        context: RoutingContext,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        cache: Cache | None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """States with their positions, and the mask and positions of every layer's attention."""
        if context.packed and attention_mask is not None and attention_mask.dim() == 2:
            attention_mask = None  # positions separate documents and padding
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x_BLD,
            attention_mask=attention_mask,
            **{CACHE: cache},
            # given these, transformers asks the device whether rows hold several documents
            position_ids=context.position_ids() if context.packed else None,
        )
        mask = additive_mask(mask, x_BLD)
        position_ids = context.position_ids() if position_ids is None else position_ids
        x_BLD, position_arguments = self.positions(x_BLD, position_ids)
        arguments = {"attention_mask": mask, "position_ids": position_ids, **position_arguments}
        return self.dropout(x_BLD), arguments

    def _run_layers(
        self, x_BLD: Tensor, context: RoutingContext, attention: dict[str, Any]
    ) -> tuple[Tensor, tuple[Routing, ...]]:
        """The last states and every layer's routing."""
        layout = unit_layout(self.config.design, context)
        routings: list[Routing] = []
        for layer in self.layers[: self.config.num_hidden_layers]:  # fewer for `assistant_early_exit`
            first = routings[0] if routings and self.config.design.scope == "global" else None
            x_BLD, routing = layer(x_BLD, context, layout, first, **attention)
            routings.append(routing)
        return self.norm(x_BLD), tuple(routings)
