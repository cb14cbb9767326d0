from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.corpus.settings import PrepareSettings, check_encoder
from loriini.errors import InputError


@pytest.mark.parametrize(
    "change",
    [
        {"length": 0},
        {"neighbors": 0},
        {"workers": 0},
        {"seed": -1},
        {"seed": 1 << 31},
        {"min_characters": -1},
        {"max_document_characters": 0},
        {"order": "alphabetical"},
        {"on_error": "ignore"},
        {"pooling": "max"},
        {"encoder_backend": "onnx"},
        {"executor": "cloud"},
    ],
)
def test_a_setting_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        replace(PrepareSettings(), **change)


def test_check_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_encoder("lsa", "openvino")
    check_encoder("facebook/contriever")
    check_encoder(str(tmp_path))
    with pytest.raises(InputError, match="no such folder"):
        check_encoder(str(tmp_path / "absent"))
    monkeypatch.setattr("loriini.corpus.settings.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"loriini\[openvino\]"):
        check_encoder("facebook/contriever", "openvino")
