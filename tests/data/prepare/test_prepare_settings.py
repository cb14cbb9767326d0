from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.common.checks import option_of
from loriini.common.errors import InputError
from loriini.data.prepare.settings import PrepareSettings, check_encoder


@pytest.mark.parametrize(
    "change",
    [
        {"length": 0},
        {"seed": -1},
        {"seed": 1 << 31},
        {"heldout_share": 1},
        {"heldout_share": float("nan")},
        {"order": "alphabetical"},
        {"pooling": "max"},
        {"executor": "cloud"},
        {"pooling": "cls"},
        {"eos": "</s>"},
    ],
)
def test_a_setting_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=option_of(next(iter(change)))):
        replace(PrepareSettings(), **change)


def test_check_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("plain/config.json", "sentence/modules.json", "texts/a.jsonl"):
        Path(name).parent.mkdir()
        Path(name).write_text("{}")
    for name in ("lsa", "plain", "./plain", "~/plain", str(tmp_path / "plain"), "sentence"):
        check_encoder(name, "mean")
    for name in ("typo", "models/typo/deep", "./typo", "~/typo", "plain/config.json"):
        with pytest.raises(InputError, match=f"encoder {name}: no such folder"):
            check_encoder(name, "mean")
    check_encoder("plain", "cls")
    with pytest.raises(InputError, match="--pooling"):
        check_encoder("sentence", "cls")
    with pytest.raises(InputError, match=r"encoder texts: holds neither config\.json nor modules\.json"):
        check_encoder("texts", "mean")


def test_an_encoder_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration is looked for in the snapshot, which nothing else is downloaded for."""
    asked = []

    def local_folder(name: str, files: tuple[str, ...]) -> Path:
        asked.append((name, files))
        return tmp_path

    monkeypatch.setattr("loriini.data.prepare.settings.local_folder", local_folder)
    with pytest.raises(InputError, match=r"encoder org/model: holds neither config\.json"):
        check_encoder("org/model", "mean")
    (tmp_path / "config.json").write_text("{}")
    check_encoder("org/model", "mean")
    assert set(asked) == {("org/model", ("config.json", "modules.json"))}
