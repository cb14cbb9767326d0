"""The main job from documents to report, on a machine's smallest models: made once, resumed exactly."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.calls import PROGRESS
from loriini import quickstart
from loriini.analyze.routes import Routes, top_experts
from loriini.cli import main
from loriini.errors import InputError
from loriini.quickstart import Quickstart, run_quickstart
from loriini.recipes import SIZES, Size
from loriini.sources.document import Document
from loriini.train.metrics import METRICS, read_metrics
from loriini.train.run import ModelShape
from runs import after_step, signal_self

DOMAINS = ("cooking", "ledger", "<b>code</b>")
STAGES = {"gather documents", "prepare corpus", "train dense", "train lory", "evaluate and analyze"}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str


def text(domain: str, rng: np.random.Generator) -> str:
    """A few lines that could be of no other domain."""
    a, b, c = rng.integers(1, 999, 3)
    lines = {
        "cooking": f"Stir {a} grams of flour into {b} of butter, and bake it for {c} minutes until golden.\n",
        "ledger": f"{a:06}.{b % 100:02} EUR | account {c} | debit\n",
        "<b>code</b>": f"def f_{a}(x, y):\n    return x * {b} + y['<script>'] - {c}\n\n",
    }
    return lines[domain] * int(rng.integers(3, 6))


@pytest.fixture(scope="module", autouse=True)
def smallest() -> Iterator[None]:
    """The quickstart's small size, made smaller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", Size(ModelShape(32, 48, 2, 2), 384, 20, 4))
        yield


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("documents") / "mixed.jsonl"
    with open(path, "w") as file:
        for i in range(360):
            record = {"id": f"d{i}", "text": text(DOMAINS[i % 3], rng), "domain": DOMAINS[i % 3]}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def out(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job."""
    folder = tmp_path_factory.mktemp("job") / "out"
    main(arguments(documents, folder))
    return folder


def arguments(documents: Path, out: Path, *more: str) -> list[str]:
    return ["quickstart", "--documents", str(documents), "--out", str(out), "--steps", "20", *more]


def call(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> Ended:
    capsys.readouterr()
    code = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    written = capsys.readouterr()
    return Ended(code, written.out, PROGRESS.sub("", written.err))


def interrupt(*_: Any) -> None:
    """A second Ctrl-C, or one that comes where nothing waits for it."""
    raise KeyboardInterrupt


def results(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "results.json").read_text())
    return read


def without_times(out: Path) -> dict[str, Any]:
    return {key: value for key, value in results(out).items() if key != "seconds"}


def test_the_results_have_the_contracts_keys(out: Path) -> None:
    found = results(out)
    assert found.keys() == {"dense", "lory", "parameters", "tokens", "seconds", "order"}
    for name in ("dense", "lory"):
        assert found[name].keys() == {"perplexity", "perplexity_all", "loss"}
        assert found[name]["perplexity"].keys() == found[name]["perplexity_all"].keys() == set(DOMAINS)
    assert found["parameters"].keys() == {"dense", "lory_total", "lory_active"}
    assert found["tokens"].keys() == {"train", "heldout"}
    assert found["seconds"].keys() == STAGES
    assert found["order"].keys() == {"random", "similar"}


def test_the_results_are_those_of_what_was_made(out: Path) -> None:
    found = results(out)
    assert found["tokens"]["train"] == 20 * 4 * 512
    held = [
        json.loads((out / "runs" / n / "evaluation.json").read_text())["tokens"] for n in ("dense", "lory")
    ]
    assert held[0] == held[1]
    assert found["tokens"]["heldout"] == sum(held[0].values())
    sizes = found["parameters"]
    assert sizes["dense"] < sizes["lory_active"] < sizes["lory_total"]
    assert found["order"]["similar"] > found["order"]["random"] + 0.1
    for name in ("dense", "lory"):
        steps = read_metrics(out / "runs" / name / METRICS)
        assert [m["step"] for m in steps] == list(range(1, 21))
        assert found[name]["loss"] == pytest.approx(np.mean([m["loss"] for m in steps]))
        assert all(1 < value < 384 for value in found[name]["perplexity"].values())


def test_no_document_is_on_both_sides(out: Path) -> None:
    counts = [
        json.loads((out / "corpora" / side / "documents" / "manifest.json").read_text())["counts"][
            "documents"
        ]
        for side in ("train", "heldout")
    ]
    assert sum(counts) == 360
    assert 360 * 0.03 < counts[1] < 360 * 0.15


def test_the_report_is_there_and_lets_nothing_through(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "&lt;b&gt;code&lt;/b&gt;" in page
    assert "<b>code</b>" not in page
    assert "['<script>']" not in page
    assert "Who routes where" in page


def test_a_second_call_does_nothing_again(
    documents: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def times() -> dict[Path, int]:
        folders = (out / "corpora", out / "runs")
        return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}

    before, found, started = times(), without_times(out), time.monotonic()
    ended = call(capsys, arguments(documents, out))
    assert time.monotonic() - started < 10
    assert ended.code == 0
    assert times() == before
    assert without_times(out) == found
    assert ended.out.endswith(f"{out / 'report.html'}\n")
    assert all(domain in ended.out for domain in ("cooking", "ledger", "mean"))
    assert ended.err == f"Everything goes to {out}\n"


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (signal_self, "saved after step 7 of 20; the same command goes on"),
        (interrupt, "the same command goes on where it stopped"),
    ],
)
def test_an_interrupted_job_goes_on_to_the_same_results(
    happens: Callable[[], None],
    told: str,
    documents: Path,
    out: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        train = quickstart.train

        def interrupted(run: Any, *others: Any) -> Path:
            if run.name == "lory":
                after_step(patch, 7, happens)
            return train(run, *others)

        patch.setattr(quickstart, "train", interrupted)
        ended = call(capsys, arguments(documents, tmp_path / "job"))
    assert (ended.code, ended.out) == (130, "")
    assert told in ended.err
    assert not (tmp_path / "job" / "results.json").exists()
    assert call(capsys, arguments(documents, tmp_path / "job")).code == 0
    assert without_times(tmp_path / "job") == without_times(out)


def test_an_interruption_between_stages_says_that_the_command_goes_on(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quickstart, "prepare_documents", interrupt)
    ended = call(capsys, arguments(documents, tmp_path / "job"))
    assert ended.code == 130
    assert "the same command goes on where it stopped" in ended.err


@pytest.mark.parametrize(
    ("more", "changed"),
    [(("--seed", "1"), "seed"), (("--size", "medium", "--design", "aoe"), "design, size")],
)
def test_another_job_in_the_same_folder_is_refused(
    more: tuple[str, ...], changed: str, documents: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, arguments(documents, out, *more))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert f"quickstart.json: this folder holds a job with other {changed}; choose another --out" in ended.err


def test_another_design_stands_beside_the_dense_model(documents: Path, tmp_path: Path) -> None:
    main(arguments(documents, tmp_path / "job", "--design", "mixtral"))
    found = results(tmp_path / "job")
    assert found.keys() == {"dense", "mixtral", "parameters", "tokens", "seconds", "order"}
    assert found["parameters"].keys() == {"dense", "mixtral_total", "mixtral_active"}
    assert found["dense"]["perplexity"] == found["dense"]["perplexity_all"]  # no token is left out
    assert found["seconds"].keys() == STAGES - {"train lory"} | {"train mixtral"}
    assert "mixtral" in (tmp_path / "job" / "report.html").read_text()


def test_label_routing_works_from_documents_to_report(
    documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments(documents, tmp_path / "job", "--design", "label"))
    run = tmp_path / "job" / "runs" / "label"
    names = sorted(DOMAINS)
    assert json.loads((run / "model" / "config.json").read_text())["label_names"] == names
    routes = Routes.load(run / "routes.npz")
    experts = [[names.index(domain) for domain in routes.domains]] * 2
    assert top_experts(routes.mean_gates).tolist() == experts
    assert "label" in (tmp_path / "job" / "report.html").read_text()

    texts = ["--documents", str(documents)]
    evaluated = json.loads(call(capsys, ["evaluate", str(run), *texts]).out)
    assert evaluated["perplexity"].keys() == set(DOMAINS)
    assert call(capsys, ["analyze", str(run), *texts, "--out", str(tmp_path / "analysis")]).code == 0
    assert call(capsys, ["designs", "--audit", str(run)]).out.startswith("declared strict, measured strict")
    for more, code in ((("--label", "ledger"), 0), (("--label", "poems"), 2), ((), 2)):
        written = call(capsys, ["generate", str(run), "--prompt", "Stir", "--max-new-tokens", "2", *more])
        assert written.code == code
    export = ["export", str(run), "--to", "llama", "--out", str(tmp_path / "llama")]
    assert "combination=parameters" in call(capsys, [*export, "--label", "ledger"]).err

    poem = tmp_path / "poem.jsonl"
    poem.write_text('{"id": "sonnet 18", "text": "Shall I compare thee", "domain": "poems"}\n')
    for command in ("evaluate", "analyze"):
        ended = call(capsys, [command, str(run), "--documents", str(poem)])
        assert ended.code == 2
        assert "document sonnet 18: its domain 'poems' is not a label to route by" in ended.err


def test_heldout_text_without_a_label_is_told_before_training(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = quickstart.split_documents([str(documents)], 10**9, 10**9)
    sides["heldout"].append(Document("sonnet 18", "Shall I compare thee", "poems"))
    monkeypatch.setattr(quickstart, "gather", lambda: sides)
    with pytest.raises(InputError, match="document sonnet 18: its domain 'poems' is not a label"):
        run_quickstart(Quickstart(design="label", steps=2), tmp_path / "job")
    assert not (tmp_path / "job" / "runs").exists()


def test_a_missing_path_is_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, arguments(tmp_path / "absent", tmp_path / "job"))
    assert (ended.code, ended.out) == (2, "")
    assert f"loriini: {tmp_path / 'absent'}: no such file or folder; check the path" in ended.err
    assert not any(tmp_path.iterdir())


def test_a_folder_of_other_things_is_left_alone(
    documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for there in (tmp_path, tmp_path / "mine.txt"):
        ended = call(capsys, arguments(documents, there))
        assert ended.code == 2
        assert f"{there}: is there and is not a quickstart's folder; choose another --out" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_too_little_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "only one"}\n')
    ended = call(capsys, arguments(few, tmp_path / "job"))
    assert ended.code == 2
    assert "document is left; give more text" in ended.err


def test_the_machines_own_text_is_taken_where_none_is_given(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = quickstart.split_documents([str(documents)], 10**9, 10**9)
    monkeypatch.setattr(quickstart, "gather", lambda: sides)
    run_quickstart(Quickstart(steps=2), tmp_path / "job")
    assert results(tmp_path / "job")["tokens"]["train"] == 2 * 4 * 512
