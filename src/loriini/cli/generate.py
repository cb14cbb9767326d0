"""The command that continues text."""

from dataclasses import dataclass, field

from loriini.cli.arguments import OfModel, Text, check_models
from loriini.common.options import refuse_given
from loriini.evaluate.settings import Generation


@dataclass(frozen=True, kw_only=True)
class Generate(OfModel):
    """Continue a prompt."""

    prompt: Text
    """Text to continue."""
    how: Generation = field(default_factory=Generation)

    def run(self) -> None:
        check_models(self.model)
        from loriini.common.hardware import autocast
        from loriini.common.progress import warn
        from loriini.evaluate.samples import check_generation, check_room, continue_text
        from loriini.model.generate.routing_inputs import refuse_unused_label
        from loriini.model.weights.loading import load_model, run_precision

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

        def write(text: str) -> None:
            print(text, end="", flush=True)

        write(self.prompt)
        with autocast(run_precision(self.model), model.device):
            continue_text(model, tokenizer, self.prompt, how, write)
        write("\n")
