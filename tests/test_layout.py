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
BUDGETS = {
    "common": 1216,
    "routing": 1461,
    "model": 4009,
    "parallel": 861,
    "data/read": 1699,
    "data/prepare": 3349,
    "data/jobs": 777,
    "data/convert": 448,
    "data/batches": 319,
    "train": 3681,
    "estimate": 690,
    "evaluate": 1836,
    "compare": 2119,
    "analyze": 1300,
    "reporting": 589,
    "quickstart": 575,
    "export": 1001,
    "recipes": 331,
    "bench": 478,
    "cli": 1338,
    "papers": 3335,
}
"""Lines of Python that a folder may have; one that shrinks has its budget lowered."""

DATA = {"data/read", "data/prepare", "data/jobs", "data/convert", "data/batches"}
IMPORTS: dict[str, set[str]] = {
    "common": set(),
    "routing": {"common"},
    "model": {"routing", "common"},
    "parallel": {"model", "routing", "common"},
    "data/jobs": {"common"},
    "data/batches": {"common"},
    "data/read": {"data/jobs", "common"},
    "data/prepare": {"data/read", "data/jobs", "common"},
    "data/convert": {"data/prepare", "data/read", "data/jobs", "common"},
    "train": {"parallel", "model", "routing", *DATA, "common"},
    "estimate": {"train", "parallel", "model", "routing", "common"},
    "export": {"train", "model", "routing", "common"},
    "recipes": {"train", "model", "routing", "common"},
    "evaluate": {"parallel", "model", "routing", *DATA, "common"},
    "launch": {"recipes", "evaluate", "estimate", "train", "parallel", "model", "routing", *DATA, "common"},
    "reporting": {"evaluate", "routing", "common"},
    "analyze": {"reporting", "evaluate", "train", "model", "routing", *DATA, "common"},
    "bench": {"estimate", "train", "parallel", "model", "routing", *DATA, "common"},
    "compare": {"launch", "recipes", "reporting", "evaluate", "train", "model", "routing", *DATA, "common"},
    "quickstart": {
        "compare",
        "launch",
        "recipes",
        "analyze",
        "reporting",
        "evaluate",
        "train",
        "model",
        "routing",
        *DATA,
        "common",
    },
}
"""What each folder may import. Those not named, `papers` and `cli`, may import every one."""
LAUNCH = {"train/launch.py", "train/preflight.py"}
"""Modules of `train` between the command line and the loop: they may import what estimates and evaluates."""

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def of_file(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def folder_of(path: Path) -> str:
    """The folder of the package that a file, or a module's path, is in; in `data` the one below."""
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "data" and len(parts) > 2 else parts[0].removesuffix(".py")


def node(path: Path) -> str:
    """The folder as far as imports go."""
    return "launch" if path.with_suffix(".py").as_posix() in LAUNCH else folder_of(path)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it, with the names it takes from it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def nodes_imported(path: Path) -> set[str]:
    modules = [Path(*name.split(".")[1:]) for name in imported(path) if name.startswith("loriini.")]
    found = {node(module / "_") for module in modules if (SOURCE / module).is_dir()}
    found |= {node(module) for module in modules if (SOURCE / module).with_suffix(".py").exists()}
    return found - {node(path.relative_to(SOURCE))}


def test_doors_open_one_way() -> None:
    for path in FILES:
        if (here := node(path.relative_to(SOURCE))) in IMPORTS:
            assert nodes_imported(path) - {"data"} <= IMPORTS[here], path


def test_folders_keep_to_their_budgets() -> None:
    lines = Counter[str]()
    for path in FILES:
        lines[folder_of(path.relative_to(SOURCE))] += len(path.read_text().splitlines())
    assert not {name: n for name, n in lines.items() if n > BUDGETS.get(name, 100)}


@pytest.mark.parametrize("path", sorted(SOURCE.glob("routing/*.py")), ids=of_file)
def test_routing_imports_torch_and_numpy_only(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= {"torch", "numpy", "loriini"} | set(sys.stdlib_module_names)


def test_mutable_globals_are_tables_in_upper_case() -> None:
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            value = node.value
            made = isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("list", "dict", "set")
            if isinstance(value, MUTABLE) or made:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    name = ast.unparse(target)
                    assert name.isupper() or name == "__all__", f"{of_file(path)}: {name} is mutable"


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


def test_what_runs_data_is_found() -> None:
    calls = "np.load(p, allow_pickle=True); np.load(p, allow_pickle = yes); torch.load(p); yaml.load(file)"
    calls += "; AutoModel.from_pretrained(p, trust_remote_code=True); pd.read_pickle(p); x = eval(text)"
    assert len(running(calls)) == 7
