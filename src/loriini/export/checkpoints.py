"""The model of a checkpoint of a run, finished or not, or the mean of several."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.common.checks import as_argument
from loriini.common.errors import InputError
from loriini.common.hub import CHECKPOINTS, RUN
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.loading import readable, tokenizer_in
from loriini.train.checkpoints.model import checkpoint_config, checkpoint_tokenizer
from loriini.train.checkpoints.state import STATE, checkpoints_in, problem_of, step_of
from loriini.train.checkpoints.storage import read_weights
from loriini.train.config import read_run


def load_checkpoints(
    run_folder: Path, steps: Sequence[int]
) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """The model of a run after a step, or the mean of several, in `eval()` on the CPU, and its tokenizer.

    InputError for a folder that is not a run, a step without a checkpoint, a damaged checkpoint, steps from
    both the dense warm-up and the mixture, and a tokenizer missing from the run's model and its corpora.
    """
    folders = [checkpoint_folder(run_folder, step) for step in steps]
    for folder in folders:
        if problem := problem_of(folder):
            raise InputError(f"{folder}: damaged checkpoint ({problem}); choose another --step")
    run, _ = read_run(run_folder / RUN)
    dense = [step for step in steps if run.is_dense_at(step)]
    if 0 < len(dense) < len(steps):
        raise InputError(
            f"--step {as_argument(steps)}: the model of step {dense[0]} is dense, in the warm-up, and has no "
            f"mean with a mixture; give steps after {run.copy_step}"
        )
    found = checkpoint_tokenizer(folders[0])
    if found is None:
        raise InputError(
            f"{run_folder}: its tokenizer is not where its corpora were, and it has no model yet; say where "
            f"they are now with `loriini train --resume {run_folder} --corpus DIR`"
        )
    tokenizer = tokenizer_in(found)
    model = LoriiniForCausalLM(checkpoint_config(folders[0], tokenizer.eos_token_id))
    read_mean(model, folders)
    return model.eval(), tokenizer


def read_mean(model: LoriiniForCausalLM, checkpoints: Sequence[Path]) -> None:
    """Read the mean of the weights in some checkpoints into a model, summed in float64.

    Of counts, such as a random router's draws, the last checkpoint's are kept.
    """
    sums: dict[str, Tensor] = {}
    for folder in checkpoints:
        with readable(folder):
            read_weights(folder, model)
        if len(checkpoints) == 1:
            return
        for name, weight in model.state_dict().items():
            if weight.is_floating_point():
                sums[name] = weight.double() + sums.get(name, 0)
    means = {name: total / len(checkpoints) for name, total in sums.items()}
    model.load_state_dict(means, strict=False)


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint; InputError that lists the steps that have one, or without a run."""
    if not (run_folder / RUN).exists():
        raise InputError(f"{run_folder}: no run here (no {RUN}); --step needs the folder of a run")
    found = checkpoints_in(run_folder / CHECKPOINTS)
    complete = {step_of(path): path for path in found if (path / STATE).exists()}
    if step not in complete:
        none = "the run has none (see --checkpoint.every); leave --step out for its final model"
        there = f"there are: {', '.join(map(str, complete))}" if complete else none
        raise InputError(f"--step {step}: no checkpoint of this step in {run_folder}; {there}")
    return complete[step]
