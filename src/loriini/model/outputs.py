"""What the language model and its decoder return."""

from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from loriini.routing import Routing
from loriini.routing.unit import RoutingContext


@dataclass
class LoriiniOutput(CausalLMOutputWithPast):
    """transformers' output and `routings`: one `Routing` a layer.

    `loss` is the mean `cross_entropy` plus, in training, the weighted auxiliary losses and z-loss of the
    output logits, or with reduction `none` each target's cross-entropy (B, L). `auxiliary_loss` and
    `output_z_loss` are these losses alone; where there is a z-loss, it and `cross_entropy` are values without
    gradient. In training `auxiliary_loss` is there without labels too, for losses computed from the logits.
    """

    auxiliary_loss: Tensor | None = None
    routings: tuple[Routing, ...] | None = None
    cross_entropy: Tensor | None = None
    output_z_loss: Tensor | None = None


@dataclass
class DecoderOutput(BaseModelOutputWithPast):
    """transformers' output, one `Routing` a layer, and the context that they were made in."""

    routings: tuple[Routing, ...] | None = None
    context: RoutingContext | None = None
