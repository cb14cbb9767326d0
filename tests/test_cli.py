"""The command line: results on standard output, one line for wrong input, the exit codes of the contract."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from loriini.cli import main
from loriini.routing import DESIGNS
from loriini.train.upcycle import WarmupConfig
from runs import after_step, metrics, signal_self, tiny_run, trained

TRAIN = ["--steps", "24", "--batch_size", "2", "--length", "64", "--routing.segment_length", "16"]
WORDS = {"birds": ("wren", "owl", "heron", "finch"), "tools": ("saw", "plane", "chisel", "awl")}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Made:
    """Documents, a corpus of them, and a finished run on it."""

    documents: Path
    corpus: Path
    run: Path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    capsys.readouterr()
    code = 0
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        code = int(end.code or 0)
    written = capsys.readouterr()
    return Ended(code, written.out, written.err)


def assert_refused(ended: Ended, *told: str) -> None:
    """Exit code 2, nothing on standard output, and one line that tells what, where and the remedy."""
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("loriini: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    for part in told:
        assert part in ended.err


def write_documents(path: Path, count: int = 240) -> Path:
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        for i in range(count):
            domain = list(WORDS)[i % 2]
            text = " ".join(f"the {word} is number {i}" for word in rng.choice(WORDS[domain], 12))
            file.write(json.dumps({"text": text, "topic": domain}) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("cli")
    documents = write_documents(folder / "documents.jsonl")
    prepare = ["prepare", "corpus", "--documents", documents, "--out", folder, "--domain-field", "topic"]
    main([*map(str, prepare), "--length", "64", "--tokenizer", "bpe:320"])
    made = Made(documents, folder / "corpus", folder / "run")
    main(["train", "tiny-lory", "--out", str(made.run), "--corpus", str(made.corpus), *TRAIN])
    return made


def loriini(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The real entry point."""
    command = [sys.executable, "-m", "loriini", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_real_entry_point_prints_results_and_exits_with_zero() -> None:
    done = loriini("designs", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["name"] for row in json.loads(done.stdout)] == list(DESIGNS)


def test_the_real_entry_point_exits_with_two_for_wrong_input(tmp_path: Path) -> None:
    done = loriini("generate", str(tmp_path / "absent"), "--prompt", "the owl")
    assert_refused(Ended(done.returncode, done.stdout, done.stderr), "absent: no trained model here")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "COMMAND"),
        ("nothing", "invalid choice: 'nothing'"),
        ("designs --colour", "unknown argument '--colour'"),
        ("quickstart --steps many", "--steps: invalid int value: 'many'"),
        ("quickstart --size huge", "--size huge: there is none of this name; choose small, "),
        ("quickstart --design none", "--design none: there is none of this name; choose dense, "),
        ("quickstart --design dense", "the dense model is trained anyway"),
        ("quickstart --steps -1", "--steps -1: give a positive number"),
        ("quickstart --documents absent", "absent: no such file or folder; check the path"),
        ("train", "give a recipe and --out RUN, or --resume RUN"),
        ("train tiny-lory", "give a recipe and --out RUN"),
        ("train tiny-lory --out", "--out: expected one argument"),
        ("train nothing --out run", "no recipe is named 'nothing'; `loriini recipes` lists them all"),
        ("train tiny-lory --out run --model.sise 8", "--model.sise 8: there is no 'sise' here"),
        ("train tiny-lory --out run --steps", "--steps has no value"),
        ("train tiny-lory --out run --steps 0 --corpus CORPUS", "steps is 0; it must be at least 1"),
        ("train tiny-lory --out run --corpus absent", "absent: no finished corpus here"),
        ("train 0.3b-dense --out run", "needs a corpus"),
        ("train tiny-lory --dry-run --gpus 3", "batch_size is 8, no multiple of the 3 processes"),
        ("train tiny-lory --dry-run --memory 9Q", "--memory 9Q: give it as 80GiB or 80GB"),
        ("train tiny-lory --dry-run --memory 0.001", "tiny-lory does not fit: each of 1 GPUs would hold"),
        ("train tiny-lory --dry-run --vocab-size 0", "--vocab-size 0: give at least 1"),
        ("train tiny-lory --dry-run --gpus 0", "--gpus 0: give at least 1"),
        ("train tiny-lory --out run --gpus 0", "--gpus: is of an estimate; add --dry-run or leave it out"),
        ("train tiny-lory --out run --memory 80", "--memory: is of an estimate"),
        ("train tiny-lory --out run --vocab-size 9", "--vocab-size: is of an estimate"),
        ("train tiny-lory --out run --json", "--json: is of an estimate"),
        ("train tiny-lory --resume RUN", "tiny-lory: --resume goes on with the run as it is; leave it out"),
        ("train --resume RUN --out run", "--out: --resume goes on"),
        ("train --resume RUN --corpus CORPUS", "--corpus: --resume goes on"),
        ("train --resume RUN --heldout DOCUMENTS", "--heldout: --resume goes on"),
        ("train nothing --dry-run", "no recipe is named 'nothing'"),
        ("train tiny-lory --out run --max-minutes 0", "--max-minutes 0: give more than 0"),
        ("train tiny-lory --out run --corpus CORPUS --heldout absent", "absent: no such file or folder"),
        ("train tiny-lory --out run --watch.sinks print", "one of: tensorboard, wandb, trackio"),
        (
            "train tiny-lory --out run --watch.every 0 --corpus CORPUS",
            "watch.every is 0; it must be at least 1",
        ),
        ("train tiny-lory --out run --guard.max_skips 0 --corpus CORPUS", "guard.max_skips is 0"),
        ("train --resume absent", "absent: no run to resume here"),
        ("prepare c --documents absent --out .", "absent: no such file or folder"),
        ("prepare c --documents empty --out .", "empty: no document found; give .jsonl"),
        ("prepare c --documents bad.jsonl --out .", "bad.jsonl:2: "),
        ("prepare c --documents DOCUMENTS --out . --length 99999 --tokenizer bpe:300", "shorter --length"),
        ("prepare c --documents DOCUMENTS --out . --order best", "order 'best' is unknown"),
        ("prepare c --documents DOCUMENTS --out . --tokenizer bpe:few", "bpe:few: "),
        ("prepare c --documents DOCUMENTS --out . --max-characters 0", "max_characters is 0; it must be"),
        ("prepare c --documents DOCUMENTS --out . --min-characters 999", "(240 left out: fewer than 999"),
        ("prepare c --documents DOCUMENTS:2 --out .", "the weight 2 is not in (0, 1]"),
        ("prepare c --documents DOCUMENTS --out . --on-error cry", "--on-error: invalid choice: 'cry'"),
        ("prepare c --documents DOCUMENTS --out . --executor cloud", "executor 'cloud' is unknown"),
        ("prepare c --documents DOCUMENTS --out . --executor slurm", "--executor-options partition="),
        ("inspect empty", "empty: no finished corpus here"),
        ("evaluate empty --documents DOCUMENTS", "empty: no trained model here; give a run's folder"),
        ("evaluate RUN", "give --documents PATH"),
        ("evaluate RUN --documents absent", "absent: no such file or folder"),
        ("evaluate RUN --tasks piqa", "use --documents"),
        ("analyze empty --documents DOCUMENTS", "empty: no trained model here"),
        ("analyze RUN --documents absent", "absent: no such file or folder"),
        ("generate absent --prompt owl", "absent: no trained model here"),
        ("generate RUN", "required: --prompt"),
        ("generate RUN --prompt owl --max-new-tokens 0", "--max-new-tokens 0: give at least 1"),
        ("export absent --to hf --out o", "absent: no trained model here"),
        ("export RUN --to onnx --out o", "--to: invalid choice: 'onnx'"),
        ("export RUN --to llama --prompt-file absent --out o", "absent: not a readable text file"),
        ("export RUN --to hf --out RUN", "exists and is not empty; choose another --out"),
    ],
)
def test_wrong_input_is_told_in_one_line_and_makes_nothing(
    arguments: str,
    told: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    paths = {"RUN": made.run, "CORPUS": made.corpus, "DOCUMENTS": made.documents}
    for name, path in paths.items():
        arguments = arguments.replace(name, str(path))
    ended = call(capsys, *arguments.split())
    assert_refused(ended, told)
    assert not any(Path(name).exists() for name in ("run", "o", "loriini-quickstart"))


@pytest.mark.parametrize("command", ["", "quickstart", "train", "prepare"])
def test_help_goes_to_standard_output(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *command.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("usage: loriini")


def test_designs_tell_their_settings_and_causality(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(call(capsys, "designs", "--json").out)}
    assert rows.keys() == DESIGNS.keys()
    assert rows["lory"]["causality"] == rows["lory"]["training_causality"] == "after_first_segment"
    assert (rows["aoe-ec"]["causality"], rows["aoe-ec"]["training_causality"]) == ("strict", "none")
    assert rows["mixtral"]["load_balance"] == 0.01


def test_recipes_have_the_contracts_keys(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(call(capsys, "recipes", "--json").out)
    keys = ["name", "parameters_total", "parameters_active", "published_total", "published_active"]
    assert all(list(row) == keys for row in rows)
    assert {"tiny-dense", "tiny-lory", "tiny-mixtral", "tiny-aoe"} <= {row["name"] for row in rows}


@pytest.mark.parametrize("command", ["designs", "recipes"])
def test_tables_have_a_line_for_each_row(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(call(capsys, command, "--json").out)
    table = call(capsys, command).out.splitlines()
    assert [line.split()[0] for line in table] == ["name", *(row["name"] for row in rows)]


def test_prepare_tells_what_it_made_and_does_it_once(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    again = ("--documents", made.documents, "--out", made.corpus.parent, "--domain-field", "topic")
    ended = call(capsys, "prepare", "corpus", *again, "--length", 64, "--tokenizer", "bpe:320")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r".*corpus: 240 documents, [\d,]+ tokens, [\d,]+ instances of 64\n", ended.out)
    other = call(capsys, "prepare", "corpus", *again, "--length", 64, "--tokenizer", "bpe:310")
    assert_refused(other, "tokenizer: was made with other settings (tokenizer)")


def test_a_changed_input_is_told_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        (tmp_path / "texts" / f"{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name} few words " * 50)
    prepare = ("prepare", "c", "--documents", tmp_path / "texts", "--out", tmp_path)
    settings = ("--length", 16, "--tokenizer", "bpe:300", "--order", "random")
    assert call(capsys, *prepare, *settings).code == 0
    (tmp_path / "texts" / "b.txt").write_text("other words " * 50)
    refused = call(capsys, *prepare, *settings)
    assert_refused(refused, f"documents: was made with other inputs ({tmp_path}/texts/b.txt); choose another")


def test_prepare_tells_what_it_left_out_and_renamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["some words", "other words", "some words", "more of them"]
    records = [json.dumps({"id": "same", "text": text}) for text in texts]
    (tmp_path / "d.jsonl").write_text("\n".join([*records, "no JSON"]))
    settings = ("--length", 4, "--tokenizer", "bpe:300", "--order", "random", "--on-error", "skip")
    ended = call(capsys, "prepare", "c", "--documents", tmp_path / "d.jsonl", "--out", tmp_path, *settings)
    assert ended.out.splitlines()[1:] == [
        "left out: not valid JSON 1, exact duplicate 1; "
        "each is in documents/dropped.jsonl or duplicates/duplicates.jsonl",
        "renamed: 2 documents that had the id of an earlier one",
    ]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left"),
            "the disk: No space left; free some space; the",
        ),
        (OSError("9 requested and 3 written"), "the disk: 9 requested and 3 written; free some space; the"),
        (PermissionError(errno.EACCES, "Permission denied"), "the disk: Permission denied; allow it, or"),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory"),
            "the disk: Not a directory; a file is where a",
        ),
    ],
)
def test_an_error_of_the_disk_is_told_and_the_finished_stages_stay(
    error: OSError,
    told: str,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare = ("prepare", "c", "--documents", made.documents, "--out", tmp_path)
    settings = ("--length", 64, "--tokenizer", "bpe:300", "--order", "random")

    def refuse(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("loriini.data.prepare.write_json", refuse)
        ended = call(capsys, *prepare, *settings)
    assert_refused(ended, told)
    finished = (tmp_path / "c" / "documents" / "manifest.json").stat()
    assert call(capsys, *prepare, *settings).code == 0
    assert (tmp_path / "c" / "documents" / "manifest.json").stat() == finished


def test_inspect_tells_numbers_and_writes_a_page(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "inspect", made.corpus)
    assert ended.code == 0
    table = dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert table["domain birds"].strip().startswith("120 documents")
    assert table["page"].strip() == str(made.corpus / "inspect.html")
    page = made.corpus / "inspect.html"
    assert "Documents and their nearest" in page.read_text()
    page.unlink()
    found = json.loads(call(capsys, "inspect", made.corpus, "--json").out)
    assert not page.exists()
    assert found["domains"]["tools"]["documents"] == 120


def test_overrides_stand_anywhere(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    done = Ended(0, f"{made.run / 'model'}\n", "")
    assert call(capsys, "train", "--resume", made.run, "--parallel.experts", 2, "--watch.every", 3) == done
    assert_refused(call(capsys, "train", "--resume", made.run, "--steps", 9), "(different: steps)")
    assert call(capsys, "train", *TRAIN, "tiny-lory", "--out", made.run, "--corpus", made.corpus) == done


def test_train_leaves_a_finished_run_as_it_is_and_refuses_another(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = metrics(made.run)
    assert [m["step"] for m in steps] == list(range(1, 25))
    assert all({"step", "loss", "tokens"} <= m.keys() for m in steps)
    again = ("train", "tiny-lory", "--out", made.run, "--corpus", made.corpus)
    assert call(capsys, *again, *TRAIN) == Ended(0, f"{made.run / 'model'}\n", "")
    assert call(capsys, "train", "--resume", made.run) == Ended(0, f"{made.run / 'model'}\n", "")
    assert_refused(call(capsys, *again, *TRAIN, "--seed", "1"), "run.json", "(different: seed)")
    assert metrics(made.run) == steps


def test_an_interrupted_run_exits_with_130_and_resumes(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, *TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 5, signal_self)
        ended = call(capsys, *train)
    assert (ended.code, ended.out) == (130, "")
    assert "saved after step 5 of 24; the same command goes on" in ended.err
    assert_refused(call(capsys, "evaluate", tmp_path, "--documents", made.documents), "train --resume")
    assert call(capsys, "train", "--resume", tmp_path) == Ended(0, f"{tmp_path / 'model'}\n", "")
    assert metrics(tmp_path)[-1]["loss"] == metrics(made.run)[-1]["loss"]


def test_evaluate_prints_and_writes_the_contracts_measures(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ("--documents", made.documents, "--domain-field", "topic")
    ended = call(capsys, "evaluate", made.run, *documents, "--out", tmp_path / "new" / "results.json")
    results = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    measures = {"perplexity", "perplexity_all", "bits_per_byte", "tokens"}
    assert results.keys() == {*measures, "causality"}
    assert all(results[measure].keys() == WORDS.keys() for measure in measures)
    assert results["causality"] == "after_first_segment"
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == results
    assert json.loads(call(capsys, "evaluate", made.run / "model", *documents).out) == results


def test_generate_prints_the_prompt_and_what_follows(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = ("generate", made.run, "--prompt", "the owl", "--max-new-tokens", 8)
    for more in ((), ("--greedy",), ("--routing", "segment"), ("--seed", 3)):
        ended = call(capsys, *prompt, *more)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("the owl")
        assert call(capsys, *prompt, *more) == ended


def test_export_writes_a_llama_and_a_hugging_face_folder(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompt.txt").write_text("the owl is")
    for name, more in (
        ("text", ("--prompt", "the owl is")),
        ("file", ("--prompt-file", tmp_path / "prompt.txt")),
    ):
        ended = call(capsys, "export", made.run, "--to", "llama", *more, "--out", tmp_path / name)
        assert ended == Ended(0, f"{tmp_path / name}\n", "")
        LlamaForCausalLM.from_pretrained(tmp_path / name)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("text", "file")]
    assert weights[0] == weights[1]
    assert call(capsys, "export", made.run, "--to", "hf", "--out", tmp_path / "hf").code == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "hf").config.num_experts == 4
    llama = call(capsys, "generate", tmp_path / "text", "--prompt", "the owl")
    assert_refused(llama, "its type is llama, not loriini")


def test_analyze_writes_routes_and_a_report(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ("--documents", made.documents, "--domain-field", "topic")
    ended = call(capsys, "analyze", made.run, *documents, "--out", tmp_path / "new")
    assert ended == Ended(0, f"{tmp_path / 'new' / 'report.html'}\n", "")
    page = (tmp_path / "new" / "report.html").read_text()
    assert all(part in page for part in ("Who routes where", "birds", "tools"))
    with np.load(tmp_path / "new" / "routes.npz") as routes:
        assert routes["domains"].tolist() == ["birds", "tools"]
        np.testing.assert_allclose(routes["mean_gates"].sum(-1), 1, rtol=1e-5)
    assert call(capsys, "analyze", made.run, *documents).out == f"{made.run / 'report.html'}\n"
    assert (made.run / "routes.npz").exists()


@pytest.mark.parametrize(
    ("design", "training", "evaluation"),
    [
        ("smear", "this design is not causal: a token's experts", "this design is not causal: a token's"),
        ("ec-token", "this design is not causal in training: experts choose", None),
        ("mixtral", None, None),
        ("dense", None, None),
    ],
)
def test_what_is_not_causal_says_so_once(
    design: str,
    training: str | None,
    evaluation: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def assert_told(errors: str, words: str | None) -> None:
        assert errors.count("not causal") == (words is not None)
        assert words is None or f"warning: {words}" in errors

    capsys.readouterr()
    run = trained(tiny_run(design, steps=2, warmup=WarmupConfig(dense_share=0)), tmp_path)
    assert_told(capsys.readouterr().err, training)
    text = tmp_path / "held-out.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(100)))
    ended = call(capsys, "evaluate", run, "--documents", text)
    assert_told(ended.err, evaluation)
    assert json.loads(ended.out)["causality"] == ("none" if evaluation else "strict")
    if design != "dense":
        call(capsys, "analyze", run, "--documents", text)
        assert (run / "report.html").read_text().count("not causal") == (evaluation is not None)


def test_a_dense_model_has_no_routes_to_analyze(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train: Sequence[object] = ("train", "tiny-dense", "--out", tmp_path / "dense", "--corpus", made.corpus)
    assert call(capsys, *train, "--steps", 1, "--length", 64).code == 0
    ended = call(capsys, "analyze", tmp_path / "dense", "--documents", made.documents)
    assert_refused(ended, "dense: a dense model, so there is nothing to route")


def test_a_reader_that_goes_away_is_no_fault_worth_a_traceback() -> None:
    command = [sys.executable, "-m", "loriini", "recipes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_dry_run_estimates_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "train", "0.3b-lory-8e", "--dry-run", "--gpus", 8, "--memory", "80GiB")
    assert (ended.code, ended.err) == (0, "")
    assert "0.3b-lory-8e on 8 GPUs\nparameters 1,827,390,464" in ended.out
    assert "in 80.00 GiB" in ended.out
    asked = ("train", "tiny-lory", "--dry-run", "--json", "--vocab-size", 100, "--model.num_experts", 2)
    found = json.loads(call(capsys, *asked).out)
    assert (found["name"], found["gpus"]) == ("tiny-lory", 1)
    assert not list(tmp_path.iterdir())


def test_a_run_measures_itself_and_stops_in_time(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, "--heldout", made.documents)
    asked: Sequence[object] = (
        "--evaluate.every",
        10,
        "--evaluate.instances",
        999,
        "--evaluate.sample_every",
        20,
        "--evaluate.prompt",
        "the owl",
    )
    stopped = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 1e-9)
    assert (stopped.code, stopped.out) == (0, "")
    assert "saved after step 1 of 24; the same command goes on" in stopped.err
    ended = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 60)
    assert ended == Ended(0, f"{tmp_path / 'model'}\n", "")
    evaluated = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in evaluated] == [10, 20, 24]
    assert evaluated[-1]["mean_perplexity"] < evaluated[0]["mean_perplexity"]
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [(entry["step"], entry["prompt"]) for entry in samples] == [(20, "the owl"), (24, "the owl")]
    final = call(capsys, "evaluate", tmp_path, "--documents", made.documents)
    assert json.loads(final.out)["perplexity"] == pytest.approx(evaluated[-1]["perplexity"], rel=1e-4)


@pytest.mark.parametrize(("form", "source"), [("megatron", "instances"), ("dataset", ".")])
def test_a_corpus_goes_to_other_formats_and_back(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, source: str
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    ended = call(capsys, "convert", made.corpus, "--to", form, "--out", there)
    assert ended == Ended(0, f"{there}\n", "")
    to_corpus = ("convert", there / source, "--to", "corpus", "--length", 64, "--out", back)
    assert_refused(call(capsys, *to_corpus), "--to corpus needs --tokenizer PATH")
    assert call(capsys, *to_corpus, "--tokenizer", there / "tokenizer").code == 0
    names = [folder / "instances" / "instances.bin" for folder in (made.corpus, back)]
    assert names[0].read_bytes() == names[1].read_bytes()
    train = ("train", "tiny-dense", "--out", tmp_path / "run", "--corpus", made.corpus, back)
    ended = call(capsys, *train, "--corpus-weights", "2,0.5", "--steps", 1, "--length", 64)
    assert (ended.code, ended.err) == (0, "")
