"""The package's layout: which packages import which, sizes of packages and files, and other rules."""

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "loriini"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST = 350
LARGEST_SHARE = 0.25
"""Largest share of all lines in one package."""

SHARED = {
    "atomic",
    "errors",
    "extension",
    "fields",
    "grouping",
    "hardware",
    "json_file",
    "progress",
    "signals",
    "snapshot",
}
OPENS = {
    "atomic": set(),
    "errors": set(),
    "extension": {"errors"},
    "fields": {"errors"},
    "grouping": set(),
    "json_file": {"errors"},
    "hardware": set(),
    "published": set(),
    "progress": {"errors"},
    "signals": set(),
    "snapshot": {"errors"},
    "routing": {"fields"},
    "jobs": SHARED,
    "sources": {"jobs", *SHARED},
    "corpus": {"sources", "jobs", *SHARED},
    "convert": {"corpus", "sources", "jobs", *SHARED},
    "batches": SHARED,
    "model": {"routing", *SHARED},
    "parallel": {"model", "routing", *SHARED},
    "train": {"parallel", "model", "routing", "batches", "corpus", "sources", "jobs", *SHARED},
    "estimate": {"train", "parallel", "model", "routing", *SHARED},
    "export": {"train", "model", "routing", *SHARED},
    "bench": {"estimate", "published", "train", "parallel", "batches", "model", "routing", *SHARED},
}
"""What each package may import; those not named (evaluate, analyze, quickstart, …) are above `train`."""
ENTRANCES = {"cli", "__main__"}
"""They may import every package; no package imports them."""
JOBS = {"compare", "quickstart", "reproduce"}
"""Commands as packages: only ENTRANCES import them, and `reproduce` those in STANDS_ON."""
STANDS_ON = {"reproduce": {"compare"}}

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def of_file(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it, with the names it takes from it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> set[str]:
    rooms = {room(file) for file in FILES} - {"__init__"}
    parts = [name.split(".") for name in imported(path)]
    return {p[1] for p in parts if p[0] == "loriini" and len(p) > 1 and p[1] in rooms} - {room(path)}


@pytest.mark.parametrize("path", FILES, ids=of_file)
def test_doors_open_one_way(path: Path) -> None:
    if room(path) in OPENS:
        assert rooms_imported(path) <= OPENS[room(path)]
    elif room(path) not in ENTRANCES:
        assert not rooms_imported(path) & (ENTRANCES | JOBS) - STANDS_ON.get(room(path), set())


def test_no_room_holds_more_than_a_quarter_of_the_code() -> None:
    lines = Counter[str]()
    for path in FILES:
        lines[room(path)] += len(path.read_text().splitlines())
    assert max(lines.values()) <= LARGEST_SHARE * lines.total(), lines.most_common(1)


@pytest.mark.parametrize("path", sorted(SOURCE.glob("routing/*.py")), ids=of_file)
def test_routing_imports_torch_and_numpy_only(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= {"torch", "numpy", "loriini"} | set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", [*FILES, *TESTS], ids=of_file)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", FILES, ids=of_file)
def test_no_module_is_named_like_the_standard_librarys(path: Path) -> None:
    assert path.stem not in set(sys.stdlib_module_names) - {"__main__"}
    assert path.parent.name not in sys.stdlib_module_names


@pytest.mark.parametrize("path", FILES, ids=of_file)
def test_mutable_globals_are_tables_in_upper_case(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        made = isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("list", "dict", "set")
        if isinstance(value, MUTABLE) or made:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = ast.unparse(target)
                assert name.isupper() or name == "__all__", f"{name} is mutable"


def test_no_global_statements() -> None:
    for path in FILES:
        assert not any(isinstance(node, ast.Global) for node in ast.walk(ast.parse(path.read_text()))), path


UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
RUNNING = {"torch.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "pd.read_pickle", "eval", "exec"}
SAFE_ARGUMENTS = {"allow_pickle": False, "trust_remote_code": False, "shell": False, "weights_only": True}


def running(code: str) -> list[str]:
    """The calls in which data could become code."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for call in calls
        if ast.unparse(call.func) in RUNNING
        or any(
            keyword.arg in SAFE_ARGUMENTS
            and getattr(keyword.value, "value", None) is not SAFE_ARGUMENTS[keyword.arg]
            for keyword in call.keywords
        )
    ]


def test_data_is_never_code() -> None:
    for path in FILES:
        assert not UNPICKLING & {name.split(".")[0] for name in imported(path)}, path
        assert not running(path.read_text()), path
    assert inspect.signature(np.load).parameters["allow_pickle"].default is False


@pytest.mark.parametrize(
    "line",
    [
        "np.load(p, allow_pickle=True)",
        "np.load(p, allow_pickle = yes)",
        "AutoModel.from_pretrained(p, trust_remote_code=True)",
        "torch.load(p)",
        "yaml.load(file)",
        "yaml.unsafe_load(file)",
        "pd.read_pickle(p)",
        "x = eval(text)",
    ],
)
def test_what_runs_data_is_found(line: str) -> None:
    assert running(line)
