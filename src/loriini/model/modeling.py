"""The language model: a decoder of mixtures, an output head and the loss of next tokens."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils import can_return_tuple

from loriini.model.configuration import LoriiniConfig
from loriini.model.decoder import LoriiniModel, LoriiniPreTrainedModel
from loriini.model.generate.cache import CACHE
from loriini.model.generate.generation import RoutedGenerationMixin
from loriini.model.loss import (
    IGNORE_INDEX,
    CallLoss,
    Targets,
    add_z_loss,
    fused_loss,
    loss_parts,
    reads_weights_alone,
    targets_of,
    token_losses,
)
from loriini.model.outputs import LoriiniOutput
from loriini.routing.losses import Average, auxiliary_loss


class LoriiniForCausalLM(LoriiniPreTrainedModel, RoutedGenerationMixin):
    """The language model: a decoder of mixtures and an output head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LoriiniConfig) -> None:
        super().__init__(config)
        self.model = LoriiniModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.lm_head_bias)
        self.fused_loss = fused_loss
        self.post_init()

    @can_return_tuple
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
        **kwargs: Any,
    ) -> LoriiniOutput:
        """Ids (B, L) to logits (B, L, V), a loss where there are labels, and every layer's `Routing`.

        - `position_ids` (B, L) or (1, L): a document begins wherever they start again within a row.
        - `labels` (B, L), to be shifted by one, or `shift_labels` (B, L), already shifted; -100 is ignored.
        - `routing_labels` (B,): each sequence's expert, for the label scorer.
        - `router_seeds` (B,): each sequence's seed of a random router in evaluation; by default one for all.
        - `prompt_lengths` (B,): how many of each sequence's first tokens, without padding, route it.
        - `cache` (`past_key_values` before transformers 5.24): an empty `DynamicCache`, or one filled here.
        - `use_cache`: make a cache and return it. The configuration's `use_cache` is for `generate` alone, as
          the call that fills a cache takes its tokens as the prompt by which they are routed.
        - `inference_routing`: `prompt`, or `segment` to decide again whenever a segment is full.
        - `logits_to_keep`: how many last positions get logits, or indices of the positions that do; 0: all.
        - `skip_logits`: with labels, neither hold nor return all logits, if the output head is not wrapped.
        - `reduction`: `none` returns each target's cross-entropy (B, L) as the loss, and no logits.
        - `average`: averages a statistic of this call's routing over processes.
        - `num_items_in_batch`: targets in all calls of a batch, whose losses then add up to the batch's.
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
        at = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep  # -0: all
        states = out.last_hidden_state[:, at]
        if shift_labels is None and labels is not None:
            shift_labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORE_INDEX)
        skips = reduction == "none" or (skip_logits and reads_weights_alone(self.lm_head))
        logits = None if skips and shift_labels is not None else self.lm_head(states)
        weighed = shift_labels is not None or self.training
        auxiliary = auxiliary_loss(out.routings, self.config.design, average) if weighed else None
        losses: dict[str, Any] = {}
        if shift_labels is not None:
            skipped = self.config.skipped_positions if self.training else 0
            labels_BL = shift_labels.contiguous()
            targets = targets_of(labels_BL, states, out.context, skipped, num_items_in_batch)
            call = self._loss(states, logits, targets, reduction)
            if auxiliary is not None and self.training and reduction == "mean":
                call = call._replace(loss=call.loss + auxiliary * targets.share)
            losses = call._asdict()
        return LoriiniOutput(
            logits=logits,
            auxiliary_loss=auxiliary,
            **losses,
            **{CACHE: getattr(out, CACHE)},
            hidden_states=out.hidden_states,
            attentions=out.attentions,
            routings=out.routings,
        )

    def _loss(
        self, states_BLD: Tensor, logits_BLV: Tensor | None, targets: Targets, reduction: str
    ) -> CallLoss:
        """The cross-entropy of a call and, in training, the z-loss; from the logits if given."""
        z = self.config.output_z if self.training else 0.0
        head, ids_BL, divisor = self.lm_head, targets.ids_BL, targets.divisor
        if logits_BLV is not None:
            arguments = {"num_items_in_batch": divisor, "shift_labels": ids_BL}
            mean: Tensor = self.loss_function(logits_BLV, None, self.vocab_size, **arguments)
            return add_z_loss(mean, logits_BLV, ids_BL, divisor, z)
        if reduction == "mean" and (torch.is_grad_enabled() or z):
            return self.fused_loss(states_BLD, head.weight, ids_BL, divisor, head.bias, z=z)
        losses_BL = token_losses(states_BLD, head, ids_BL, self.vocab_size)
        return loss_parts(losses_BL if reduction == "none" else losses_BL.sum() / divisor)
