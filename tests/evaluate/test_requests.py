"""Names, groups and numbers of examples as requests for downstream tasks."""

import pytest

from loriini.errors import InputError
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
        "mmlu": Request("mmlu", 3),
        "arc_challenge": Request("arc_challenge", 3),
    }


@pytest.mark.parametrize("name", ["piqa@x", "piqa@-1", "piqa@", "piqa@²", "lory@5"])
def test_a_suffix_that_is_no_number_of_examples_is_refused(name: str) -> None:
    remedy = "a group; .*--num-fewshot" if name == "lory@5" else "is no number of examples; .*piqa@5"
    with pytest.raises(InputError, match=rf"--tasks {name}: .*{remedy}"):
        requested([name])
