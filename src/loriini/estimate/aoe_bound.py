"""How fast autonomous experts can be, relative to a top-k mixture of as many parameters.

Axes: d model width, f expert width, r low rank, E experts, k of them for a token.
"""

from dataclasses import dataclass

ELEMENTWISE_PASSES = 14
"""Reads and writes of hidden states in SiLU and its product: 5 forward, 9 backward."""
NORM_PASSES = 3
"""Reads and writes of all low-rank activations for their norms: 1 forward, 2 backward."""


@dataclass(frozen=True)
class DeviceRates:
    """Floating-point operations and bytes per second that a device reaches."""

    flops: float
    bandwidth: float
    itemsize: int = 2


def aoe_width(d: int, f: int, r: int) -> float:
    """The width at which factorised experts have the parameters of SwiGLU experts of width f."""
    return (3 * d * f - d * r) / (2 * d + r)


def aoe_speed_bound(d: int, f: int, r: int, E: int, k: int, rates: DeviceRates) -> float:
    """The largest speed of AoE's FFNs in training relative to top-k's; 1 is as fast.

    The experts' products cost as much, since they have as many parameters. AoE adds the low-rank products of
    the E - k experts that a token does not select, 2dr(E - k) operations forward and twice that backward; the
    elementwise work of wider experts; and the norms of E·r activations.
    """
    products = 18 * d * f * k / rates.flops
    elementwise = ELEMENTWISE_PASSES * f * k * rates.itemsize / rates.bandwidth
    more_products = 6 * d * r * (E - k) / rates.flops
    wider = ELEMENTWISE_PASSES * (aoe_width(d, f, r) - f) * k * rates.itemsize / rates.bandwidth
    norms = NORM_PASSES * E * r * rates.itemsize / rates.bandwidth
    top_k = products + elementwise
    return top_k / (top_k + more_products + wider + norms)
