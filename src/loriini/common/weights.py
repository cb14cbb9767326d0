"""A check of weights read from files."""

from torch import nn


def check_weights(model: nn.Module) -> None:
    """ValueError for a weight that is NaN or infinite; the check allocates no tensor of its size."""
    for name, weight in model.named_parameters():
        if weight.numel() and not all(end.isfinite() for end in weight.detach().aminmax()):
            raise ValueError(f"{name} holds NaN or infinity")
