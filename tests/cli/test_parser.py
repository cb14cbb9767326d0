"""Help, of all commands and of each."""

import pytest

from cli.calls import call


@pytest.mark.parametrize("command", ["", "quickstart", "train", "prepare"])
def test_help_goes_to_standard_output(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, *command.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("usage: loriini")
