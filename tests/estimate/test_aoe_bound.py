"""The bound of autonomous experts against parameters and operations counted on models."""

import pytest

from loriini.estimate.aoe_bound import DeviceRates, aoe_speed_bound, aoe_width
from loriini.model.experts import FactorizedExperts, SwigluExperts


def test_equal_parameters() -> None:
    wide = FactorizedExperts(4, 64, round(aoe_width(64, 176, 16)), 16)
    plain = SwigluExperts(4, 64, 176)
    counts = [sum(p.numel() for p in experts.parameters()) for experts in (wide, plain)]
    assert counts[0] == pytest.approx(counts[1], rel=0.01)


@pytest.mark.parametrize(("r", "extra"), [(64, 0.0227), (256, 0.0909)])
def test_without_memory_traffic_only_the_unselected_experts_low_rank_products_count(
    r: int, extra: float
) -> None:
    bound = aoe_speed_bound(1024, 2816, r, 8, 2, DeviceRates(flops=1.0, bandwidth=1e30))
    assert 1 / bound - 1 == pytest.approx(extra, rel=0.01)


def test_without_operations_width_and_norms_count() -> None:
    bound = aoe_speed_bound(1024, 2816, 64, 8, 2, DeviceRates(flops=1e30, bandwidth=1.0))
    extra = (14 * 2 * (aoe_width(1024, 2816, 64) - 2816) + 3 * 8 * 64) / (14 * 2 * 2816)
    assert 1 / bound - 1 == pytest.approx(extra)
