"""The command that exports a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from loriini.cli.arguments import OfModel, OutFolder, Text, read_text_file
from loriini.common.errors import InputError
from loriini.common.options import Only, Option
from loriini.export.formats import FORMATS, ExportSettings


@dataclass(frozen=True, kw_only=True)
class Export(OfModel):
    """Write a model for other programs: transformers, vLLM, SGLang or llama.cpp."""

    settings: Annotated[ExportSettings, Only("to", "dtype", "step", "label")]
    prompt: Text | None = None
    """Text that chooses the experts, for formats without a router."""
    prompt_file: Annotated[Path | None, Option("FILE")] = None
    """The same, from a file."""
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
        """The formats."""
        return "formats:\n" + "".join(f"  {name:<12}{form.help}\n" for name, form in FORMATS.items())
