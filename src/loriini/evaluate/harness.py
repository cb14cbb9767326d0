"""Loriini models in lm-evaluation-harness: `--model loriini` once this module is imported.

The harness's own model `hf` pads without a mask, and with a design that pools over its input the answer takes
part in routing. This class passes the mask and the context's length: the context alone routes an answer, and
the batch size changes no result. `python -m loriini.evaluate.harness` is `lm_eval` with the model registered.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from torch import Tensor, nn

from loriini.common.checks import check_choice
from loriini.common.errors import InputError
from loriini.common.hardware import pick_device
from loriini.common.progress import progress
from loriini.evaluate.perplexity import check_routing
from loriini.evaluate.settings import EvaluationRouting
from loriini.evaluate.windows import Window, batches, log_probs_of
from loriini.model import LoriiniForCausalLM
from loriini.model.generate.routing_inputs import labels_of

MAX_NEW_TOKENS = 256
AT_ONCE = 16
"""Windows in a batch if `batch_size` is `auto` and the harness gives no number."""


@register_model("loriini")
class LoriiniLM(HFLM):
    """A Loriini model as the harness's LM.

    `routing` is `prompt` (one decision per layer, from the context), `segment` (segment 1 from the context's
    tokens in it, later segments from the one before) or `training` (as in training: answers take part).
    Rolling requests have no prompt: if the design has segments, `prompt` routes them as `segment` does,
    segment 1 by the window's context. `label` names the expert of a label-routed model.

    `truncated` counts inputs that were cut on the left to fit the model's context. If an answer alone exceeds
    the context, its last tokens are scored. A task that asks for the whole context, or more, as new tokens
    gets half of it.
    """

    def __init__(
        self,
        pretrained: Any,
        routing: EvaluationRouting = "prompt",
        label: str | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(pretrained, str):
            model = Path(pretrained, "model")
            pretrained = str(model) if model.is_dir() else pretrained
            settings.setdefault("device", str(pick_device()))
        super().__init__(pretrained, **{"backend": "causal", **settings})
        if not isinstance(self.model, LoriiniForCausalLM):
            raise InputError(f"{pretrained}: not a Loriini model; use --model hf")
        check_choice("routing", routing, get_args(EvaluationRouting))
        check_routing(self.model.config, routing, skip=1)
        labels_of(self.model, label, 1)
        self.segmented = self.model.config.design.segmented
        self.routing = routing
        self.label = label
        self.truncated = 0

    @property
    def max_gen_toks(self) -> int:
        """New tokens if a task gives no number: at most half the context, to leave room for the prompt."""
        return min(MAX_NEW_TOKENS, self.max_length // 2)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """The harness's `generate_until`, after limiting new tokens to leave room for the prompt."""
        return super().generate_until([self._with_room(request) for request in requests], disable_tqdm)

    def _with_room(self, request: Any) -> Any:
        """The request, with half the context as new tokens if it asks for the whole context or more."""
        context, settings = request.args
        asked, most = normalize_gen_kwargs(settings, self.max_gen_toks)["max_gen_toks"], self.max_length // 2
        if asked < self.max_length:
            return request
        return replace(request, arguments=(context, {**settings, "max_gen_toks": most}))

    @torch.no_grad()
    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """(log-likelihood, whether greedy) for each request (texts, context, continuation).

        `texts` is None if rolling. Requests that differ only in the last token share a forward pass.
        """
        windows: dict[Window, list[int]] = defaultdict(list)
        for i, (_, context, continuation) in enumerate(requests):
            windows[self._window(context, continuation)].append(i)
        rolling = bool(requests) and requests[0][0] is None
        size = override_bs or (self.batch_size if isinstance(self.batch_size, int) else AT_ONCE)
        answers: dict[int, tuple[float, bool]] = {}
        shown = not (disable_tqdm or rolling or self.rank)
        with progress("answers", len(requests), shown) as advance:
            for batch in batches(list(windows), size):
                targets = [window.targets([requests[i][2][-1] for i in windows[window]]) for window in batch]
                for window, log_probs_SR, greedy_SR in self._scores(batch, targets, rolling):
                    for column, i in enumerate(windows[window]):
                        answer = float(log_probs_SR[:, column].sum()), bool(greedy_SR[:, column].all())
                        answers[i] = answer
                        if not rolling:
                            self.cache_hook.add_partial("loglikelihood", requests[i][0], answer)
                    advance(len(windows[window]))
        return [answers[i] for i in range(len(requests))]

    def _window(self, context: list[int], continuation: list[int]) -> Window:
        """A request's last tokens that fit the context, without the very last, which is only predicted."""
        ids = (context + continuation)[-self.max_length - 1 :]
        self.truncated += len(context) + len(continuation) > len(ids)
        return Window(tuple(ids[:-1]), max(1, len(ids) - len(continuation)))

    def _scores(
        self, batch: list[Window], targets: list[Tensor], rolling: bool
    ) -> Iterator[tuple[Window, Tensor, Tensor]]:
        """Each window, the log-probabilities (S, R) of its `targets`, and whether each is the likeliest."""
        states_BLD, most = self._states(batch, rolling), max(len(own_SR[0]) for own_SR in targets)
        states_SD = torch.cat([row_LD[w.scored] for row_LD, w in zip(states_BLD, batch, strict=True)])
        padded = [nn.functional.pad(own_SR, (0, most - len(own_SR[0]))) for own_SR in targets]
        dtype = self.softmax_dtype or torch.float32  # sums of bfloat16 are rounded to half a nat
        head, vocabulary = self.model.lm_head, self.model.config.vocab_size
        with self._precision():
            found = log_probs_of(states_SD, head, torch.cat(padded), vocabulary, dtype)
        scores = [all_SR.cpu() for all_SR in found]  # once a batch: answers are read one by one
        lengths = [len(own_SR) for own_SR in targets]
        yield from zip(batch, *(all_SR.split(lengths) for all_SR in scores), strict=True)

    def _states(self, batch: list[Window], rolling: bool) -> Tensor:
        """The states (B, L, D) before the output head, for windows sorted longest first."""
        longest = len(batch[0].ids)
        padded = [[*window.ids, *[0] * (longest - len(window.ids))] for window in batch]
        ids_BL = torch.tensor(padded, device=self.device)
        lengths_B = torch.tensor([len(window.ids) for window in batch], device=self.device)
        inputs: dict[str, Any] = {"routing_labels": labels_of(self.model, self.label, len(batch))}
        mode = "segment" if rolling and self.segmented and self.routing == "prompt" else self.routing
        if mode != "training":
            prompts_B = torch.tensor([window.prompt for window in batch], device=self.device)
            inputs |= {"prompt_lengths": prompts_B, "inference_routing": mode}
        mask_BL = torch.arange(longest, device=self.device) < lengths_B[:, None]
        with self._precision():
            out = self.model.model(ids_BL, mask_BL, return_dict=True, **inputs)
        states_BLD: Tensor = out.last_hidden_state
        return states_BLD

    def _precision(self) -> torch.autocast:
        """Autocast to `mixed_precision_dtype`, if it is set."""
        dtype = self.mixed_precision_dtype
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def tok_batch_encode(
        self,
        strings: list[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor]:
        """The harness's `tok_batch_encode`; also counts the prompts that it cuts."""
        ids, mask = super().tok_batch_encode(strings, padding_side, **more)
        if left_truncate_len:
            self.truncated += int((mask.sum(1) > left_truncate_len).sum())
            ids, mask = ids[:, -left_truncate_len:], mask[:, -left_truncate_len:]
        return ids, mask

    def _model_generate(self, context: Tensor, max_length: int, stop: list[str], **settings: Any) -> Tensor:
        by_segment = self.routing == "segment" or (self.routing == "training" and self.segmented)
        settings["inference_routing"] = "segment" if by_segment else "prompt"
        settings["routing_labels"] = labels_of(self.model, self.label, len(context))
        return super()._model_generate(context, max_length, stop, **settings)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
