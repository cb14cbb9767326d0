"""Parts of the docs' pages that are made from results: text between two marks, and a picture below it."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loriini.reporting.wording import large, listing
from tuning import DEVIATION

INTERVALS = ("over seeds", "over held-out text")
"""Columns of a difference's 95 % intervals."""
NO_RESULTS = "There are no results yet.\n"
MAKE = """## Make it

```sh
{command}
python benchmarks/figures.py    # this page
```

- `--text` takes documents. Files named `*.heldout.*` are held out. A domain is a file's name up to its \
first dot.
- {options}
- The same command resumes one that was interrupted.
"""
BEGIN, END = "<!-- {name}: made by benchmarks/figures.py -->", "<!-- end of {name} -->"


@dataclass(frozen=True)
class Part:
    """A text and a picture of a page, both of one results file."""

    source: str
    """Name of the results file."""
    text: Callable[[Any], str]
    picture: str = ""
    """Name of the picture."""
    caption: str = ""
    draw: Callable[[Any], str] | None = None


def fill(page: Path, parts: Mapping[str, Part], results: Mapping[str, Any]) -> dict[str, str]:
    """Write what results are there for between the marks in a page; returns the pictures by name."""
    text = page.read_text(encoding="utf-8")
    pictures = {}
    for name, part in parts.items():
        if part.source in results:
            begin, end = BEGIN.format(name=name), END.format(name=name)
            made = part.text(results[part.source])
            if part.draw:
                pictures[part.picture] = part.draw(results[part.source])
                made += f"\n\n![{part.caption}](pictures/{part.picture}.svg)"
            before, _, rest = text.partition(begin)
            after = rest.partition(end)[2]
            text = f"{before}{begin}\n\n{made}\n\n{end}{after}" if made else f"{before}{begin}\n{end}{after}"
    page.write_text(text, encoding="utf-8")
    return pictures


def long_documents(heldout: Mapping[str, Any]) -> str:
    """In how many documents the held-out instances begin, where it is known, and what follows."""
    counts = ", ".join(f"{domain} {count}" for domain, count in heldout.get("begin_in", {}).items())
    return (
        "**Long documents.** Where documents are long, as books and repositories are, the held-out instances "
        f"of a domain begin in few of them{f' ({counts})' if counts else ''}. The interval over held-out "
        "text assumes that documents vary alike in all domains: it is too narrow where those of a domain "
        "with few vary more."
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def make_it(command: str, options: str) -> str:
    """The section that says how to make a page's results."""
    return MAKE.format(command=command, options=options)


def machine_text(machine: Mapping[str, Any], precision: str, date: str) -> str:
    """A machine, the precision it computed in, and when."""
    about = (machine["processor"], f"{machine['cores']} cores", precision)
    return ", ".join((*about, f"torch {machine['torch']}", date))


def setup_table(results: Mapping[str, Any], model: str) -> str:
    """How a page's models were trained and scored; `model` says their sizes."""
    run, text, machine = results["run"], results["heldout"], results["machine"]
    tokens = run["steps"] * run["batch_size"] * run["length"]
    of_each = between(list(text["instances"].values()))
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    rows = {
        "model": model,
        "initial weights": f"standard deviation {deviation_text(run)}",
        "training": f"{run['steps']:,} steps of {run['batch_size']} × {run['length']} tokens, "
        f"{large(tokens)} in all",
        "learning rate": f"[tuned](#learning-rates); rises for {100 * run['optimizer']['warmup']:.0f} % of "
        "the steps",
        "dense warm-up": warmup_text(run),
        "seeds": f"{results['seeds']}",
        "scored on": f"{of_each} instances of {text['length']} tokens of each of {len(text['instances'])} "
        f"domains, without the first {text['skip']} tokens of an instance",
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['jobs']} trainings at once, "
        f"{threads} each, {machine['precision']}, torch {machine['torch']}",
        "date": results["date"],
    }
    return markdown(["setting", "value"], rows.items()) + "\n"


def warmup_text(run: Mapping[str, Any]) -> str:
    """Which share of the steps trains mixtures as a dense model."""
    share = run["warmup"]["dense_share"]
    return f"{100 * share:g} % of the steps of a mixture" if share else "none"


def between(values: Sequence[int]) -> str:
    """The least and the most of several amounts."""
    return " to ".join(dict.fromkeys(map(large, (min(values), max(values)))))


def deviation_text(run: Mapping[str, Any]) -> str:
    """The standard deviation of a run's initial weights."""
    drawn, width = run["model"]["initializer_range"], run["model"]["hidden_size"]
    return f"{DEVIATION}/√width" if math.isclose(drawn, DEVIATION * width**-0.5) else str(drawn)


def tried_rates_text(results: Mapping[str, Any]) -> str:
    """The learning rates of a sweep, and whether others followed."""
    rates = results["rates"]
    further = any(set(tried["training_loss"]) - set(rates) for tried in results["tried"].values())
    more = " If the best was the greatest or the least, twice or half of it was tried too." * further
    return f"each of the learning rates {listing(rates)}.{more}"


def choosing_seeds(results: Mapping[str, Any]) -> str:
    """The seeds of a sweep."""
    return numbered_seeds(range(results["rate_seeds"]))


def seeds_text(results: Mapping[str, Any]) -> str:
    """The seeds that are reported."""
    seeds = sorted({seed for v in results["variants"] for seed in v["finished_seeds"]})
    return f"{numbered_seeds(seeds)}, which {'alone are' if len(seeds) != 1 else 'is'} reported"


def numbered_seeds(seeds: Iterable[int]) -> str:
    """Seeds by their numbers."""
    numbers = list(map(str, seeds))
    return f"seed{'s' * (len(numbers) != 1)} {listing(numbers)}"


def uncertain_choice(tried: Mapping[str, Mapping[str, Any]], what: str) -> str:
    """How many single seeds would have chosen another rate."""
    if all(len(one["by_seed"]) == 1 for one in tried.values()):
        return "A single seed chose the rates. No interval covers this choice."
    others = [
        name
        for name, one in tried.items()
        if any(best_of(losses) != one.get("rate") for losses in one["by_seed"].values())
    ]
    alike = f"For {len(tried) - len(others)} of {len(tried)} {what} each seed alone chooses the same rate"
    named = f", not for {listing(others)}" if others else ""
    return f"{alike}{named}. No interval covers this choice."


def best_of(losses: Mapping[str, float | None]) -> str | None:
    """The rate of the lowest loss; None where all diverged."""
    finite = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(finite, key=lambda rate: finite[rate], default=None)


def losses_text(results: Mapping[str, Any]) -> str:
    """What the losses of a sweep are."""
    mean = "mean over seeds and" if results["rate_seeds"] > 1 else "mean over"
    return f"Training loss, {mean} the last tenth of the steps"


def loss_text(tried: Mapping[str, Any], rate: str) -> str:
    """A rate's training loss, if it was tried; one that diverged has none."""
    if rate not in tried["training_loss"]:
        return "–"
    loss = tried["training_loss"][rate]
    return "diverged" if loss is None else f"{loss:.3f}"


def rate_table(head: str, tried: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Training loss of every rate that was tried, and the one that was chosen."""
    tried = list(tried)
    rates = sorted({rate for _, one in tried for rate in one["training_loss"]}, key=float)
    rows = ([name, *(loss_text(one, rate) for rate in rates), one.get("rate", "–")] for name, one in tried)
    return markdown([head, *rates, "chosen"], rows)


def rates_section(head: str, tried: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The table of what was tried, and whose best rate is at the edge of it."""
    at_edge = [f"{head} {name}" for name, one in tried.items() if one.get("edge")]
    return [rate_table(head, tried.items()), "", f"{edges(at_edge)}\n"]


def edges(names: Sequence[str]) -> str:
    """Whose best rate is at the edge of those tried."""
    if not names:
        return "No best rate lies at the edge of what was tried."
    return f"The best rate of {listing(names)} lies at the edge of what was tried."


def command_line(command: str, results: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """The command that made the results, but for the folders: its common options and more."""
    options = {
        "steps": results["run"]["steps"],
        "batch-size": results["run"]["batch_size"],
        "seeds": results["seeds"],
        "instances": max(results["heldout"]["instances"].values()),
        "jobs": results["machine"]["jobs"],
        "rates": " ".join(results["rates"]),
        "rate-seeds": results["rate_seeds"],
        **more,
    }
    return " \\\n  ".join((command, *(f"--{name} {value}" for name, value in options.items())))


def whole_page(path: Path, head: str, body: Callable[[Any], Iterable[str]], otherwise: str) -> str:
    """A page of its own: `head`, and what `body` makes of the results; `otherwise` without a results file."""
    if not path.exists():
        return "\n".join((head, NO_RESULTS, otherwise))
    return "\n".join((head, *body(json.loads(path.read_text(encoding="utf-8")))))
