"""A comparison of runs that are there replaces no results that say more."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from loriini.compare.job import refuse_less
from loriini.errors import InputError


@pytest.mark.parametrize(
    ("before", "heldout", "message"),
    [
        ({"runs": ["a", "b", "c"], "heldout": {}}, False, "also compares c; name them too, or choose"),
        (
            {"runs": ["a"], "heldout": {"documents": ["text"]}},
            False,
            "compares on held-out text; give",
        ),
        ({"recipe": "tiny"}, True, "compares designs; choose another --out"),
        ({"runs": ["a"], "heldout": {"documents": ["text"]}}, True, None),
        ({"runs": ["b", "a"], "heldout": {}}, False, None),
    ],
)
def test_a_comparison_is_not_replaced_by_one_with_less_in_it(
    before: dict[str, Any], heldout: bool, message: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    refuse_less(path, ["a", "b"], heldout)
    path.write_text(json.dumps(before))
    with nullcontext() if message is None else pytest.raises(InputError, match=message):
        refuse_less(path, ["a", "b"], heldout)
