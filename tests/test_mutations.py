"""The list of known mistakes still fits the code."""

from pathlib import Path

import pytest

from mutate import ROOT
from mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_line_to_change_is_there_once(mutation: Mutation) -> None:
    assert (ROOT / "src" / "loriini" / mutation.file).read_text().count(mutation.old) == 1
    for path in mutation.tests.split():
        assert Path(ROOT, path).exists()
