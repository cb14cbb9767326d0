"""The commands that a report offers can be run as they are."""

import shlex
from pathlib import Path

import pytest

from extensions import tables_restored
from loriini.cli import COMMANDS
from loriini.cli.parser import make_parser
from loriini.common.extension import EXTENSIONS
from loriini.quickstart import Quickstart
from loriini.quickstart.next_commands import next_commands


@pytest.mark.parametrize(
    ("design", "size", "inputs"),
    [("lory", "small", []), ("mixtral", "large", ["web=my text.jsonl:0.5"]), ("label", "small", [])],
)
def test_every_command_is_parsed_and_names_a_job_of_its_own(
    design: str, size: str, inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on_error = "skip" if inputs else "stop"
    settings = {"design": design, "size": {"name": size}, "steps": 20, "seed": 3, "inputs": inputs}
    fields = {"text_field": "body" if inputs else "text", "domain_field": "domain"}
    settings |= {"on_error": on_error, **fields, "documents": {"train": dict.fromkeys(("web", "books"))}}
    jobs = []
    with tables_restored():
        EXTENSIONS.append("my_router.py")
        extended = next_commands(settings, Path("my job"))
    assert sum("--extension=my_router.py" in command for command in extended) == 6
    for command in next_commands(settings, Path("my job")):
        program, *words = shlex.split(command)
        assert program == "loriini"
        arguments, left = make_parser(COMMANDS).parse_known_args(words)
        assert not left
        if words[0] == "generate":
            assert vars(arguments).get("label") == ("books" if design == "label" else None)
        if words[0] == "quickstart":
            given = {k: v for k, v in vars(arguments).items() if k in Quickstart.__dataclass_fields__}
            job = Quickstart(**given | {"documents": tuple(given.get("documents", ()))})
            arguments.out.mkdir()
            job.claim(arguments.out, {})
            jobs.append(job)
    before = Quickstart(tuple(inputs), design, size, 20, 3, **fields, on_error=on_error)
    assert len({*jobs, before}) == 5
    read = (tuple(inputs), fields["text_field"], on_error)
    assert all((job.documents, job.text_field, job.on_error) == read for job in jobs)
    assert {(job.steps, job.seed) for job in jobs} == {(80, 3), (20, 4), (None, 3), (20, 3)}


@pytest.mark.parametrize("folder", [".", "..", "../job"])
def test_jobs_beside_a_folder_have_its_name(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"design": "lory", "size": {"name": "small"}, "steps": 1, "seed": 0, "inputs": []}
    settings |= {"text_field": "text", "domain_field": "domain", "on_error": "stop"}
    (tmp_path / "job" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "job" / ("inner" if folder == ".." else ""))
    longer = next(iter(next_commands({**settings, "documents": {"train": {"a": 1}}}, Path(folder))))
    assert Path(longer.split("--out ")[1]).resolve() == tmp_path / "job-steps-4"
