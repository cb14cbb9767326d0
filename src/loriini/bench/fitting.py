"""Which training steps the accelerator's memory holds, by the estimate of `--micro_batch_size auto`."""

from loriini.bench.models import run_config
from loriini.common.hardware import pick_device
from loriini.common.progress import warn
from loriini.estimate.choice import MARGIN, memory_here, needed_memory
from loriini.estimate.memory import GIB
from loriini.train.config import AUTO, TrainConfig


def that_fits(run: TrainConfig) -> TrainConfig | None:
    """The run, whose merged weights are kept or, where that is `auto` and needs too much, recomputed.

    None, with a warning, where the GPU's memory holds neither. On a CPU all fit.
    """
    config, instances, own = run_config(run), run.instances_at_once(), run.model.recompute_merge
    if pick_device().type != "cuda":
        return run.chosen(instances, own is True)
    limit, needed = (1 - MARGIN) * memory_here(), 0.0
    for recompute in (False, True) if config.merges and own == AUTO else (own is True,):
        needed = needed_memory(run, config, 1, instances, recompute)
        if needed <= limit:
            return run.chosen(instances, recompute)
    warn(
        f"{run.name}, {config.num_experts} experts, micro-batches of {instances} instances: left out, since "
        f"they need about {needed / GIB:.0f} GiB, more than {limit / GIB:.0f}"
    )
    return None
