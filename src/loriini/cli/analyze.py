"""The commands that look into a trained model: `analyze` its routes, and `lens` on one text."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from loriini.cli.arguments import OfModel, OutFolder, Text, check_models, output_file, read_text_file
from loriini.common.errors import InputError
from loriini.common.options import Only, Option
from loriini.evaluate.settings import EvaluationSettings


@dataclass(frozen=True, kw_only=True)
class Analyze(OfModel):
    """Measure which experts each domain's text is routed to, and write a report."""

    text: Annotated[
        EvaluationSettings, Only("documents", "text_field", "domain_field", "on_error", "instances")
    ] = field(default_factory=EvaluationSettings)
    per_document: bool = False
    """Route each document by itself, cut to the context; `--instances` then limits documents."""
    out: OutFolder | None = None
    """Folder of routes.npz, routes.json and report.html (RUN; without a run it must be given)."""

    def run(self) -> None:
        if not self.text.documents:
            raise InputError("--documents is missing: give held-out text")
        check_models(self.model)
        from loriini.analyze.command import analyze_run

        settings = replace(self.text, device=self.device)
        print(analyze_run(self.model, settings, self.out, self.per_document))


@dataclass(frozen=True, kw_only=True)
class Lens(OfModel):
    """Write a page that shows the experts and the loss of each token of a text."""

    text: Annotated[Path | None, Option("FILE")] = None
    """The text, from a file."""
    prompt: Text | None = None
    """The text itself."""
    dense: Annotated[Path | None, Option("RUN")] = None
    """A dense model, to show its loss beside the mixture's."""
    label: str | None = None
    """The text's domain, for a model that routes by label."""
    tokens: int = 4096
    """Tokens of the text to read, at most."""
    out: Annotated[Path | None, Option("FILE", parse=output_file("Loriini lens"))] = None
    """The page to write (RUN/lens.html; for a model that is not a run it must be given)."""

    def run(self) -> None:
        if (self.text is None) == (self.prompt is None):
            raise InputError("give --text FILE or --prompt TEXT, one of them")
        check_models(self.model, *([self.dense] if self.dense else []))
        from loriini.analyze.lens import LENS, write_lens
        from loriini.common.hub import page_folder

        page = write_lens(
            self.model,
            read_text_file(self.text) if self.text else self.prompt or "",
            self.out or page_folder(self.model, "--out FILE") / LENS,
            dense=self.dense,
            label=self.label,
            device=self.device,
            tokens=self.tokens,
        )
        print(page)
