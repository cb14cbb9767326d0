"""A finished stage is whole, is not made again, and is never overwritten by another."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loriini.common.errors import InputError, is_disk_full
from loriini.common.folders import MANIFEST
from loriini.data.jobs.artifact import build_artifact, digest, load_artifact, new_array

SETTINGS = {"length": 8, "sizes": (1, 2)}
INPUTS = {"documents": "abc"}


def write_numbers(folder: Path) -> dict[str, Any]:
    (folder / "numbers.bin").write_bytes(bytes(range(8)))
    return {"numbers": 8}


def write_nothing(folder: Path) -> dict[str, Any]:
    pytest.fail("the artifact was built again")


def test_a_finished_artifact_is_not_built_again(tmp_path: Path) -> None:
    first = build_artifact(tmp_path / "stage", SETTINGS, INPUTS, write_numbers)
    assert build_artifact(tmp_path / "stage", SETTINGS, INPUTS, write_nothing) == first


@pytest.mark.parametrize(
    ("settings", "inputs", "named"),
    [
        ({**SETTINGS, "length": 9}, INPUTS, r"other settings \(length\)"),
        ({"length": 8, "more": 1}, INPUTS, r"other settings \(more, sizes\)"),
        ({"length": 9, "more": 1}, INPUTS, r"other settings \(length\)"),
        ({**SETTINGS, "sizes": []}, INPUTS, r"other settings \(sizes\)"),
        (SETTINGS, {"documents": "abd"}, r"other inputs \(documents\)"),
        (SETTINGS, INPUTS | dict.fromkeys("abcdefg", ""), r"other inputs \(a, b, c, d, e, and 2 more\)"),
    ],
)
def test_an_artifact_with_other_settings_or_inputs_is_not_overwritten(
    settings: dict[str, Any], inputs: dict[str, str], named: str, tmp_path: Path
) -> None:
    build_artifact(tmp_path / "stage", SETTINGS, INPUTS, write_numbers)
    with pytest.raises(InputError, match=f"stage: was made with {named}; choose another output folder"):
        build_artifact(tmp_path / "stage", settings, inputs, write_nothing)
    assert load_artifact(tmp_path / "stage").counts == {"numbers": 8}


def test_an_interrupted_build_leaves_no_artifact(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> dict[str, Any]:
        (folder / "half.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_artifact(tmp_path / "stage", SETTINGS, INPUTS, interrupted)
    assert not (tmp_path / "stage").exists()
    artifact = build_artifact(tmp_path / "stage", SETTINGS, INPUTS, write_numbers)
    assert list(artifact.files) == ["numbers.bin"]
    assert [path.name for path in tmp_path.iterdir()] == ["stage"]


@pytest.mark.parametrize("there", ["mine.txt", "inner/mine.txt", "", "link"])
def test_what_is_no_artifact_is_not_replaced(there: str, tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    mine = folder / there if there != "link" else tmp_path / "elsewhere" / "mine.txt"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    if there == "link":
        folder.symlink_to(mine.parent)
    with pytest.raises(InputError, match=r"stage: holds files that are not a stage .*choose another --out"):
        build_artifact(folder, SETTINGS, INPUTS, write_nothing)
    assert mine.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1 + (there == "link")


def test_the_digest_depends_on_the_contents_only(tmp_path: Path) -> None:
    one = build_artifact(tmp_path / "one", SETTINGS, INPUTS, write_numbers)
    two = build_artifact(tmp_path / "two", {"length": 9}, {}, write_numbers)
    assert one.digest == two.digest
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


@pytest.mark.parametrize("text", [None, "{", "{}", "[]", '"text"'])
def test_an_absent_or_unreadable_manifest_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json"):
        load_artifact(tmp_path)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left"), True),
        (OSError(errno.EDQUOT, "Quota exceeded"), True),
        (OSError(errno.EFBIG, "File too large"), True),
        (OSError("76800 requested and 22464 written"), True),
        (Exception(f"No space left on device (os error {errno.ENOSPC})"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
    ],
)
def test_errors_of_a_full_disk(error: Exception, full: bool) -> None:
    assert is_disk_full(error) == full


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room")
def test_all_space_is_reserved(tmp_path: Path) -> None:
    new_array(tmp_path / "a.npy", np.float32, (1000, 1000))
    stat = (tmp_path / "a.npy").stat()
    assert stat.st_size > 4_000_000
    assert stat.st_blocks * 512 >= stat.st_size
