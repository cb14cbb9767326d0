"""Pages from the files of a finished job: every section, no outside resource, nothing unescaped."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loriini.analyze import comparison
from loriini.analyze.comparison import Comparison
from loriini.analyze.page import Html, table
from loriini.analyze.report import write_report, write_run_report
from loriini.analyze.routes import Routes
from loriini.analyze.sections import expert_use_plots, who_routes_where
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
    routed |= {
        "load": [[0.35, 0.15, 0.25, 0.25]] * 2,
        "load_entropy": [1.4, 1.4],
        "confidence_entropy": [1.3, 1.3],
    }
    rows = (
        {"step": i, "loss": 5 - i / 10, "tokens": 64 * i, "tokens_per_second": 100.0}
        | ({"experts": 1} if i <= dense else routed)
        for i in range(1, steps + 1)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def difference(change: float, reach: float = 0.01) -> dict[str, float]:
    return {"change": change, "low": change - reach, "high": change + reach}


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
        "difference": {"python": difference(-0.1), HOSTILE: difference(0.025), "all": difference(-0.017)},
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
        "inputs": [HOSTILE],
        "peak_memory_bytes": {"train dense": 2_000_000},
    }
    document = {"id": HOSTILE, "domain": HOSTILE, "text": HOSTILE}
    near = [{**document, "similarity": 0.8}] * 2
    for name, dense_steps in (("dense", 24), ("lory", 4)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(metrics(dense_steps))
    gates = np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]]] * 2)
    units, bits, none = np.array([10, 10]), np.full(2, 0.5), np.zeros(2)
    routes = Routes(10 * gates, gates, np.ones((2, 2)), bits, none, units, units, tuple(dense))
    routes.save(tmp_path / "runs/lory/routes.npz")
    dump(tmp_path / "runs/lory/run.json", {"name": "lory", "routing": {"selection": "all"}})
    dump(tmp_path / "results.json", results)
    dump(tmp_path / "settings.json", settings)
    dump(tmp_path / "samples.json", [dict.fromkeys(("domain", "prompt", "dense", "lory"), HOSTILE)])
    dump(tmp_path / "neighbors.json", [{**document, "neighbors": near}] * 2)
    return tmp_path


def text_of(part: Html | None) -> str:
    assert part is not None
    return Page(part).text


def compared(job: Path, design: str = "lory", **settings: Any) -> Comparison:
    """What the files of a job say, its mixture renamed, without curves."""
    results = json.loads((job / "results.json").read_text().replace("lory", design))
    said = json.loads((job / "settings.json").read_text())
    return Comparison(results, {**said, "design": design, **settings}, {})


def test_the_page_has_every_section_and_lets_nothing_through(job: Path) -> None:
    path = write_report(job)
    text = path.read_text()
    page = Page(text)
    assert path == job / "report.html"
    assert page.headings[1:] == SECTIONS
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert all(link.startswith("#") for link in page.links)
    assert not any(outside in text for outside in ("url(http", "@import", "<script"))
    assert HOSTILE in page.text


def test_the_headline_says_what_was_measured(job: Path) -> None:
    text = text_of(comparison.headline(compared(job)))
    assert "better than the dense model: perplexity 29.50 against 30.00" in text
    assert "averaged over domains, is 1.7 % lower than that of the dense model. " in text
    assert f"It is lower in python; higher in {HOSTILE}." in text
    assert "95 % interval−2.7 to −0.7 %" in text
    assert "routes the first segment, 8 of an instance's 32 tokens, by that segment's own text" in text
    assert (
        "(a paired bootstrap). It covers neither the choice of the files or packages they come from" in text
    )
    assert "For each token lory uses 1.10 times the dense parameters." in text


@pytest.mark.parametrize(
    ("causality", "change", "reach", "verdict"),
    [
        (
            "strict",
            -0.02,
            0.01,
            "the smear mixture predicts unseen text better than the dense model",
        ),
        (
            "strict",
            0.02,
            0.01,
            "the dense model predicts unseen text better than the smear mixture",
        ),
        ("strict", -0.02, 0.03, "No clear difference between the smear mixture and the dense model"),
        ("strict", 0.02, float("nan"), "No clear difference between the smear mixture and the dense model"),
        ("none", -0.5, 0.01, "The smear mixture sees later tokens, so its perplexity does not compare"),
    ],
)
def test_the_headline_claims_what_the_interval_does(
    job: Path, causality: str, change: float, reach: float, verdict: str
) -> None:
    c = compared(job, "smear", causality=causality)
    found = dict.fromkeys(("python", HOSTILE, "all"), difference(change, reach))
    text = text_of(comparison.headline(replace(c, results={**c.results, "difference": found})))
    assert f"{verdict}: perplexity 29.50 against 30.00" in text
    decided = causality == "strict" and abs(change) > reach
    assert (f"It is {'lower' if change < 0 else 'higher'} in python and {HOSTILE}." in text) == decided


def test_without_an_interval_nothing_is_claimed(job: Path) -> None:
    c = compared(job)
    results = {key: value for key, value in c.results.items() if key != "difference"}
    text = text_of(comparison.headline(replace(c, results=results)))
    assert "The lory mixture and the dense model: perplexity 29.50 against 30.00" in text
    assert "The uncertainty was not measured" in text
    assert not any(word in text for word in ("better", "interval", "lower in", "undecided"))


def test_models_that_skip_different_tokens_are_not_compared(job: Path) -> None:
    results = json.loads((job / "results.json").read_text())
    for name, skip in (("dense", 0), ("lory", 8)):
        results[name]["skip"] = skip
    dump(job / "results.json", results)
    with pytest.raises(InputError, match=r"differ in skip \(dense: 0, lory: 8\)"):
        write_report(job)


def test_perplexity_has_a_second_view_where_a_segment_was_left_out(job: Path) -> None:
    c = compared(job)
    text = text_of(comparison.perplexity(c))
    assert "After the first segment" in text.replace("Tokens after", "After")
    assert text.count("All tokens") == 1
    assert text.count("−11.0 to −9.0 %") == 1  # of the tokens that are compared
    same = {"perplexity": {"python": 9.0}, "perplexity_all": {"python": 9.0}}
    text = text_of(comparison.perplexity(replace(c, results={**c.results, "dense": same, "lory": same})))
    assert "All tokens" in text
    assert "first segment" not in text
    assert "−11.0 to −9.0 %" in text


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_an_unknown_cosine_has_its_reason(unknown: float | None, job: Path) -> None:
    c = compared(job)
    order = {"random": unknown, "similar": 0.25}
    text = text_of(comparison.similar_documents(replace(c, results={**c.results, "order": order}), []))
    assert "in random order – (no instance holds two documents) and in similar order 0.250." in text
    assert "nan" not in text


def test_what_is_absent_is_left_out(job: Path) -> None:
    for name in ("samples.json", "neighbors.json", "runs/lory/routes.npz", "runs/lory/metrics.jsonl"):
        (job / name).unlink()
    left_out = {"Use of experts", "Who routes where", "Samples"}
    assert Page(write_report(job).read_text()).headings[1:] == [s for s in SECTIONS if s not in left_out]
    (job / "results.json").unlink()
    with pytest.raises(InputError, match=r"results\.json"):
        write_report(job)


def steps_of(job: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job / "runs/lory/metrics.jsonl").read_text().splitlines()]


def test_only_a_soft_design_has_a_threshold_of_activity(job: Path) -> None:
    soft, sparse = (text_of(expert_use_plots(steps_of(job), soft)) for soft in (True, False))
    assert "38 % of the experts get more than twice the even weight" in soft
    assert "a weight above 2/4" in soft
    assert "active" not in sparse
    assert "the busiest expert of a layer gets 35.0 % of the choices and the least busy 15.0 %" in sparse
    assert "(averaged over layers; 25.0 % if the load were even)" in sparse
    assert all("an even load. One band alone: collapse" in text for text in (soft, sparse))


def test_choices_and_weights_are_two_pictures_where_they_differ(job: Path) -> None:
    routes = Routes.load(job / "runs/lory/routes.npz")
    assert "Share of choices" not in text_of(who_routes_where(routes))
    sparse = replace(routes, choices=np.array([[[9.0, 1, 0, 0], [5, 5, 0, 0]]] * 2), field="topic")
    text = text_of(who_routes_where(sparse))
    assert "Share of choices: how much of all choices falls on each expert (columns) for each topic" in text
    assert "Mean weight of each expert (columns) for each topic (rows), 0 where it is not chosen" in text
    assert "python: expert 0 of layer 0 has a share of 0.90, elsewhere 0.50" in text
    bits, agreement = sparse.domain_bits[0], sparse.domain_agreement[0]
    assert f"agrees with the topic by {agreement:.2f} (averaged over layers; 0 is chance" in text
    assert f"layer\N{NO-BREAK SPACE}1{np.exp(sparse.load_entropy[1]):.2f}0.700" in text
    assert f"{bits:.3f}0.000{agreement:.2f}" in text
    names = ("choices", "mean_gates")
    one = replace(sparse, **{n: getattr(sparse, n)[:, :1] for n in names})
    one = replace(one, confidence_entropy=one.confidence_entropy[:, :1], units=one.units[:1])
    text = text_of(who_routes_where(replace(one, sequences=one.sequences[:1], domains=("python",))))
    assert "agrees with the topic" not in text
    assert "elsewhere" not in text


def test_the_report_of_one_run(job: Path) -> None:
    run, out = job / "runs/lory", job / "analysis"
    settings = {"name": HOSTILE, "steps": 24, "routing": {"unit": "segment"}, "corpus": ["/somewhere"]}
    dump(run / "run.json", settings)
    page = Page(write_run_report(run, out, remark=HOSTILE).read_text())
    assert page.headings == [HOSTILE, "Learning", "Use of experts", "Settings"]
    assert f"Note: {HOSTILE}" in page.text
    assert "activation" not in page.text
    assert "routing.unit" in page.text
    assert "/somewhere" not in page.text


def test_the_report_of_a_model_folder_has_its_routes_alone(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    assert Page(write_run_report(folder, job / "runs/lory").read_text()).headings == [
        "some-model",
        "Who routes where",
    ]
    with pytest.raises(InputError, match="some-model"):
        write_run_report(folder, folder)
    of_run = tmp_path / "a-run" / "model"
    of_run.mkdir(parents=True)
    assert Page(write_run_report(of_run, job / "runs/lory").read_text()).headings[0] == "a-run"


def test_a_sentence_in_a_table_wraps_and_a_number_does_not() -> None:
    made = table(["", "said", "number"], [["a", "word " * 30, "1.5 (1.2 to 1.8)"]])
    assert made.count('<td class="words">word') == made.count("<td>1.5") == 1
