"""Does `loriini prepare` stay within bounded memory? Generated text through the whole pipeline, watched.

python benchmarks/bounded_memory.py --gigabytes 5 --out WORK --results benchmarks/results/bounded_memory.json

The text is varied enough for tokenizer, vectors and neighbours to have work: topics with vocabularies of
their own, lengths over three orders of magnitude, some exact and some near-duplicates. WORK needs about
three times the size of the text. An interrupted command resumes, but measures only the rest.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from measuring import write_results

FILES = 16
TOPICS, WORDS, COMMON = 2_000, 400, 5_000
MEAN_WORDS, SPREAD = 250, 1.0
REPEATED, VARIED = 0.02, 0.03
POLL_SECONDS = 0.2
KINDS = {"Rss": "resident", "Pss": "proportional", "Anonymous": "anonymous"}
LARGEST = "resident_in_one"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    text = arguments.out / "text"
    write_text(text, int(arguments.gigabytes * 1e9))
    size = sum(path.stat().st_size for path in text.iterdir())
    command = [sys.executable, "-m", "loriini", "prepare", "corpus", "--documents", str(text)]
    command += ["--out", str(arguments.out), "--workers", str(arguments.workers)]
    seconds, peaks = watch(command, arguments.out / "corpus")
    stages = json.loads((arguments.out / "corpus/manifest.json").read_text())["stages"]
    result = {
        "experiment": "bounded_memory",
        "workers": arguments.workers,
        "megabytes": size / 1e6,
        "seconds": seconds,
        "megabytes_per_second": size / 1e6 / seconds,
        "peak_megabytes": {
            name: max(peak[name] for peak in peaks.values()) / 1e6 for name in (*KINDS.values(), LARGEST)
        },
        "peak_megabytes_by_stage": {
            stage: {name: value / 1e6 for name, value in peak.items()} for stage, peak in peaks.items()
        },
        "counts": {name: stage["counts"] for name, stage in stages.items()},
    }
    del result["counts"]["documents"]["shards"]
    write_results(arguments.results, **result)
    print(json.dumps({key: value for key, value in result.items() if key != "counts"}, indent=1))


def write_text(folder: Path, size: int) -> None:
    """FILES files of JSON lines, about `size` bytes together, unless they exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path = folder / f"text-{number:02d}.jsonl"
        if not path.exists():
            temporary = path.with_suffix(".tmp")
            write_file(temporary, number, size // FILES)
            temporary.rename(path)


def write_file(path: Path, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    common = np.array(make_words(np.random.default_rng(0), COMMON))
    written, count, before = 0, 0, ""
    with open(path, "w") as file:
        while written < size:
            count += 1
            chance = rng.random()
            if not before or chance > REPEATED + VARIED:
                before = make_text(rng, common)
            elif chance > REPEATED:
                before = f"{before} {common[rng.integers(COMMON)]}"
            domain = f"domain{len(before) % 7}"
            written += file.write(
                json.dumps({"id": f"{seed}-{count}", "text": before, "domain": domain}) + "\n"
            )


def make_text(rng: np.random.Generator, common: np.ndarray) -> str:
    """Lines of common words, the frequent ones more often, and of one topic's own."""
    own = topic_words(int(rng.integers(TOPICS)))
    count = int(rng.lognormal(np.log(MEAN_WORDS), SPREAD)) + 3
    frequent = (COMMON * rng.random(count) ** 3).astype(int)
    words = np.where(rng.random(count) < 0.4, own[rng.integers(0, WORDS, count)], common[frequent])
    lines = np.split(words, range(12, count, 12))
    return "\n".join(" ".join(line.tolist()) for line in lines)


@cache
def topic_words(topic: int) -> np.ndarray:
    return np.array(make_words(np.random.default_rng(topic + 1), WORDS))


def make_words(rng: np.random.Generator, count: int) -> list[str]:
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    return ["".join(letters[(26 * rng.random(n) ** 2).astype(int)]) for n in rng.integers(2, 11, count)]


def watch(command: list[str], corpus: Path) -> tuple[float, dict[str, Counter[str]]]:
    """Run a command; its seconds, and by stage the peaks of what its processes hold together, in bytes.

    `resident` counts pages shared by processes once for each and mapped files as far as they are cached;
    `proportional` divides shared pages; `anonymous` leaves files out, whose pages can be taken back;
    `resident_in_one` is the resident memory of the largest process.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command)
    peaks: defaultdict[str, Counter[str]] = defaultdict(Counter)
    while process.poll() is None:
        stage = next((path.name.split(".")[1] for path in corpus.glob(".*.unfinished")), "between")
        held = [memory(pid) for pid in family(process.pid)]
        together = sum(held, Counter()) | {LARGEST: max(of_one["resident"] for of_one in held)}
        for name, value in together.items():
            peaks[stage][name] = max(peaks[stage][name], value)
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - started, dict(peaks)


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            found += [
                int(c) for t in tasks for c in Path(f"/proc/{parent}/task/{t}/children").read_text().split()
            ]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def memory(pid: int) -> Counter[str]:
    """What a process holds, in bytes; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return Counter()
    values = (line.split() for line in lines)
    return Counter({KINDS[v[0][:-1]]: int(v[1]) * 1024 for v in values if v[0][:-1] in KINDS})


if __name__ == "__main__":
    main()
