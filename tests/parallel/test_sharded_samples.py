"""Samples of a model that is sharded over processes."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from loriini.evaluate import samples
from loriini.evaluate.samples import continue_text
from loriini.evaluate.settings import Generation
from loriini.model.weights.loading import tokenizer_in
from loriini.parallel.mesh import ParallelConfig, join_mesh
from loriini.parallel.sharding import build_model
from runs import write_tokenizer
from tiny import tiny_config
from together import in_one_group, job

NEW_TOKENS = 6


def lengths(folder: Path) -> int:
    """How long this process's sample is, where that of the second one ends at its first token."""
    tokenizer = tokenizer_in(folder)
    config = tiny_config("lory", vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    model = build_model(config, join_mesh(ParallelConfig()), "fp32")
    eos = torch.zeros(config.vocab_size).index_fill(0, torch.tensor(config.eos_token_id), torch.inf)

    def choose(ids_BL: Tensor, logits_BV: Tensor) -> Tensor:
        return (eos if dist.get_rank() else -eos).expand_as(logits_BV)

    parts: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "_refuse_nan", choose)
        continue_text(model, tokenizer, "1 2", Generation(NEW_TOKENS, greedy=True), parts.append)
    return len("".join(parts))


def test_a_process_whose_sample_is_complete_waits_for_the_others(tmp_path: Path) -> None:
    """It takes part in gathering weights until then; without it the others would wait forever."""
    longer, shorter = (one for (one,) in job(2, in_one_group, [(lengths, write_tokenizer(tmp_path))]))
    assert longer > shorter
