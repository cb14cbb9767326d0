"""The commands on one trained model: `generate`, `export`, `analyze` and `lens`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from loriini.cli.arguments import OutFolder, Text, check_models, output_file, read_text_file
from loriini.common.errors import InputError
from loriini.common.options import Option, refuse_given
from loriini.evaluate.settings import EvaluationSettings, Generation
from loriini.export.formats import FORMATS, ExportSettings


@dataclass(frozen=True, kw_only=True)
class ModelCommand:
    """Options that all commands on one model have."""

    model: Annotated[Path, Option("RUN", positional=True)]
    """A run's folder, a Hugging Face model folder such as RUN/model, or a Hub id (ORG/NAME)."""
    device: str | None = None
    """cpu, cuda or cuda:N (the GPU if there is one)."""


@dataclass(frozen=True, kw_only=True)
class Generate(ModelCommand):
    """Continue a prompt."""

    prompt: Text
    """Text to continue."""
    how: Generation = field(default_factory=Generation)

    def run(self) -> None:
        check_models(self.model)
        from transformers import TextStreamer

        from loriini.common.hardware import autocast
        from loriini.common.progress import warn
        from loriini.evaluate.samples import check_generation, check_room, continue_text
        from loriini.model.generate.routing_inputs import refuse_unused_label
        from loriini.model.weights.loading import load_model
        from loriini.model.weights.run_record import training_of

        how = self.how
        if how.greedy:
            why = "is for sampling; leave it out, or --greedy"
            refuse_given(how, ("temperature", "top_k", "top_p", "seed"), why)
        model, tokenizer = load_model(self.model, self.device)
        refuse_unused_label(how.label, model.config)
        check_generation(model, how)
        room = check_room(model.config, tokenizer, self.prompt, how)
        if how.max_new_tokens != Generation.max_new_tokens and how.max_new_tokens > room:
            asked = f"--max-new-tokens {how.max_new_tokens}"
            warn(f"{asked}: the context has room for {room:,}; beyond it, models write worse")

        print(self.prompt, end="", flush=True)
        streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        with autocast(training_of(self.model).evaluated_in, model.device):
            continue_text(model, tokenizer, self.prompt, how, streamer)


@dataclass(frozen=True, kw_only=True)
class Export(ModelCommand):
    """Write a model for other programs: transformers, vLLM, SGLang or llama.cpp."""

    settings: Annotated[ExportSettings, Option(only=("to", "dtype", "step", "label"))]
    prompt: Text | None = None
    """Text that chooses the experts, for formats without a router."""
    prompt_file: Annotated[Path | None, Option("FILE")] = None
    """The prompt, from a file."""
    out: OutFolder
    """Folder to write."""

    def run(self) -> None:
        if self.prompt is not None and self.prompt_file:
            raise InputError("give --prompt or --prompt-file, one of them")
        prompt = read_text_file(self.prompt_file) if self.prompt_file else self.prompt
        settings = replace(self.settings, prompt=prompt)
        from loriini.export.export import export_run

        print(export_run(self.model, settings, self.out, self.device))

    @staticmethod
    def more_help(given: Mapping[str, Any]) -> str:
        """The export formats, to list below the options."""
        return "formats:\n" + "".join(f"  {name:<12}{form.help}\n" for name, form in FORMATS.items())


@dataclass(frozen=True, kw_only=True)
class Analyze(ModelCommand):
    """Measure which experts each domain's text is routed to, and write a report."""

    text: Annotated[
        EvaluationSettings,
        Option(only=("documents", "text_field", "domain_field", "on_error", "contexts", "instances")),
    ] = field(default_factory=EvaluationSettings)
    out: OutFolder | None = None
    """Folder of routes.npz, routes.json and report.html (RUN; without a run it must be given)."""

    def run(self) -> None:
        if not self.text.documents:
            raise InputError("--documents is missing: give held-out text")
        check_models(self.model)
        from loriini.analyze.report import analyze_run

        print(analyze_run(self.model, self.text, self.out))


@dataclass(frozen=True, kw_only=True)
class Lens(ModelCommand):
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
        from loriini.common.folders import page_folder

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
