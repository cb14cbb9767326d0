"""commonsense_qa in local files: cut to four options, or as the Hub's."""

from pathlib import Path

import pytest
from local_tasks import write_rows

from loriini.evaluate.tasks.catalog import Request
from loriini.evaluate.tasks.loading import load_tasks

pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")


@pytest.mark.parametrize(("options", "warned"), [("ABCD", True), ("ABCDE", False)])
def test_fewer_options_than_published_are_warned_of(
    options: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"\n{letter}. word {letter}" for letter in options)
    query = f"Question: What?\nChoices:{lines}\nAnswer:"
    write_rows(tmp_path / "commonsense_qa.jsonl", [{"query": query, "choices": list(options), "gold": 1}])
    load_tasks({"commonsense_qa": Request("commonsense_qa", 0)}, tmp_path)
    assert ("fewer options than the 5 of commonsense_qa" in capsys.readouterr().err) == warned


def test_the_hubs_form_of_commonsense_qa_is_not_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its choices are an object of two lists."""
    choices = {"label": list("ABCDE"), "text": ["bank", "bed", "bus", "bath", "bush"]}
    write_rows(
        tmp_path / "commonsense_qa.jsonl", [{"question": "Where?", "choices": choices, "answerKey": "B"}]
    )
    load_tasks({"commonsense_qa": Request("commonsense_qa", 0)}, tmp_path)
    assert "fewer options" not in capsys.readouterr().err
