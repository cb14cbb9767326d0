"""Every setting that the command line can change is described."""

from dataclasses import dataclass, replace

from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig
from loriini.train.overrides.names import Override, describe_overrides
from runs import tiny_run

RUN = tiny_run()


def described(run: TrainConfig) -> dict[str, Override]:
    return {o.name: o for o in describe_overrides(run)}


def test_every_override_is_described_by_its_default_in_the_run() -> None:
    found = described(RUN)
    assert found["optimizer.betas"] == Override(
        "optimizer.betas", "float,float", "0.9,0.95", "AdamW's β₁ and β₂."
    )
    assert found["steps"].default == "10"
    assert found["precision"].type == "auto|bf16|fp32"
    assert (found["model.low_rank"].type, found["model.low_rank"].default) == ("int|none", "none")
    assert found["routing"].default == "as below"
    assert described(replace(RUN, routing=DESIGNS["mixtral"]))["routing"].default == "mixtral"
    assert [name for name, override in found.items() if not override.meaning] == []


@dataclass
class Documented:
    """Two fields."""

    first: int
    second: int
    """Documented
    below."""
