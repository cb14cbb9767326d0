"""What is written atomically is there whole or not at all, and synced before it has its name."""

import ast
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import loriini
from loriini.common.atomic import atomic, discard, is_unused, write_json, write_text

OLD, NEW = "old", "new"

KILLED = """
import os, sys
from pathlib import Path
from loriini.common import atomic
os.replace = lambda *paths: os.kill(os.getpid(), 9)
atomic.write_text(Path(sys.argv[1]), "new")
"""


def write_file(path: Path) -> None:
    path.write_text(NEW)


def write_folder(path: Path) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "a").write_text(NEW)
    (path / "inner" / "b").write_text(NEW)


def content(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else filter(Path.is_file, path.rglob("*"))
    return {file.relative_to(path.parent).as_posix(): file.read_text() for file in files}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every fsync and rename, in order, with the path that it is of."""
    seen: list[tuple[str, str]] = []

    def fsync(descriptor: int) -> None:
        seen.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        seen.append(("replace", str(source)))
        real_replace(source, target)

    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="paths of descriptors are Linux's")
@pytest.mark.parametrize(
    ("write", "parts"),
    [(write_file, [""]), (write_folder, ["/inner/b", "/inner", "/a", ""])],
    ids=["file", "folder"],
)
def test_a_rename_comes_after_the_syncs_of_all_it_holds_and_before_the_parents(
    write: Callable[[Path], None], parts: list[str], tmp_path: Path, events: list[tuple[str, str]]
) -> None:
    with atomic(tmp_path / "target") as temporary:
        write(temporary)
        assert not (tmp_path / "target").exists()
        assert not events
    assert sorted(events[:-2]) == sorted(("fsync", f"{temporary}{part}") for part in parts)
    assert events[-2:] == [("replace", str(temporary)), ("fsync", str(tmp_path))]
    assert set(content(tmp_path / "target").values()) == {NEW}
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("of_folders", [True, False])
def test_a_file_system_that_cannot_sync_folders_is_written_to(
    of_folders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == of_folders:
            raise OSError(errno.EINVAL, "no")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with nullcontext() if of_folders else pytest.raises(OSError, match="no"):
        write_json(tmp_path / "a.json", {})
    assert (tmp_path / "a.json").exists() == of_folders


@pytest.mark.parametrize("write", [write_file, write_folder])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_content_alone(
    write: Callable[[Path], None], error: type[BaseException], tmp_path: Path
) -> None:
    def fail() -> None:
        with atomic(target) as temporary:
            write(temporary)
            raise error

    target = tmp_path / "target"
    target.write_text(OLD)
    with pytest.raises(error):
        fail()
    assert content(tmp_path) == {f"{tmp_path.name}/target": OLD}


def test_a_kill_before_the_rename_leaves_the_old_content_and_the_next_attempt_cleans_up(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    target.write_text(OLD)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(target)])
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == OLD
    target.unlink()
    assert os.listdir(tmp_path) == [".target.unfinished"]
    assert is_unused(tmp_path)
    write_text(target, NEW)
    assert content(tmp_path) == {f"{tmp_path.name}/target": NEW}
    assert not is_unused(tmp_path)


def test_a_folder_that_holds_something_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with atomic(target) as temporary:
        write_folder(temporary)
    with pytest.raises(OSError, match="not empty"), atomic(target) as temporary:
        write_folder(temporary)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (target / "a").exists()


def test_files_are_renamed_in_one_place_only() -> None:
    source = Path(loriini.__file__).parent
    renaming = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).endswith((".rename", "os.replace", "os.renames"))
    }
    assert renaming == {"common/atomic.py"}


def test_what_a_kill_leaves_while_it_is_removed_is_found_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ".part.1"
    (left / "folder").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed
        discard(left)
    (again,) = tmp_path.glob(".part.*")
    discard(again)
    assert not list(tmp_path.iterdir())
