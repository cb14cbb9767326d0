"""A checkpoint's model, and its tokenizer in the run's folder.

Use what reads within `readable`, as `read_model`: errors are of many kinds.
"""

from pathlib import Path

from loriini.common.folders import TOKENIZER
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.train.checkpoints.state import read_state
from loriini.train.checkpoints.storage import read_weights


def checkpoint_config(checkpoint: Path) -> LoriiniConfig:
    """The configuration of the model in a checkpoint."""
    return LoriiniConfig.from_dict(read_state(checkpoint)["model"])


def checkpoint_model(checkpoint: Path) -> LoriiniForCausalLM:
    """The model in a checkpoint, on the CPU."""
    model = LoriiniForCausalLM(checkpoint_config(checkpoint))
    read_weights(checkpoint, model)
    return model


def checkpoint_tokenizer(checkpoint: Path) -> Path:
    """The folder of the tokenizer of a checkpoint's model; absent if the checkpoint was copied elsewhere."""
    return checkpoint.resolve().parent.parent / TOKENIZER
