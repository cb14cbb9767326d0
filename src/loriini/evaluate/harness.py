"""Loriini models in lm-evaluation-harness: `--model loriini` once this module is imported.

The harness's own `hf` pads without a mask, and routes by the answer where a design pools over its input. This
class passes the mask and the length of the context, so that answers are routed by their context alone and
batches do not change results. `python -m loriini.evaluate.harness` is `lm_eval` with the model registered.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any, get_args

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from torch import Tensor

from loriini.errors import InputError
from loriini.evaluate.perplexity import EvaluationRouting, check_routing, first_segment
from loriini.hardware import pick_device
from loriini.model import LoriiniForCausalLM
from loriini.model.labels import labels_of
from loriini.progress import progress

MAX_NEW_TOKENS = 256

Window = tuple[int, tuple[int, ...]]
"""A forward pass's input: how many of its tokens are context, and all of them."""


@dataclass
class RollingSums:
    """Log-likelihoods in nats, and tokens: of whole rolling windows, and of what follows their segment 1."""

    total: float = 0.0
    tokens: int = 0
    later: float = 0.0
    later_tokens: int = 0

    def add(self, log_probs: Tensor, first: int) -> None:
        """Count a window's scored tokens, `first` of which are in segment 1."""
        self.total += log_probs.sum().item()
        self.tokens += len(log_probs)
        self.later += log_probs[first:].sum().item()
        self.later_tokens += max(0, len(log_probs) - first)

    def perplexities(self) -> dict[str, float | None]:
        """`perplexity` after segment 1 (None without a token there) and `perplexity_all`, per token."""
        later = exp(-self.later / self.later_tokens) if self.later_tokens else None
        return {"perplexity": later, "perplexity_all": exp(-self.total / self.tokens)}


@register_model("loriini")
class LoriiniLM(HFLM):
    """A Loriini model as the harness's LM.

    `routing` is `prompt` (one decision a layer, by the context), `segment` (segment 1 by the context's tokens
    in it, later ones by the segment before) or `training` (a call without a prompt, answers included; not
    causal in segment 1). Rolling windows have no prompt: `prompt` routes them as `segment` does where the
    design has segments, the first by the window's context. `label` names the expert of a label-routed model.

    `rolling` holds the sums of the last `loglikelihood_rolling`; `truncated` counts inputs cut on the left
    because they exceed the model's context. Of an answer that alone exceeds it, the last tokens are scored.
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
        if routing not in get_args(EvaluationRouting):
            raise InputError(f"routing={routing}: use one of {', '.join(get_args(EvaluationRouting))}")
        check_routing(self.model.config, routing, skip=1)
        labels_of(self.model, label, 1)
        self.routing = routing
        self.label = label
        self.rolling = RollingSums()
        self.truncated = 0

    @property
    def max_gen_toks(self) -> int:
        """At most half the context: the rest is for the prompt."""
        return min(MAX_NEW_TOKENS, self.max_length // 2)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """As the harness's; `rolling` keeps segment 1 apart."""
        self.rolling = RollingSums()
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """(log-likelihood, whether greedy) of each (texts, context, continuation); texts is None if rolling.

        Requests that differ in the last token alone share a forward pass.
        """
        windows: dict[Window, list[int]] = defaultdict(list)
        for i, (_, context, continuation) in enumerate(requests):
            windows[self._window(context, continuation)].append(i)
        order = sorted(windows, key=lambda window: -len(window[1]))
        rolling = bool(requests) and requests[0][0] is None
        size = override_bs or (self._detect_batch_size() if self.batch_size == "auto" else self.batch_size)
        answers: dict[int, tuple[float, bool]] = {}
        shown = not (disable_tqdm or rolling or self.rank)
        with progress("answers", len(requests), shown) as advance:
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                for window, log_probs_LV in zip(batch, self._log_probs(batch, rolling), strict=True):
                    for i in windows[window]:
                        answers[i] = self._answer(requests[i], window, log_probs_LV)
                    advance(len(windows[window]))
        return [answers[i] for i in range(len(requests))]

    def _answer(self, request: Any, window: Window, log_probs_LV: Tensor) -> tuple[float, bool]:
        texts, _, continuation = request
        target_L = torch.tensor(continuation[-len(log_probs_LV) :], device=log_probs_LV.device)
        log_probs_L = log_probs_LV.gather(1, target_L[:, None])[:, 0]
        answer = float(log_probs_L.sum()), bool((log_probs_LV.argmax(1) == target_L).all())
        if texts is None:
            self.rolling.add(log_probs_L, max(0, first_segment(self.model.config) + 1 - window[0]))
        else:
            self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answer

    def _window(self, context: list[int], continuation: list[int]) -> Window:
        """The last tokens that fit the context, without the very last, which is only predicted."""
        ids = (context + continuation)[-self.max_length - 1 :]
        self.truncated += len(context) + len(continuation) > len(ids)
        return max(1, len(ids) - len(continuation)), tuple(ids[:-1])

    def _log_probs(self, batch: list[Window], rolling: bool) -> list[Tensor]:
        """For each window the log-probabilities (continuation, V) of its continuation's tokens."""
        longest = len(batch[0][1])
        ids_BL = torch.tensor([[*ids, *[0] * (longest - len(ids))] for _, ids in batch], device=self.device)
        lengths_B = torch.tensor([len(ids) for _, ids in batch], device=self.device)
        prompts_B = torch.tensor([prompt for prompt, _ in batch], device=self.device)
        mask_BL = torch.arange(longest, device=self.device) < lengths_B[:, None]
        first = int(prompts_B.min()) - 1
        routing: dict[str, Any] = {"logits_to_keep": torch.arange(first, longest, device=self.device)}
        mode = "segment" if rolling and self._segmented and self.routing == "prompt" else self.routing
        if mode != "training":
            routing |= {"prompt_lengths": prompts_B, "inference_routing": mode}
        dtype = self.softmax_dtype or torch.float32  # sums of bfloat16 are rounded to half a nat
        log_probs_BLV = self._model_call(ids_BL, mask_BL, **routing).log_softmax(-1, dtype=dtype)
        return [
            row_LV[prompt - 1 - first : len(ids) - first]
            for row_LV, (prompt, ids) in zip(log_probs_BLV, batch, strict=True)
        ]

    @property
    def _segmented(self) -> bool:
        return first_segment(self.model.config) > 0

    def _model_call(
        self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None, **routing: Any
    ) -> Tensor:
        dtype = self.mixed_precision_dtype
        with torch.no_grad(), torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            routing["routing_labels"] = labels_of(self.model, self.label, len(inps))
            return self.model(inps, attention_mask=attn_mask, **routing).logits

    def tok_batch_encode(
        self,
        strings: list[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor]:
        """As the harness's, counting the prompts that are cut."""
        ids, mask = super().tok_batch_encode(strings, padding_side, **more)
        if left_truncate_len:
            self.truncated += int((mask.sum(1) > left_truncate_len).sum())
            ids, mask = ids[:, -left_truncate_len:], mask[:, -left_truncate_len:]
        return ids, mask

    def _model_generate(self, context: Tensor, max_length: int, stop: list[str], **settings: Any) -> Tensor:
        by_segment = self.routing == "segment" or (self.routing == "training" and self._segmented)
        settings["inference_routing"] = "segment" if by_segment else "prompt"
        settings["routing_labels"] = labels_of(self.model, self.label, len(context))
        return super()._model_generate(context, max_length, stop, **settings)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
