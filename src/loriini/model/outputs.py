"""What the language model and its decoder return."""

from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from loriini.routing import Routing
from loriini.routing.unit import RoutingContext


@dataclass
class LoriiniOutput(CausalLMOutputWithPast):
    """transformers' output and `routings`: one `Routing` per layer.

    `loss` is the mean `cross_entropy` plus, in training, the weighted auxiliary losses and z-loss of the
    output logits; with reduction `none` it is each target's cross-entropy (B, L). `auxiliary_loss` and
    `output_z_loss` are those terms alone. If there is a z-loss, it and `cross_entropy` have no gradient. In
    training `auxiliary_loss` is also given without labels, for a loss that you compute from the logits.
    """

    auxiliary_loss: Tensor | None = None
    routings: tuple[Routing, ...] | None = None
    cross_entropy: Tensor | None = None
    output_z_loss: Tensor | None = None


@dataclass
class DecoderOutput(BaseModelOutputWithPast):
    """transformers' output, one `Routing` per layer, and the context of the call."""

    routings: tuple[Routing, ...] | None = None
    context: RoutingContext | None = None
