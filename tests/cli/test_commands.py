"""What each command prints and writes; the rooms' own tests show how."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from cli.calls import TRAIN, WORDS, Captured, Ended, Made, assert_refused, call
from loriini.export.formats import FORMATS
from loriini.routing import DESIGNS
from loriini.train.upcycle import WarmupConfig
from runs import metrics, tiny_run, trained


def test_designs_and_recipes_are_listed(capsys: Captured) -> None:
    listed = {}
    for command in ("designs", "recipes"):
        rows = json.loads(call(capsys, command, "--json").out)
        table = call(capsys, command).out.splitlines()
        assert [line.split()[0] for line in table] == ["name", *(row["name"] for row in rows)]
        listed[command] = {row["name"]: row for row in rows}
    designs, recipes = listed.values()
    assert designs.keys() == DESIGNS.keys()
    assert designs["lory"]["causality"] == designs["lory"]["training_causality"] == "after_first_segment"
    assert (designs["aoe-ec"]["causality"], designs["aoe-ec"]["training_causality"]) == ("strict", "none")
    keys = ["name", "parameters_total", "parameters_active", "published_total", "published_active"]
    assert all(list(row) == keys for row in recipes.values())
    assert {"tiny-dense", "tiny-lory", "tiny-mixtral", "tiny-aoe"} <= recipes.keys()
    rows = {line.split()[0]: line.split() for line in call(capsys, "recipes").out.splitlines()}
    assert rows["0.3b-lory-8e"][1:6] == ["8", "1,024", "24", "4,096", "32,000"]
    rows = {line.split()[0]: line for line in call(capsys, "designs").out.splitlines()}
    assert "expert_choice 2" in rows["aoe-ec"]
    assert rows["aoe-ec"].endswith("strict, in training none")


def test_prepare_prints_what_it_made_and_left_out(tmp_path: Path, capsys: Captured) -> None:
    texts = ["some words", "other words", "some words", "more of them"]
    records = [json.dumps({"id": "same", "text": text}) for text in texts]
    (tmp_path / "d.jsonl").write_text("\n".join([*records, "no JSON"]))
    settings = ("--length", 4, "--tokenizer", "bpe:300", "--order", "random", "--on-error", "skip")
    prepare = ("prepare", "c", "--documents", tmp_path / "d.jsonl", "--out", tmp_path)
    made, *others = call(capsys, *prepare, *settings).out.splitlines()
    assert re.fullmatch(r".*c: 3 documents, \d+ tokens of a vocabulary of \d+, \d+ instances of 4", made)
    assert others == [
        "left out: not valid JSON 1, exact duplicate 1; "
        "each is in documents/dropped.jsonl or duplicates/duplicates.jsonl"
    ]
    assert call(capsys, *prepare, *settings).out.splitlines() == [made, *others]
    other = call(capsys, *prepare, *settings, "--length", 8)
    assert_refused(other, "was made with other settings (length 4, not 8)")


def test_prepare_prints_what_it_held_out(tmp_path: Path, capsys: Captured) -> None:
    records = [json.dumps({"id": str(i), "text": f"document number {i}"}) for i in range(200)]
    (tmp_path / "d.jsonl").write_text("\n".join(records))
    settings = ("--length", 4, "--tokenizer", "bpe:300", "--order", "random", "--heldout-share", 0.5)
    prepare = ("prepare", "c", "--documents", tmp_path / "d.jsonl", "--out", tmp_path)
    _, held = call(capsys, *prepare, *settings).out.splitlines()
    path = tmp_path / "c" / "heldout" / "documents.jsonl"
    assert held == f"held out: {len(path.read_text().splitlines())} documents, in {path}"


def test_inspect_prints_numbers_writes_a_page_and_verifies(
    made: Made, tmp_path: Path, capsys: Captured
) -> None:
    corpus = Path(shutil.copytree(made.corpus, tmp_path / "corpus"))
    found = json.loads(call(capsys, "inspect", corpus, "--json").out)
    assert found["domains"]["tools"]["documents"] == 120
    assert not (corpus / "inspect.html").exists()
    ended = call(capsys, "inspect", corpus, "--verify")
    table = dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert table["domain birds"].strip().startswith("120 documents")
    assert table["page"].strip() == str(corpus / "inspect.html")
    assert "Documents and their nearest" in (corpus / "inspect.html").read_text()
    assert re.fullmatch(r" *all \d+", table["verified files"])
    (corpus / "instances" / "instances.bin").write_bytes(b"half")
    assert_refused(call(capsys, "inspect", corpus, "--verify"), "instances.bin is not what was written")


def test_a_corpus_goes_to_another_format_and_back(made: Made, tmp_path: Path, capsys: Captured) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    to = ("convert", made.corpus, "--to", "parquet", "--out", there)
    assert_refused(call(capsys, *to, "--length", 64), "--length")
    assert call(capsys, *to).out == f"{there}\n"
    to_corpus = ("convert", there, "--from", "hf", "--length", 64, "--out", back)
    assert_refused(call(capsys, *to_corpus), "--from needs --tokenizer PATH")
    assert call(capsys, *to_corpus, "--tokenizer", there / "tokenizer").code == 0
    names = [folder / "instances" / "instances.bin" for folder in (made.corpus, back)]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_a_dry_run_estimates_and_makes_nothing(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dry_run = ("train", "tiny-lory", "--dry-run", "--gpus", 8, "--memory", "80GiB", "--vocab-size", 100)
    found = json.loads(call(capsys, *dry_run, "--json").out)
    assert (found["name"], found["gpus"]) == ("tiny-lory", 8)
    ended = call(capsys, *dry_run)
    assert (ended.code, ended.err) == (0, "")
    assert f"parameters {found['parameters_total']:,}," in ended.out
    assert "in 80.00 GiB" in ended.out
    assert not list(tmp_path.iterdir())


def test_a_finished_run_needs_its_corpus_no_more(made: Made, tmp_path: Path, capsys: Captured) -> None:
    run = Path(shutil.copytree(made.run, tmp_path / "run"))
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "corpus": ["gone"]}))
    left = Ended(0, f"{run / 'model'}\n", f"{run}: finished before, so nothing is trained\n")
    assert call(capsys, "train", "--resume", run) == left
    shutil.rmtree(run / "model")
    assert_refused(call(capsys, "train", "--resume", run), "gone: no finished corpus here")
    assert call(capsys, "train", "--resume", run, "--corpus", made.corpus).code == 0


def test_a_run_measures_itself_and_stops_in_time(made: Made, tmp_path: Path, capsys: Captured) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, "--heldout", made.documents)
    asked = ("--evaluate.every", 10)
    stopped = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 1e-9)
    assert (stopped.code, stopped.out) == (0, "")
    assert "saved after step 1 of 24" in stopped.err
    assert f"held-out documents are also in the corpus {made.corpus}" in stopped.err
    ended = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 60)
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'model'}\n")
    assert "tiny-lory: resumed after step 1 of 24\n" in ended.err
    evaluated = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in evaluated] == [10, 20, 24]
    assert f"held-out perplexity {evaluated[-1]['mean_perplexity']:.2f}" in ended.err


def test_a_run_json_is_a_recipe(made: Made, tmp_path: Path, capsys: Captured) -> None:
    """With its corpus, and fields of another version; the same losses come out."""
    values = json.loads((made.run / "run.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**values, "a_field_of_another_version": 1}))
    assert call(capsys, "train", tmp_path / "other.json", "--out", tmp_path / "again").code == 0
    assert metrics(tmp_path / "again") == metrics(made.run)


def test_evaluate_prints_and_writes_the_contracts_measures(
    made: Made, heldout: Path, tmp_path: Path, capsys: Captured
) -> None:
    documents = ("--documents", heldout, "--domain-field", "topic")
    ended = call(capsys, "evaluate", made.run, *documents, "--out", tmp_path / "new" / "results.json")
    results = json.loads(ended.out)
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == results
    measures = {"perplexity", "perplexity_all", "bits_per_byte", "tokens"}
    assert results.keys() >= {*measures, "skip", "routing", "causality"}
    assert all(results[measure].keys() == WORDS.keys() for measure in measures)
    assert (results["skip"], results["routing"]) == (16, "training")
    assert results["causality"] == "after_first_segment"
    title, head, *table = ended.err.splitlines()
    each = "each document, or window of a long one, without its first 16 tokens"
    assert title == f"perplexity of held-out text: {each}"
    assert head.split()[:3] == ["domain", "tokens", "perplexity"]
    for topic, line in zip(WORDS, table, strict=False):
        assert line.split()[:3] == [
            topic,
            f"{results['tokens'][topic]:,}",
            f"{results['perplexity'][topic]:.3f}",
        ]
    runs = (made.run, made.run / "model")
    ended = call(capsys, "evaluate", *runs, *documents)
    first, second = json.loads(ended.out)
    assert [first["run"], second["run"]] == list(map(str, runs))
    assert first["perplexity"] == second["perplexity"] == results["perplexity"]
    assert second["difference"] == {name: {"change": 0, "low": 0, "high": 0} for name in ("all", *WORDS)}
    assert ended.err.splitlines()[-1] == f"  {runs[1]}  all: +0.0 % (+0.0 to +0.0 %)"


def test_evaluate_runs_downstream_tasks(made: Made, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")
    rows = [{"query": f"Question: {i}", "choices": ["the owl", "an awl"], "gold": i % 2} for i in range(4)]
    (tmp_path / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = ("--tasks", "piqa", "--tasks-data", tmp_path, "--limit", 3, "--device", "cpu")
    ended = call(capsys, "evaluate", made.run, *tasks, "--routing", "segment", "--out", tmp_path / "o.json")
    result = json.loads(ended.out)
    assert json.loads((tmp_path / "o.json").read_text()) == result
    assert result["routing"] == "segment"
    assert result["tasks"]["piqa"].keys() >= {"metric", "value", "stderr", "n", "shots"}
    assert result["tasks"]["piqa"]["n"] == 3
    assert "piqa  acc_norm" in ended.err
    ended = call(capsys, "evaluate", made.run, *tasks, "--label", "z")
    assert_refused(ended, "--label z")


def test_analyze_writes_routes_and_a_report(made: Made, tmp_path: Path, capsys: Captured) -> None:
    asked = ("analyze", made.run, "--documents", made.documents, "--domain-field", "topic", "--out", tmp_path)
    assert call(capsys, *asked) == Ended(0, f"{tmp_path / 'report.html'}\n", "")
    page = (tmp_path / "report.html").read_text()
    assert all(part in page for part in ("Who routes where", "birds", "tools"))
    with np.load(tmp_path / "routes.npz") as routes:
        assert routes["domains"].tolist() == ["birds", "tools"]
        np.testing.assert_allclose(routes["mean_gates"].sum(-1), 1, rtol=1e-5)
    assert call(capsys, *asked, "--contexts", "strung", "--instances", 2).code == 0
    assert json.loads((tmp_path / "routes.json").read_text())["sequences"] == {"birds": 2, "tools": 2}
    (tmp_path / "routes.npz").unlink()
    assert_refused(call(capsys, *asked), "report.html")


@pytest.mark.parametrize(
    ("design", "trained_so", "scored_so"),
    [("smear", "is not causal:", True), ("ec-token", "is not causal in training:", False)],
)
def test_what_is_not_causal_says_so_once(
    design: str, trained_so: str, scored_so: bool, tmp_path: Path, capsys: Captured
) -> None:
    run = trained(tiny_run(design, steps=2, warmup=WarmupConfig(dense_share=0)), tmp_path)
    said = capsys.readouterr().err
    assert said.count("not causal") == 1
    assert trained_so in said
    text = tmp_path / "held-out.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(100)))
    ended = call(capsys, "evaluate", run, "--documents", text)
    assert ended.err.count(f"warning: {run}: this design is not causal") == scored_so
    assert json.loads(ended.out)["causality"] == ("none" if scored_so else "strict")
    call(capsys, "analyze", run, "--documents", text)
    assert (run / "report.html").read_text().count("not causal") == 1


def test_lens_writes_a_page(made: Made, tmp_path: Path, capsys: Captured) -> None:
    ended = call(capsys, "lens", made.run, "--prompt", "the owl is number 3")
    assert ended == Ended(0, f"{made.run / 'lens.html'}\n", "")
    (tmp_path / "text.txt").write_text("the owl is number 3")
    out = tmp_path / "new" / "a.html"
    assert call(capsys, "lens", made.run, "--text", tmp_path / "text.txt", "--out", out).out == f"{out}\n"
    assert out.read_text() == (made.run / "lens.html").read_text()


def test_generate_prints_the_prompt_and_what_follows(made: Made, capsys: Captured) -> None:
    prompt = ("generate", made.run, "--prompt", "the owl", "--max-new-tokens", 8)
    for more in (("--greedy",), ("--routing", "segment"), ("--seed", 3, "--device", "cpu")):
        ended = call(capsys, *prompt, *more)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("the owl")
        assert call(capsys, *prompt, *more) == ended
    assert "--max-new-tokens 63" in call(capsys, *prompt, "--max-new-tokens", 63).err


def test_export_writes_folders_for_transformers(made: Made, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "prompt.txt").write_text("the owl is")
    given = {"text": ("--prompt", "the owl is"), "file": ("--prompt-file", tmp_path / "prompt.txt")}
    for name, more in given.items():
        ended = call(capsys, "export", made.run, "--to", "llama", *more, "--out", tmp_path / name)
        assert ended == Ended(0, f"{tmp_path / name}\n", "")
    LlamaForCausalLM.from_pretrained(tmp_path / "text")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in given]
    assert weights[0] == weights[1]
    assert call(capsys, "export", made.run, "--to", "hf", "--out", tmp_path / "hf").code == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "hf").config.num_experts == 4
    shown = " ".join(call(capsys, "export", "--help").out.split())
    assert all(f"{name} " in shown for name in FORMATS)
