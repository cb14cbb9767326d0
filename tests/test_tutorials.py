"""The tutorials' commands, in the order of their pages, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"
PAGES = re.findall(r"^\d+\. \[.*\]\((.+?)\)", (TUTORIALS / "index.md").read_text(), re.MULTILINE)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FEWER = re.compile(r"--(steps|seeds) \d+")


def fewer(option):
    return f"--{option[1]} {'4' if option[1] == 'steps' else '1'}"


def blocks(page):
    """The commands of a page as (language, text), with fewer steps and seeds."""
    return [
        (language, FEWER.sub(fewer, text)) for language, text in BLOCK.findall((TUTORIALS / page).read_text())
    ]


def test_every_tutorial_is_in_the_list_and_has_commands():
    assert sorted(PAGES) == sorted(path.name for path in TUTORIALS.glob("*.md") if path.name != "index.md")
    assert all(blocks(page) for page in PAGES)


@pytest.mark.tutorial
def test_the_tutorials_commands_run(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    programs = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    for page in PAGES:
        for language, text in blocks(page):
            done = subprocess.run(
                [*programs[language], text], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}"
