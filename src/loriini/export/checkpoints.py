"""The model of a checkpoint of a run, finished or not."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from loriini.errors import InputError
from loriini.model import LoriiniForCausalLM
from loriini.model.loading import readable, tokenizer_in
from loriini.train.checkpoint import read_weights
from loriini.train.checkpoint_state import STATE, checkpoints_in, damage_of, step_of
from loriini.train.corpora import read_corpora
from loriini.train.run import RUN, read_run


def load_checkpoint(run_folder: Path, step: int) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """The model of a run after `step`, in `eval()` on the CPU, and the tokenizer of its corpus.

    InputError for a folder that is no run, a step without a checkpoint and a damaged checkpoint.
    """
    if not (run_folder / RUN).exists():
        raise InputError(f"{run_folder}: no run here (no {RUN}); --step needs the folder of a run")
    run, _ = read_run(run_folder / RUN)
    folder = checkpoint_folder(run_folder, step)
    if damage := damage_of(folder):
        raise InputError(f"{folder}: damaged checkpoint ({damage}); choose another --step")
    corpus = read_corpora(run.corpus, run.corpus_weights)
    config = run.config(
        corpus.vocab_size,
        corpus.eos_token_id,
        num_experts=1 if run.is_dense_at(step) else None,
        label_names=run.label_names(corpus.instances),
    )
    model = LoriiniForCausalLM(config)
    with readable(folder):
        read_weights(folder, model)
    return model.eval(), tokenizer_in(corpus.tokenizer)


def checkpoint_folder(run_folder: Path, step: int) -> Path:
    """The folder of a step's checkpoint; InputError that lists the steps that have one."""
    found = checkpoints_in(run_folder / "checkpoints")
    complete = {step_of(path): path for path in found if (path / STATE).exists()}
    if step not in complete:
        there = f"there are: {', '.join(map(str, complete))}" if complete else "the run has none"
        raise InputError(f"--step {step}: no checkpoint of this step in {run_folder}; {there}")
    return complete[step]
