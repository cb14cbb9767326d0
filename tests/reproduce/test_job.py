"""A folder of reproductions belongs to one scale and one text."""

from pathlib import Path

import pytest

from loriini.errors import InputError
from loriini.reproduce.job import ReproduceSettings, claim_folder, reproduce_items
from loriini.reproduce.scales import find_scale
from loriini.reproduce.texts import Texts


def test_another_scale_needs_another_folder(reproduced: Path, text: Path) -> None:
    settings = ReproduceSettings(("lory-fig3",), scale="small", text=(str(text),))
    with pytest.raises(InputError, match="made with another scale; choose another --out"):
        reproduce_items(settings, reproduced)


def test_another_text_needs_another_folder_once_there_are_runs(
    reproduced: Path, text: Path, tmp_path: Path
) -> None:
    scale = find_scale("tiny")
    settings = ReproduceSettings(("lory-fig3",), scale="tiny", text=(str(text),))
    texts = [Texts(tmp_path / "text", scale, given, 1, "stop") for given in ((), (str(text),))]
    for each in texts:
        claim_folder(settings, each, tmp_path)
    (tmp_path / "runs").mkdir()
    claim_folder(settings, texts[1], tmp_path)
    with pytest.raises(InputError, match="made with another text; choose another --out"):
        claim_folder(settings, texts[0], tmp_path)
