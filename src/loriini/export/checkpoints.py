"""The model of a checkpoint of a run, finished or not."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.common.folders import CHECKPOINTS, RUN
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.loading import readable, tokenizer_in
from loriini.train.checkpoints.model import checkpoint_model, checkpoint_tokenizer
from loriini.train.checkpoints.state import STATE, checkpoints_in, problem_of, step_of


def load_checkpoint(run_folder: Path, step: int) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """The model of a run after a step, in `eval()` on the CPU, and its tokenizer.

    InputError for a folder that is not a run, a step without a checkpoint, and a damaged checkpoint.
    """
    folder = checkpoint_folder(run_folder, step)
    if problem := problem_of(folder):
        raise InputError(f"{folder}: damaged checkpoint ({problem}); choose another --step")
    with readable(folder):
        return checkpoint_model(folder).eval(), tokenizer_in(checkpoint_tokenizer(folder))


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint. InputError without a run or this checkpoint; it lists the others."""
    if not (run_folder / RUN).exists():
        raise InputError(f"{run_folder}: no run here (no {RUN}); --step needs the folder of a run")
    found = checkpoints_in(run_folder / CHECKPOINTS)
    complete = {step_of(path): path for path in found if (path / STATE).exists()}
    if step not in complete:
        none = "the run has none (see --checkpoint.every); leave --step out for its final model"
        there = f"there are: {', '.join(map(str, complete))}" if complete else none
        raise InputError(f"--step {step}: no checkpoint of this step in {run_folder}; {there}")
    return complete[step]
