"""A folder of reproductions belongs to one scale and one text; what takes long can be interrupted."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.papers.reproduce.job import place_items, record_settings
from loriini.papers.reproduce.scales import find_scale
from loriini.papers.reproduce.settings import ReproduceSettings
from loriini.papers.reproduce.texts import Texts


def test_another_job_needs_another_folder_once_there_are_runs(text: Path, tmp_path: Path) -> None:
    scales = [find_scale(name) for name in ("small", "tiny")]
    texts = [Texts(tmp_path / "text", scales[1], given, 1, "stop") for given in ((), (str(text),))]
    for scale, each in zip(scales, texts, strict=True):
        record_settings(scale, each, tmp_path)
    (tmp_path / "runs").mkdir()
    record_settings(scales[1], texts[1], tmp_path)
    for other, scale, each in (("text", scales[1], texts[0]), ("scale", scales[0], texts[1])):
        with pytest.raises(InputError, match=f"holds a job with other {other}; choose another --out"):
            record_settings(scale, each, tmp_path)


@pytest.mark.parametrize(("item", "refused"), [("lory-fig3", True), ("lory-fig6", False)])
def test_a_domain_that_is_too_short_to_skip_is_refused_before_training_where_losses_are_measured(
    item: str, refused: bool, tiny: None, text: Path, tmp_path: Path
) -> None:
    source, out = shutil.copytree(text, tmp_path / "source"), tmp_path / "out"
    for side in ("train", "heldout"):
        (source / f"ode.{side}.jsonl").write_text(json.dumps({"text": side[:2], "domain": "ode"}) + "\n")
    settings = ReproduceSettings((item,), text=(str(source),), seeds=1)
    with (
        pytest.raises(InputError, match=r"domain 'ode': .* by --text")
        if refused
        else contextlib.nullcontext()
    ):
        place_items(settings, out)
    assert not (out / "runs").exists()
