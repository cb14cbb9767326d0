"""Loss-free balancing: the bias follows the load, decides who is chosen, and stays out of the gates."""

from dataclasses import replace
from pathlib import Path

import torch

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.routing import Router, Routing
from loriini.routing.scorer import RouterSettings
from loriini.routing.stats import choices, stack_layers
from loriini.routing.unit import RoutingContext, UnitLayout
from loriini.train.balance import update_balance_bias
from tiny import random_ids, tiny_model

DEEPSEEK = DESIGNS["deepseek-v3"]


def choices_of(routings: tuple[Routing, ...]) -> torch.Tensor:
    return choices(stack_layers(routings))


def biases(model: LoriiniForCausalLM) -> list[torch.Tensor]:
    return [mixture.router.balance_bias for mixture in model.model.mixtures]


def test_the_bias_moves_by_its_step_against_the_load_of_all_micro_batches() -> None:
    model = tiny_model(replace(DEEPSEEK, balance_bias=0.25))
    routings = [model(random_ids()).routings for _ in range(2)]
    update_balance_bias(model, sum(map(choices_of, routings)))
    for layer, bias in enumerate(biases(model)):
        chosen = torch.cat([r[layer].gates > 0 for r in routings]).float().sum(0)
        assert bias.tolist() == [0.25 * (c < chosen.mean()) - 0.25 * (c > chosen.mean()) for c in chosen]


def test_the_bias_chooses_and_does_not_weigh() -> None:
    model, ids = tiny_model("deepseek-v3"), random_ids()
    biases(model)[0][:] = torch.tensor([9.0, 0.0, 9.0, 0.0])
    routing = model(ids).routings[0]
    assert torch.equal(routing.gates > 0, torch.tensor([True, False, True, False]).expand(33, -1))
    scores = routing.logits.sigmoid() * (routing.gates > 0)
    torch.testing.assert_close(routing.gates, scores / scores.sum(-1, keepdim=True))


def test_the_bias_is_added_to_sigmoids_not_to_logits() -> None:
    router = Router(RouterSettings(DEEPSEEK, hidden_size=4, num_experts=4))
    with torch.no_grad():
        router.scorer.weight.copy_(torch.eye(4))
    router.balance_bias[2] = 0.45
    logits = torch.tensor([4.0, 2.0, 0.0, -9.0])  # of sigmoids 0.98, 0.88, 0.5 and 0
    gates = router(logits[None, None], RoutingContext(1, 1), DEEPSEEK, UnitLayout(1, 1)).gates
    assert (gates > 0).tolist() == [[True, False, True, False]]


def test_the_bias_stays_float32_in_a_model_of_bfloat16(tmp_path: Path) -> None:
    model = tiny_model("deepseek-v3")
    biases(model)[0].fill_(0.5).add_(0.001)
    expected = biases(model)[0].clone()
    model.bfloat16().save_pretrained(tmp_path)
    loaded = LoriiniForCausalLM.from_pretrained(tmp_path)
    for same in (model, loaded, LoriiniForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)):
        assert same.model.mixtures[0].router.scorer.weight.dtype == same.dtype != torch.float32
        assert torch.equal(biases(same)[0], expected)
    built = LoriiniForCausalLM._from_config(model.config, dtype=torch.bfloat16)
    assert biases(built)[0].dtype == torch.float32
