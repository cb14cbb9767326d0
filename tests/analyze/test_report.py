"""Pages from the files of a finished job: every section, no outside resource, nothing unescaped."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loriini.analyze.report import write_report, write_run_report
from loriini.analyze.routes import Routes
from loriini.errors import InputError

HOSTILE = "<script>alert('1')</script>"
SECTIONS = [
    "What was trained, on what",
    "Learning",
    "Perplexity by domain",
    "Use of experts",
    "Who routes where",
    "Similar documents",
    "Samples",
    "Time and memory",
    "What to try next",
]


class Page(HTMLParser):
    """The tags and attributes of a page, its headings and its text; unclosed tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.headings: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for key, value in attrs if key in ("href", "src", "xlink:href")}
        assert not any(key.startswith("on") for key, _ in attrs)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("h1", "h2"):
            self.headings.append(data)


def metrics(dense: int, steps: int = 24) -> str:
    routed = {"experts": 4, "gate_entropy": [1.3, 1.2], "active": [1, 6]}
    routed |= {"load": [[0.25] * 4] * 2, "load_entropy": [1.4, 1.4], "confidence_entropy": [1.3, 1.3]}
    rows = (
        {"step": i, "loss": 5 - i / 10, "tokens": 64 * i, "tokens_per_second": 100.0}
        | ({"experts": 1} if i <= dense else routed)
        for i in range(1, steps + 1)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished job's folder, with a domain whose name and texts are hostile."""
    dense, mixture = {"python": 20.0, HOSTILE: 40.0}, {"python": 18.0, HOSTILE: 41.0}
    results = {
        "dense": {"perplexity": dense, "perplexity_all": {**dense, "python": 22.0}, "loss": 3.0},
        "lory": {"perplexity": mixture, "perplexity_all": mixture, "loss": 2.9},
        "parameters": {"dense": 1000, "lory_total": 4100, "lory_active": 1100},
        "tokens": {"train": 1536, "heldout": 200},
        "seconds": {"train dense": 4.0, HOSTILE: 100.0},
        "order": {"random": 0.1, "similar": 0.4},
    }
    amounts = {domain: {"documents": 3, "characters": 900} for domain in dense}
    settings = {
        "design": "lory",
        "size": {"name": "small", "hidden_size": 32, "num_hidden_layers": 2},
        "num_experts": 4,
        "segment_length": 8,
        "length": 32,
        "steps": 24,
        "batch_size": 2,
        "learning_rates": {"dense": 1e-3, "lory": 2e-3},
        "seed": 0,
        "causality": "after_first_segment",
        "machine": dict.fromkeys(("processor", "cores", "precision", "torch", "python"), HOSTILE),
        "documents": {"train": amounts, "heldout": {"python": amounts["python"]}},
        "skipped": {"too_short": 3, HOSTILE: {"again": 1}},
        "peak_memory_bytes": {"train dense": 2_000_000},
    }
    document = {"id": HOSTILE, "domain": HOSTILE, "text": HOSTILE}
    near = [{**document, "similarity": 0.8}] * 2
    for name, dense_steps in (("dense", 24), ("lory", 4)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(metrics(dense_steps))
    gates = np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]]] * 2)
    Routes(gates, tuple(dense), np.array([10, 10])).save(tmp_path / "runs/lory/routes.npz")
    dump(tmp_path / "results.json", results)
    dump(tmp_path / "settings.json", settings)
    dump(tmp_path / "samples.json", [dict.fromkeys(("domain", "prompt", "dense", "lory"), HOSTILE)])
    dump(tmp_path / "neighbors.json", [{**document, "neighbors": near}] * 2)
    return tmp_path


def change(path: Path, **changes: Any) -> None:
    dump(path, json.loads(path.read_text()) | changes)


def test_the_page_has_every_section_and_is_self_contained(job: Path) -> None:
    path = write_report(job)
    text = path.read_text()
    page = Page(text)
    assert path == job / "report.html"
    assert page.headings[1:] == SECTIONS
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert all(link.startswith("#") for link in page.links)
    assert "url(http" not in text
    assert "@import" not in text


def test_text_from_data_is_shown_and_never_markup(job: Path) -> None:
    text = write_report(job).read_text()
    assert "<script" not in text
    assert HOSTILE in Page(text).text


def test_the_headline_says_what_was_measured(job: Path) -> None:
    page = Page(write_report(job).read_text())
    assert page.headings[0] == (
        "The lory mixture predicts unseen text better than the dense model: perplexity 29.50 against 30.00"
    )
    assert "is 1.7 % lower than the dense model's. It is lower in 1 of 2 domains: python." in page.text
    assert "routes segment 1, the first 8 tokens of each instance of 32, by its own text" in page.text


@pytest.mark.parametrize(
    ("causality", "python", "headline"),
    [
        ("strict", 25.0, "The dense model predicts unseen text better than the smear mixture"),
        ("strict", 19.0, "The smear mixture and the dense model predict unseen text equally well"),
        ("none", 5.0, "The smear mixture sees ahead, so this is no contest"),
    ],
)
def test_the_headline_is_honest(job: Path, causality: str, python: float, headline: str) -> None:
    for path in job.glob("*.json"):
        path.write_text(path.read_text().replace("lory", "smear"))
    scores = {"python": python, HOSTILE: 41.0}
    change(job / "settings.json", causality=causality)
    change(job / "results.json", smear={"perplexity": scores, "perplexity_all": scores})
    page = Page(write_report(job).read_text())
    assert page.headings[0].startswith(headline)


def test_models_that_skip_different_tokens_are_not_compared(job: Path) -> None:
    results = json.loads((job / "results.json").read_text())
    for name, skip in (("dense", 0), ("lory", 8)):
        results[name]["skip"] = skip
    dump(job / "results.json", results)
    with pytest.raises(InputError, match=r"differ in skip \(dense: 0, lory: 8\)"):
        write_report(job)


def test_without_a_segment_1_there_is_one_view_of_perplexity(job: Path) -> None:
    scores = {"perplexity": {"python": 9.0}, "perplexity_all": {"python": 9.0}}
    change(job / "results.json", dense=scores, lory=scores)
    text = Page(write_report(job).read_text()).text
    assert "All tokens" in text
    assert "after segment 1" not in text


def test_what_is_absent_is_left_out(job: Path) -> None:
    for name in ("samples.json", "neighbors.json", "runs/lory/routes.npz", "runs/lory/metrics.jsonl"):
        (job / name).unlink()
    left_out = {"Use of experts", "Who routes where", "Samples"}
    assert Page(write_report(job).read_text()).headings[1:] == [s for s in SECTIONS if s not in left_out]


def test_an_unfinished_job_is_wrong_input(job: Path) -> None:
    (job / "results.json").unlink()
    with pytest.raises(InputError, match=r"results\.json"):
        write_report(job)


def test_the_same_files_make_the_same_page(job: Path) -> None:
    assert write_report(job).read_bytes() == write_report(job).read_bytes()


def test_the_report_of_one_run(job: Path) -> None:
    run, out = job / "runs/lory", job / "analysis"
    settings = {"name": HOSTILE, "steps": 24, "routing": {"unit": "segment"}, "corpus": ["/somewhere"]}
    dump(run / "run.json", settings)
    page = Page(write_run_report(run, out, remark=HOSTILE).read_text())
    assert page.headings == [HOSTILE, "Learning", "Use of experts", "Settings"]
    assert f"Remember: {HOSTILE}" in page.text
    assert all(words in page.text for words in ("a band for each expert", "the confidence entropy"))
    assert "activation" not in page.text
    assert "routing.unit" in page.text
    assert "/somewhere" not in page.text
    (run / "routes.npz").rename(out / "routes.npz")
    assert "Who routes where" in Page(write_run_report(run, out).read_text()).headings


def test_the_report_of_a_model_folder_has_its_routes_alone(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    assert Page(write_run_report(folder, job / "runs/lory").read_text()).headings == [
        "some-model",
        "Who routes where",
    ]
    with pytest.raises(InputError, match="some-model"):
        write_run_report(folder, folder)
