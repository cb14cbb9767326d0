"""The scripts for a GPU and for bounds, tried at tiny sizes on a CPU."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tinybench import TINY, script

from loriini.bench import measure, models
from loriini.bench.sizes import CUDA

DOCS = Path(__file__).parents[2] / "docs"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    module = script(name)
    monkeypatch.setattr(module, "QUICK", replace(TINY, experts=(4,), decode_batches=(2,)))
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module.main()


def test_roofline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "roofline.json"
    run("roofline", monkeypatch, "--tiny", "--bandwidth=1e6", "--flops=1e9", "--results", str(path))
    dense, kept, again = json.loads(path.read_text())["rows"]
    assert dense["ratio"] == 1
    assert 1 > kept["ratio"] > again["ratio"] > 0
    assert kept["total_ms"] == pytest.approx(sum(kept["milliseconds"].values()), abs=0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
def test_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    run("gpu", monkeypatch, "--tiny", "--part", "ffn", "--rounds", "1", "--results", str(path))
    results = json.loads(path.read_text())
    assert all(check["passed"] for check in results["correctness"])
    names = [check["check"] for check in results["correctness"]]
    assert sum("compiled beside eager" in name for name in names) == 3
    assert any("mixtral, 64 experts, 16 units" in name for name in names)
    merge, gradients, *products = results["kernels"]
    assert (merge["operation"], gradients["operation"]) == ("merge", "merge gradients, products")
    assert all(row["ms"] > 0 and row["ratio"] > 0 for row in results["kernels"])
    assert [row["segments"] for row in results["kernels"]] == [8] * 5
    assert len(products) == 3
    assert [row["what"] for row in results["bench"]] == ["ffn"]
    assert [each["design"] for each in results["profile"]] == ["dense", "lory"]
    assert results["profile"][0]["operations"][0]["ms"] > 0


def test_gpu_measures_beside_a_wrong_result_and_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checks = script("gpu_checks")
    right: Callable[..., torch.Tensor] = checks.by_parameters_loop
    monkeypatch.setattr(checks, "by_parameters_loop", lambda *given: 1.1 * right(*given))
    monkeypatch.setattr(checks, "compiled_checks", lambda size: iter(()))
    monkeypatch.setattr(script("gpu"), "profiles", lambda size, attempts: iter(()))
    path = tmp_path / "gpu.json"
    with pytest.raises(SystemExit) as end:
        run("gpu", monkeypatch, "--tiny", "--part", "ffn", "--rounds=1", "--results", str(path))
    assert end.value.code == 1
    results = json.loads(path.read_text())
    assert not all(check["passed"] for check in results["correctness"])
    assert results["bench"]


def test_gpu_begins_nothing_once_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "step_seconds", lambda run, machine: 1.0)
    run("gpu", monkeypatch, "--tiny", "--minutes=0", "--results", str(tmp_path / "gpu.json"))
    left_out = capsys.readouterr().err
    for name in ("correctness", "kernels", "benchmark of train:", "profile", "decode, memory:"):
        assert any(name in line and "left out" in line for line in left_out.splitlines()), name
    assert not (tmp_path / "gpu.json").exists()


def test_gpu_measures_small_micro_batches_first(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "kernel_rows", lambda *_: iter(()))
    monkeypatch.setattr(gpu, "benchmark", lambda parts, size, *_: (parts, size.micro_batch_sizes))
    planned = [rows if name == "bench" else name for name, rows in gpu.plan(CUDA, None, None, gpu.Attempts())]
    assert planned[:5] == ["correctness", "kernels", (["train"], (4,)), "profile", (["train"], (8, 16))]
    assert planned[5:] == [(["sparse", "aoe", "ffn", "decode", "memory"], (4, 8, 16))]


def test_gpu_refuses_an_unknown_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("gpu", monkeypatch, "--tiny", "--part", "trian")
    assert end.value.code == 2
    assert "invalid choice: 'trian'" in capsys.readouterr().err


def test_the_published_pages_are_filled_from_the_committed_results(tmp_path: Path) -> None:
    figures = script("figures")
    for page in figures.PAGES:
        (tmp_path / page).write_text((DOCS / page).read_text())
    figures.of_pages(tmp_path)
    for page in figures.PAGES:
        assert (tmp_path / page).read_text() == (DOCS / page).read_text()


def test_figures_fill_the_page_and_keep_its_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds = {"dense": 1.0, "lory": 1.5}
    monkeypatch.setattr(models, "step_seconds", lambda run, machine: seconds[run.name])
    *_, measured = measure(only=["train", "sweep", "ffn", "memory"], rounds=1, size=TINY)
    page = tmp_path / "speed.md"
    fill, parts = script("pages").fill, script("speed_figures").PARTS
    page.write_text(original := (DOCS / "speed.md").read_text())
    pictures = fill(page, parts, {"bench": measured})
    assert set(pictures) == {"speed_ratios", "speed_memory"}
    ratio = measured[0]["ratio"]  # of one round
    assert f"| lory | 2 | 8 | 8 | kept | {ratio:.3f} |" in page.read_text()
    assert "**`ffn`** is forward and backward" in page.read_text()
    assert "**`decode`** is" not in page.read_text()
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| lory | 2 | 8 | 8 |"))
    assert [float(bound) for bound in row.split("|")[7].split(" to ")] == pytest.approx([ratio] * 2, abs=2e-3)
    fill(page, parts, {"bench": [row for row in measured if row["what"] != "ffn"]})
    text = page.read_text()
    assert "### Sparse designs, FFNs and decoding" not in text
    assert text.count("(pictures/speed_ratios.svg)") == 1
    assert text.endswith(original[-200:])


def test_a_section_is_there_once_its_results_are(tmp_path: Path) -> None:
    path, page = DOCS.parent / "benchmarks" / "results" / "roofline.json", tmp_path / "speed.md"
    begin, end = (mark.format(name="bounds-cpu") for mark in (script("pages").BEGIN, script("pages").END))
    before, _, rest = (DOCS / "speed.md").read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{end}{rest.partition(end)[2]}")
    assert "A CPU with its measured peaks" not in page.read_text()
    script("pages").fill(page, script("speed_figures").PARTS, {"roofline_cpu": json.loads(path.read_text())})
    assert "### A CPU with its measured peaks, milliseconds\n\n| E |" in page.read_text()


def test_products_are_measured_in_all_ways() -> None:
    products = script("products")
    for name, ways in products.operations(replace(TINY, segment_length=64)).items():  # a single segment
        own, one, columns = (way() for way in ways)
        torch.testing.assert_close(own[0], one, rtol=0.05, atol=0.1)
        torch.testing.assert_close(columns.T if name == "output" else columns, one, rtol=0.05, atol=0.1)
    found = products.measure(TINY, rounds=2)
    assert [row["product"] for row in found["rows"]] == list(products.operations(TINY))
    assert found["segments"] == 8
    assert all(row[f"{way}_ms"] > 0 for row in found["rows"] for way in (*products.WAYS, "added"))


def test_the_range_of_a_ratio_is_that_of_its_rounds() -> None:
    row = {"ratio": 0.9, "seconds": [2.0, 1.0, 1.0], "baseline_seconds": [1.0, 0.9, 1.2]}
    assert script("speed_figures").extremes(row) == (0.5, 1.2)


def test_rows_of_several_machines_name_each() -> None:
    about = {"processor": "A", "cores": 2, "torch": "2.13", "date": "2026-01-02"}
    rows = [
        {"what": what, "dtype": dtype, "machine": {**about, "processor": processor}}
        for what, dtype, processor in [("ffn", "bf16", "A"), ("ffn", "bf16", "A"), ("decode", "fp32", "B")]
    ]
    measured_on = script("speed_figures").measured_on
    assert measured_on(rows[:2]) == "Measured on A, 2 cores, bf16, torch 2.13, 2026-01-02."
    assert measured_on(rows) == (
        "`ffn`: A, 2 cores, bf16, torch 2.13, 2026-01-02. `decode`: B, 2 cores, fp32, torch 2.13, 2026-01-02."
    )
