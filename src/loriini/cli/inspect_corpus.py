"""The command that shows a corpus: `loriini inspect`, a name that the standard library has taken."""

import argparse
import json
from pathlib import Path

from loriini.cli.output import print_rows
from loriini.cli.parser import Add


def inspect_arguments(add: Add) -> None:
    """Arguments of `loriini inspect`."""
    add("corpus", type=Path, help="the corpus's folder")
    add("--json", action="store_true", help="print statistics and histograms as JSON, and write no page")
    add("--verify", action="store_true", help="first compare every file with its SHA-256")


def inspect(arguments: argparse.Namespace) -> None:
    """Print a corpus's statistics, and write a page that shows documents with their neighbours."""
    from loriini.analyze.corpus import inspect_and_write, summary
    from loriini.data.prepare.inspection import inspect_corpus
    from loriini.data.prepare.prepare import open_corpus
    from loriini.data.prepare.verify import explained_damage, verify

    verified = verify(arguments.corpus) if arguments.verify else None
    with explained_damage(arguments.corpus):
        corpus = open_corpus(arguments.corpus)
        if arguments.json:
            print(json.dumps(inspect_corpus(corpus), indent=1))
            return
        numbers, page = inspect_and_write(corpus)
    values = {**summary(numbers), **({} if page is None else {"page": str(page)})}
    if verified is not None:
        values["verified files"] = f"all {verified:,}"
    rows = [{"what": what, "value": value} for what, value in values.items()]
    print_rows(rows, ("what", "value"), as_json=False)
