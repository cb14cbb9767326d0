"""The runs that items need: on each of their texts that is another one here."""

from dataclasses import replace
from pathlib import Path

from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.plan import make_plans
from loriini.papers.reproduce.texts import Texts
from reproduce.conftest import TEST


def test_a_text_with_the_domains_of_an_earlier_one_is_left_out_and_noted(text: Path, tmp_path: Path) -> None:
    """Without `multi…`, `web` and `prose` all domains stand for languages, and for web text."""
    experiment, scale = EXPERIMENTS["design-choices-collapse"], replace(TEST, texts=2)
    few = tuple(str(path) for path in text.iterdir() if path.name.startswith(("python", "wiki")))
    for i, (source, used) in enumerate(
        {(str(text),): {"MultiWiki", "OpenWebText"}, few: {"MultiWiki"}}.items()
    ):
        texts, out = Texts(tmp_path / f"text{i}", scale, source), tmp_path / f"out{i}"
        (plan,) = make_plans([experiment], scale, texts, 1, out)
        assert {training.text for training in plan.trainings} == used
        assert (plan.experiment.left_out == {"OpenWebText": "MultiWiki"}) == (len(used) == 1)
