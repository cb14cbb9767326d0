"""Names, groups and numbers of examples as requests for downstream tasks."""

from types import SimpleNamespace
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.evaluate.tasks import loading
from loriini.evaluate.tasks.catalog import Request, requested


def test_names_groups_and_numbers_of_examples_become_requests() -> None:
    both = requested(["arc_easy", "aoe", "router-free", "arc_challenge@2"])
    assert list(both)[:2] == ["arc_easy", "piqa"]
    assert both["arc_challenge@5"] == Request("arc_challenge", 5)
    assert both["arc_challenge@2"] == Request("arc_challenge", 2)
    assert requested(["agnews", "agnews@16"]) == {"agnews": Request("agnews", 16)}
    assert requested(["agnews", "agnews@0"]) == {
        "agnews@16": Request("agnews", 16),
        "agnews@0": Request("agnews", 0),
    }
    assert requested(["gsm8k", "gsm8k@0"]) == {"gsm8k": Request("gsm8k"), "gsm8k@0": Request("gsm8k", 0)}
    assert requested(["router-free", "mmlu@1"], shots=3) == {
        "mmlu@3": Request("mmlu", 3),
        "mmlu@1": Request("mmlu", 1),
        "arc_challenge": Request("arc_challenge", 3),
    }


@pytest.mark.parametrize("name", ["piqa@x", "piqa@-1", "piqa@", "piqa@²", "lory@5"])
def test_a_suffix_that_is_no_number_of_examples_is_refused(name: str) -> None:
    remedy = "a group; .*--num-fewshot" if name == "lory@5" else "is no number of examples; .*piqa@5"
    with pytest.raises(InputError, match=rf"--tasks {name}: .*{remedy}"):
        requested([name])


class OneTask:
    """What is read of the harness's tasks before they are run."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(num_fewshot=None)

    def set_config(self, name: str, value: int) -> None:
        setattr(self.config, name, value)


def test_members_of_a_tag_are_named_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(names: list[str]) -> dict[str, Any]:
        members = ("mrpc", "cola") if names == ["a_tag"] else names
        return {"tasks": {name: OneTask() for name in members}, "groups": {}}

    manager = SimpleNamespace(all_tasks=["a_tag", "mrpc"], load=load)
    monkeypatch.setattr(loading, "_index", lambda: manager)
    monkeypatch.setattr(loading, "_manager", lambda _: manager)
    monkeypatch.setattr(loading, "check_answers", lambda *_: None)
    shots = {
        names: {key: task.shots for key, task in loading.load_tasks(requested(names), None).items()}
        for names in (("a_tag",), ("a_tag@0", "a_tag@3"), ("a_tag", "mrpc@3"), ("mrpc@3", "a_tag"))
    }
    assert list(shots.values()) == [
        {"mrpc": 0, "cola": 0},
        {"mrpc@0": 0, "cola@0": 0, "mrpc@3": 3, "cola@3": 3},
        {"mrpc@0": 0, "cola": 0, "mrpc": 3},
        {"mrpc": 3, "mrpc@0": 0, "cola": 0},
    ]
