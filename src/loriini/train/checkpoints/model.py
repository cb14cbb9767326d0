"""A checkpoint's model, its configuration and its tokenizer.

Labels and tokenizer come from the run's final model if there is one, else from its corpora, which may move.
"""

from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.folders import MODEL, RUN
from loriini.common.tokenizers import holds_tokenizer
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.weights.loading import load_config, readable
from loriini.train.checkpoints.state import read_progress
from loriini.train.checkpoints.storage import read_weights
from loriini.train.config import RecordedCorpus, from_json, read_run
from loriini.train.corpora import read_corpora
from loriini.train.folder import has_model


def run_file(checkpoint: Path) -> Path:
    """The `run.json` of the run that wrote a checkpoint; InputError for a checkpoint outside of its run."""
    path = checkpoint.resolve().parent.parent / RUN
    if not path.exists():
        raise InputError(
            f"{checkpoint}: a checkpoint needs its run's {RUN}; give RUN/checkpoints/{checkpoint.name}"
        )
    return path


def checkpoint_config(checkpoint: Path, eos_token_id: int | None = None) -> LoriiniConfig:
    """The configuration of the model in a run's checkpoint."""
    path = run_file(checkpoint)
    run, values = read_run(path)
    dense = run.is_dense_at(read_progress(checkpoint).step)
    vocab_size = from_json(RecordedCorpus, values, path).vocab_size
    names: tuple[str, ...] = ()
    if run.routing.scorer == "label":
        source = load_config(path.parent) if has_model(path.parent) else read_corpora(run.corpus).instances
        names = tuple(source.label_names or ())
    return run.config(vocab_size, eos_token_id, num_experts=1 if dense else None, label_names=names)


def checkpoint_model(checkpoint: Path, config: LoriiniConfig) -> LoriiniForCausalLM:
    """The model in a run's checkpoint, of its `checkpoint_config`, on the CPU; InputError if unreadable."""
    model = LoriiniForCausalLM(config)
    with readable(checkpoint):
        read_weights(checkpoint, model)
    return model


def checkpoint_tokenizer(checkpoint: Path) -> Path | None:
    """The folder of the tokenizer of a checkpoint's model; None if it is not found."""
    path = run_file(checkpoint)
    run, _ = read_run(path)
    folders = [path.parent / MODEL, *(corpus / "tokenizer" for corpus in run.corpus)]
    return next((folder for folder in folders if holds_tokenizer(folder)), None)
