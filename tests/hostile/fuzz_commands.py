"""Each command on mutated inputs: it ends with code 0 or 2, one error line at most, within time and memory.

PYTHONPATH=tests python -m hostile.fuzz_commands [COUNT [COMMAND…]] prints the table in `fuzz.txt`;
COMMAND:SEED shows one case, COMMAND:FIRST-LAST runs these seeds. Commands run on one thread, in forked
children of a process that has run each of them once, so that a case costs a tenth of a second.
"""

import contextlib
import gc
import io
import json
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hostile.mutants import mutate
from hostile.runner import Ended, Row, problems
from hostile.template import PREPARE, TRAIN

SECONDS = 120
"""For one case, on a loaded machine; half of it in CPU time."""
GIGABYTES = 2.0
"""Of private memory, above that of the process that forks."""
NOT_FINITE = re.compile(r"""(?<!["'\w])(nan|inf|infinity)(?!["'\w])""", re.IGNORECASE)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
"""Of JSON: names from outside may hold any word."""
DOCUMENTS = "--documents documents.jsonl --domain-field topic"
MODEL = ("run/model/*", "run/run.json")
START = "--corpus corpus --out there --steps 1 --length 64 --batch_size 2 --routing.segment_length 16"
TOML = """length = 64
batch_size = 2
steps = 10
[routing]
design = "lory"
segment_length = 16
[model]
hidden_size = 32
num_hidden_layers = 2
[checkpoint]
every = 5
"""
PYTHON = """from dataclasses import replace
from loriini.recipes import RECIPES
base = RECIPES["tiny-lory"]
mine = replace(base, length=64, routing=replace(base.routing, segment_length=16), batch_size=2, steps=10)
"""


@dataclass(frozen=True)
class Fuzzed:
    """A command, the files of the template that are mutated (one or two of them), and what it needs."""

    command: str
    files: tuple[str, ...]
    needs: tuple[str, ...]
    unfinished: bool = False
    """Whether the run's final model is removed, so that it resumes."""


COMMANDS = {
    "prepare": Fuzzed(f"{PREPARE} --on-error skip", ("documents.jsonl",), ("documents.jsonl",)),
    "prepare again": Fuzzed(PREPARE, ("corpus/**/*",), ("documents.jsonl", "corpus")),
    "embeddings": Fuzzed(
        f"prepare c {DOCUMENTS} --out . --length 64 --tokenizer corpus/tokenizer --encoder encoder",
        ("encoder/*", "corpus/tokenizer/*"),
        ("documents.jsonl", "encoder", "corpus"),
    ),
    "inspect": Fuzzed("inspect corpus --json", ("corpus/**/*",), ("corpus",)),
    "verify": Fuzzed("inspect corpus --verify --json", ("corpus/**/*",), ("corpus",)),
    "convert": Fuzzed("convert corpus --to megatron --out there", ("corpus/**/*",), ("corpus",)),
    "resume": Fuzzed("train --resume run", ("run/**/*",), ("run", "corpus"), unfinished=True),
    "train": Fuzzed(f"train tiny-lory {START}", ("corpus/**/*",), ("corpus",)),
    "start": Fuzzed(f"train tiny-lory --init run {START}", MODEL, ("run", "corpus")),
    "file.json": Fuzzed("train settings.json --dry-run", ("settings.json",), ("settings.json",)),
    "file.toml": Fuzzed("train settings.toml --dry-run", ("settings.toml",), ("settings.toml",)),
    "file.py": Fuzzed("train settings.py:mine --dry-run", ("settings.py",), ("settings.py",)),
    "evaluate": Fuzzed(f"evaluate run {DOCUMENTS}", (*MODEL, "documents.jsonl"), ("run", "documents.jsonl")),
    "analyze": Fuzzed(
        f"analyze run {DOCUMENTS} --out there",
        (*MODEL, "run/metrics.jsonl", "documents.jsonl"),
        ("run", "documents.jsonl"),
    ),
    "lens": Fuzzed("lens run --text text.txt --out lens.html", (*MODEL, "text.txt"), ("run", "text.txt")),
    "generate": Fuzzed("generate run --prompt birds --max-new-tokens 4 --greedy", MODEL, ("run",)),
    "audit": Fuzzed("designs --audit run --json", MODEL, ("run",)),
    "export": Fuzzed(
        "export run --to hf --step 2 --out there", ("run/**/*", "corpus/**/*"), ("run", "corpus")
    ),
    "export llama": Fuzzed("export run --to llama --prompt birds --out there", MODEL, ("run",)),
    "compare": Fuzzed(
        "compare run twin --out there",
        ("run/run.json", "run/metrics.jsonl", "twin/metrics.jsonl", "run/model/config.json"),
        ("run", "twin", "corpus"),
    ),
}


def make_fuzz_template(folder: Path) -> None:
    """Documents, a corpus, two runs, an encoder, and files of settings; the same each time, but for paths."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    from cli.conftest import write_documents

    write_documents(folder / "documents.jsonl", 60)
    (folder / "text.txt").write_text("the wren is number 4 and the saw is number 5 " * 8)
    for command in (PREPARE, TRAIN):
        assert _in_here(command, folder) == 0
    _without_speed(folder / "run" / "metrics.jsonl")
    shutil.copytree(folder / "run", folder / "twin")
    settings = json.loads((folder / "twin" / "run.json").read_text())
    (folder / "twin" / "run.json").write_text(json.dumps({**settings, "seed": 1}))
    wanted = ("routing", "length", "batch_size", "steps", "model", "warmup", "betas")
    (folder / "settings.json").write_text(json.dumps({k: settings[k] for k in wanted if k in settings}))
    (folder / "settings.toml").write_text(TOML)
    (folder / "settings.py").write_text(PYTHON)
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    (folder / "encoder").mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder / "encoder")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder / "encoder")


def _without_speed(metrics: Path) -> None:
    """Write numbers of equal length in the place of what was measured."""
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    measured = {"tokens_per_second": 1000.5, "peak_memory_bytes": 1 << 29}
    metrics.write_text("".join(json.dumps({**step, **measured}) + "\n" for step in steps))


def place_case(name: str, seed: int | None, template: Path, folder: Path) -> list[str]:
    """Copy what the command needs and, with a seed, mutate one or two of its files; returns their names."""
    fuzzed, rng = COMMANDS[name], random.Random(f"{name}:{seed}")
    folder.mkdir()
    for need in fuzzed.needs:
        source = template / need
        shutil.copytree(source, folder / need) if source.is_dir() else shutil.copy(source, folder)
    if fuzzed.unfinished:
        shutil.rmtree(folder / "run" / "model")
    if seed is None:
        return []
    found = sorted({path for glob in fuzzed.files for path in folder.glob(glob) if path.is_file()})
    chosen = [rng.choice(found) for _ in range(rng.choice((1, 1, 1, 2)))]
    for path in chosen:
        mutate(path, rng)
    return [str(path.relative_to(folder)) for path in chosen]


def run_case(command: str, folder: Path) -> Ended:
    """Run a command in `folder`, in a forked child with limits."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_child(command, folder)
    descriptor = os.pidfd_open(child)
    ready = select.select([descriptor], [], [], SECONDS)[0]
    os.close(descriptor)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    status, usage = os.wait4(child, 0)[1:]
    code = os.waitstatus_to_exitcode(status) if ready else None
    out, err = (folder.with_suffix(end).read_text(errors="backslashreplace") for end in (".out", ".err"))
    return Ended(code, out, err, usage.ru_maxrss / 2**20, time.monotonic() - start, ran_code=False)


def _be_the_child(command: str, folder: Path) -> None:
    os.setpgid(0, 0)
    for stream, end in ((sys.stdout, ".out"), (sys.stderr, ".err")):
        file = os.open(folder.with_suffix(end), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream.fileno())
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limit = held + int(GIGABYTES * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS // 2, SECONDS // 2))
    code = 1
    try:
        code = _in_here(command, folder)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _in_here(command: str, folder: Path) -> int:
    """The exit code of a command that runs in this process."""
    from loriini.cli import main
    from loriini.data.prepare.similarity import lsa

    lsa.FEATURES, lsa.MOST_DIMENSIONS = 1 << 10, 16
    os.chdir(folder)
    try:
        main(shlex.split(command))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def outcome(ended: Ended, made: Sequence[Path]) -> str:
    """`done`, `refused`, or what is wrong with the end or with the JSON files made."""
    if ended.code is None:
        return "hung"
    refused = ended.code == 2
    row = Row("", "", "loriini: " if refused else "", code=2 if refused else 0, seconds=SECONDS)
    found = problems(row, ended)
    if not found and ended.code == 0:
        written = "\n".join([ended.out, *(path.read_text(errors="replace") for path in made)])
        if word := NOT_FINITE.search(STRING.sub('""', written)):
            found = [f"{word[0]} in the output"]
    return found[0] if found else "refused" if refused else "done"


def fuzz_command(name: str, seeds: Sequence[int], template: Path, here: Path) -> dict[str, Any]:
    """Run the cases of a command; counts of how they ended, the slowest, and those that must not be."""
    ended, bad, slowest, peak = Counter[str](), {}, 0.0, 0.0
    folder = here / "case"
    for seed in seeds:
        harmed = place_case(name, seed, template, folder)
        before = set(folder.rglob("*"))
        result = run_case(COMMANDS[name].command, folder)
        what = outcome(result, [path for path in folder.rglob("*.json*") if path not in before])
        shutil.rmtree(folder)
        ended[what] += 1
        slowest, peak = max(slowest, result.seconds), max(peak, result.peak_gigabytes)
        if what not in ("done", "refused"):
            bad[f"{name}:{seed}"] = f"{what} ({', '.join(harmed)}): {result.err.strip()[-400:]}"
        if len(seeds) == 1:
            print(harmed, result, sep="\n", file=sys.stderr)
    print(f"{name}: at most {slowest:.2f} s, {peak:.2f} GiB", file=sys.stderr, flush=True)
    counts = {"command": name, "inputs": len(seeds), "ended": dict(sorted(ended.items()))}
    return {**counts, **({"bad": bad} if bad else {})}


def warm_up(names: Sequence[str], template: Path, here: Path) -> None:
    """Run each command once in this process, so that its children need not import or compile anything."""
    gc.unfreeze()
    for name in names:
        folder = here / "case"
        place_case(name, None, template, folder)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert _in_here(COMMANDS[name].command, folder) == 0, (name, out.getvalue())
        os.chdir("/")
        shutil.rmtree(folder)
    gc.collect()
    gc.freeze()  # children then copy no pages for the collector's sake


def main() -> None:
    """Print one line of JSON a command."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # threads do not survive a fork
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    asked = [name.partition(":") for name in sys.argv[2:] or COMMANDS]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # syncs cost nothing there
    with TemporaryDirectory(dir=memory) as folder:
        here, template = Path(folder), Path(folder) / "template"
        (here / "case").mkdir()
        make_fuzz_template(here / "case")  # where the cases will be: a run names the path of its corpus
        (here / "case").rename(template)
        for name, _, seed in asked:
            warm_up([name], template, here)
            first, _, last = seed.partition("-")
            seeds = range(int(first), int(last or first) + 1) if seed else range(count)
            print(json.dumps(fuzz_command(name, seeds, template, here)), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
