"""What a comparison asks of held-out text before it trains is what its evaluation needs."""

import json
from pathlib import Path

from compare.conftest import SETTINGS, Compared
from loriini.compare.job import place_designs
from loriini.compare.settings import CompareSettings
from loriini.evaluate.settings import EvaluationSettings


def test_long_documents_after_short_ones_are_enough_for_documents_apart(
    compared: Compared, tmp_path: Path
) -> None:
    heldout = tmp_path / "heldout.jsonl"
    texts = ["3"] * 40 + ["3 times 3 is 9, they say. " * 10] * 2
    heldout.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    tiny = tuple(f"--{name}={value}" for name, value in SETTINGS.items())
    settings = CompareSettings(("lory",), overrides=tiny, corpus=(compared.corpus,), seeds=1)
    evaluation = EvaluationSettings((str(heldout),), skip=16, document_mask=True)
    (training,), _ = place_designs(settings, evaluation, tmp_path / "out")
    assert training.state == "new"
