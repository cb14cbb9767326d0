"""Add results of `loriini reproduce` to those that are kept, and write docs/findings.md with its pictures.

python benchmarks/findings.py [OUT…]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.errors import InputError
from loriini.papers.reproduce.experiments.catalog import ITEM_ORDER
from loriini.papers.reproduce.findings import (
    MOST_PICTURES,
    current_items,
    read_file,
    read_scales,
    write_findings,
)
from loriini.papers.reproduce.results import outdated, read_items

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "results" / "reproduce", HERE.parent / "docs" / "findings.md"


def keep(out: Path, kept: Path = KEPT) -> None:
    """Add every item that is done in `out` to the file of its scale; one that is there is replaced.

    InputError, and nothing is added, where an item was trained by an earlier definition of its scale.
    """
    if reason := next(filter(None, map(outdated, read_items(out).values())), ""):
        raise InputError(f"{out}: {reason}; reproduce it again in another folder")
    (items,) = read_scales(out)
    for name, found in items.items():
        path = kept / f"{found['scale']}.json"
        before: dict[str, Any] = json.loads(path.read_text())["items"] if path.exists() else {}
        after = {**before, name: {**found, "charts": found["charts"][:MOST_PICTURES]}}
        write_json(
            path, {"items": {name: after[name] for name in ITEM_ORDER if name in after}}, sort_keys=False
        )
        print(f"{name}: {found['verdict']} ({found['date']})")


def judge_again(kept: Path = KEPT) -> None:
    """Write today's verdicts and words into the files, so that they say what the page says."""
    for path in sorted(kept.glob("*.json")):
        items = read_file(path)
        write_json(path, {"items": {**items, **current_items(items)}}, sort_keys=False)


def main() -> None:
    """Keep the results of some folders, and write the page of all that are kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path, nargs="*", help="folders of `loriini reproduce`")
    try:
        for out in parser.parse_args().out:
            keep(out)
        judge_again()
        print(write_findings(KEPT, PAGE))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
