"""The folders that rows copy."""

from pathlib import Path

import pytest

from hostile.template import make_run_template, make_template


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("hostile") / "template")


@pytest.fixture(scope="session")
def run_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run_template(template, tmp_path_factory.mktemp("hostile") / "template")
