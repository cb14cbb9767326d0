"""Arguments that ask for other outputs are honoured or refused."""

import pytest
import torch

from loriini import LoriiniModel
from tiny import random_ids, tiny_model


def test_hidden_states_are_those_that_transformers_defines() -> None:
    model, ids = tiny_model("lory"), random_ids()
    inputs: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    out = model(ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    for state, expected in zip(out.hidden_states[:-1], inputs, strict=True):
        torch.testing.assert_close(state, expected)
    torch.testing.assert_close(model.lm_head(out.hidden_states[-1]), out.logits)
    assert model(ids).hidden_states is None
    model.config.output_hidden_states = True
    assert len(model(ids).hidden_states) == 3


def test_a_tuple_instead_of_an_output() -> None:
    model, ids = tiny_model("lory"), random_ids()
    expected = model(ids, labels=ids)
    loss, logits, routings, cross_entropy = model(ids, labels=ids, return_dict=False)
    assert torch.equal(loss, expected.loss)
    assert torch.equal(cross_entropy, expected.loss)
    assert torch.equal(logits, expected.logits)
    assert len(routings) == 2
    model.config.return_dict = False
    assert isinstance(model(ids), tuple)
    decoder = LoriiniModel(model.config)
    assert isinstance(decoder(ids), tuple)
    assert decoder(ids, return_dict=True).last_hidden_state.shape == (*ids.shape, 16)


def test_attention_weights_are_refused() -> None:
    model, ids = tiny_model("mixtral"), random_ids()
    with pytest.raises(ValueError, match="output_attentions is not supported"):
        model(ids, output_attentions=True)
