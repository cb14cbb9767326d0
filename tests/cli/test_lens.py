"""The page of the experts and the loss of each token."""

from pathlib import Path

import pytest

from cli.calls import Ended, Made, assert_refused, call


def test_lens_writes_a_page(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "lens", made.run, "--prompt", "the owl is number 3")
    assert ended == Ended(0, f"{made.run / 'lens.html'}\n", "")
    (tmp_path / "text.txt").write_text("the owl is number 3")
    page = call(
        capsys, "lens", made.run, "--text", tmp_path / "text.txt", "--out", tmp_path / "new" / "a.html"
    )
    assert page.out == f"{tmp_path / 'new' / 'a.html'}\n"
    pages = [(path).read_text() for path in (made.run / "lens.html", tmp_path / "new" / "a.html")]
    assert pages[0] == pages[1]
    for options, words in (
        ((), "give --text FILE or --prompt TEXT, one of them"),
        (
            ("--text", tmp_path / "none.txt"),
            "none.txt: not a readable text file (No such file or directory); ",
        ),
        (("--prompt", "a", "--out", tmp_path), "is a folder"),
        (("--prompt", "a", "--label", "z"), "--label z: this model does not route by label; leave it out"),
    ):
        assert_refused(call(capsys, "lens", made.run, *options), words)
