"""The state of an item in words."""

import json
from pathlib import Path

from loriini.papers.reproduce.listing import state
from loriini.papers.reproduce.results import RESULTS
from loriini.papers.reproduce.scales import SCALES


def test_an_item_of_one_seed_says_so(tmp_path: Path) -> None:
    (tmp_path / "lory-fig3").mkdir()
    for seeds, words in ((1, "holds (tiny, 1 seed)"), (3, "holds (tiny, 3 seeds)")):
        found = {"verdict": "holds", "scale": "tiny", "seeds": seeds}
        (tmp_path / "lory-fig3" / RESULTS).write_text(json.dumps(found))
        assert state("lory-fig3", SCALES["tiny"], tmp_path) == words
