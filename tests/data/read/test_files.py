import os
import socket
from pathlib import Path

import fsspec
import pytest

from loriini.common.errors import InputError
from loriini.data.read.files import files_at, matching_paths, open_binary, without_query


def test_files_of_a_folder_are_sorted_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/2", "b/10", "a", "c.d/.hidden", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert files_at(tmp_path) == [f"{tmp_path}/{name}" for name in ("a", "b/10", "b/2")]
    assert files_at(tmp_path / "a") is None


def test_links_are_followed_and_unreadable_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "real")
    (root / "nothing").symlink_to(tmp_path / "absent")
    (root / "round").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    os.mkfifo(root / "pipe")
    assert files_at(root) == [f"{root}/{name}" for name in ("link/x", "nothing", "self")]


def test_a_folder_without_permission_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked").mkdir()
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert files_at(tmp_path) == [f"{tmp_path}/locked"]


def test_urls(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe({"/bucket/b.txt": b"b", "/bucket/a/c.txt": b"c", "/bucket/.git/x": b"", "/other.txt": b""})
    assert files_at("memory://bucket") == ["memory:///bucket/a/c.txt", "memory:///bucket/b.txt"]
    assert matching_paths("memory://bucket/*.txt") == ["memory:///bucket/b.txt"]
    assert matching_paths("memory://bucket") == ["memory://bucket"]
    assert files_at("memory://bucket/b.txt") is None
    with open_binary("memory://bucket/b.txt") as file:
        assert file.read() == b"b"
    for look, absent in ((files_at, "memory://absent"), (matching_paths, "memory://bucket/*.csv")):
        with pytest.raises(InputError, match=r"no .*file"):
            look(absent)
    with pytest.raises(InputError, match=r"parrot.*install a package for this protocol"):
        files_at("parrot://bucket")


@pytest.mark.parametrize(
    ("path", "expected"),
    {
        "https://x.org/a.jsonl?download=true#top": "https://x.org/a.jsonl",
        "simplecache::http://x.org/a.csv.gz#?": "simplecache::http://x.org/a.csv.gz",
        "s3://bucket/what?.jsonl": "s3://bucket/what?.jsonl",
        "a#1?.jsonl": "a#1?.jsonl",
    }.items(),
)
def test_only_web_addresses_have_a_query(path: str, expected: str) -> None:
    assert without_query(path) == expected


def test_local_patterns(tmp_path: Path) -> None:
    for name in ("b[1].txt", "b2.txt", "a.txt"):
        (tmp_path / name).write_text("x")
    assert matching_paths(f"{tmp_path}/b*.txt") == [f"{tmp_path}/{name}" for name in ("b2.txt", "b[1].txt")]
    assert matching_paths(f"{tmp_path}/b[1].txt") == [f"{tmp_path}/b[1].txt"]
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "c.txt").write_text("x")
    assert matching_paths(f"{tmp_path}/**/[ac].txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/deep/er/c.txt"]
    (tmp_path / "broken").symlink_to("absent")
    assert matching_paths(f"{tmp_path}/br*") == [f"{tmp_path}/broken"]
    assert files_at(tmp_path / "broken") is None
    for absent in ("c*", "broken"):
        with pytest.raises(InputError, match=r"no such file|no file matches the pattern"):
            matching_paths(f"{tmp_path}/{absent}")


def test_a_server_that_does_not_answer_is_told_from_a_missing_file() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a.jsonl"
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be reached \(.*; check the address"):
        files_at(url)
