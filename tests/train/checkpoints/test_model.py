"""A checkpoint's model is known from the run that it lies in."""

import shutil
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.train.initial import InitialModel
from runs import tiny_run, trained


def test_a_checkpoint_copied_out_of_its_run_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (checkpoint,) = (trained(tiny_run(steps=2), tmp_path) / "checkpoints").iterdir()
    copied = shutil.copytree(checkpoint, tmp_path / "copied" / checkpoint.name)
    model = InitialModel(str(copied))
    for read in (lambda: model.config, lambda: model.tokenizer_folder):
        with pytest.raises(
            InputError,
            match=rf"{copied}: a checkpoint needs its run's run\.json; give RUN/checkpoints/{copied.name}$",
        ):
            read()
    assert InitialModel(str(checkpoint)).config.num_experts == 3
