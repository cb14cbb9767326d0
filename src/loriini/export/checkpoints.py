"""The model of a checkpoint of a run, finished or not."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from loriini.errors import InputError
from loriini.model import LoriiniForCausalLM
from loriini.model.loading import readable, tokenizer_in
from loriini.train.checkpoint import read_weights
from loriini.train.checkpoint_model import checkpoint_config, checkpoint_tokenizer
from loriini.train.checkpoint_state import STATE, checkpoints_in, damage_of, step_of
from loriini.train.run import RUN


def load_checkpoint(run_folder: Path, step: int) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """The model of a run after `step`, in `eval()` on the CPU, and its tokenizer.

    InputError for a folder that is no run, a step without a checkpoint, a damaged checkpoint, and a tokenizer
    that is neither in the run's model nor in its corpora.
    """
    folder = checkpoint_folder(run_folder, step)
    if damage := damage_of(folder):
        raise InputError(f"{folder}: damaged checkpoint ({damage}); choose another --step")
    found = checkpoint_tokenizer(folder)
    if found is None:
        raise InputError(
            f"{run_folder}: its tokenizer is not where its corpora were, and it has no model yet; say where "
            f"they are now with `loriini train --resume {run_folder} --corpus DIR`"
        )
    tokenizer = tokenizer_in(found)
    model = LoriiniForCausalLM(checkpoint_config(folder, tokenizer.eos_token_id))
    with readable(folder):
        read_weights(folder, model)
    return model.eval(), tokenizer


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint; InputError that lists the steps that have one, or without a run."""
    if not (run_folder / RUN).exists():
        raise InputError(f"{run_folder}: no run here (no {RUN}); --step needs the folder of a run")
    found = checkpoints_in(run_folder / "checkpoints")
    complete = {step_of(path): path for path in found if (path / STATE).exists()}
    if step not in complete:
        none = "the run has none (see --checkpoint.every); leave --step out for its final model"
        there = f"there are: {', '.join(map(str, complete))}" if complete else none
        raise InputError(f"--step {step}: no checkpoint of this step in {run_folder}; {there}")
    return complete[step]
