"""The lens: what its page says of a text is what the model does with it, and the text stays text."""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lenses import HOSTILE, PAIRS, Parts, saved
from loriini import LoriiniForCausalLM
from loriini.analyze.lens import read_text, tokenize, write_lens
from loriini.analyze.lens_page import write_lens_page
from loriini.analyze.reading import Lens, Reading, domain_overlaps, mean_overlap
from loriini.analyze.routes import ROUTES, Routes
from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.evaluate.heldout import tokenize_by_domain
from loriini.evaluate.perplexity import score_tokens
from loriini.model.generate.routing_inputs import routing_inputs
from runs import byte_tokenizer
from tiny import SEGMENT, random_ids, tiny_model

DESIGNS_SHOWN = ("lory", "prefix", "mixtral", "sequence-top2", "ec-segment", "aoe-top-p", "label")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer(PAIRS)


def labelled(model: LoriiniForCausalLM) -> str | None:
    if not model.config.routed_by_label:
        return None
    model.config.label_names = ["a", "b", "c", "d"]
    return "b"


def read(model: LoriiniForCausalLM, ids: Tensor, length: int) -> Reading:
    return read_text(model, ids, [""] * len(ids), length, "fp32", labelled(model))


@pytest.mark.parametrize("design", DESIGNS_SHOWN)
@torch.no_grad()
def test_weights_are_the_models_routing(design: str) -> None:
    model, ids = tiny_model(design), random_ids(1, 27)[0]
    reading = read(model, ids, length=9)
    numbers = reading.to_dict()
    assert reading.starts == (0, 10, 20)
    labels = {"routing_labels": torch.tensor([1])} if model.config.routed_by_label else {}
    for start in reading.starts:
        inputs = ids[start : start + 10][:-1]
        routings = model(inputs[None], **labels).routings
        for layer, routing in enumerate(routings):
            for position in range(len(inputs)):
                unit = {"token": position, "sequence": 0}.get(model.config.routing.unit, position // SEGMENT)
                pairs = numbers["weights"][layer][numbers["unit"][start + position]]
                expected = [[e, round(w, 4)] for e, w in enumerate(routing.gates[unit].tolist()) if w]
                assert [e for e, _ in pairs] == [e for e, _ in expected]
                np.testing.assert_allclose(pairs, expected, atol=1.1e-4)
    assert [i for i, unit in enumerate(numbers["unit"]) if unit < 0] == [9, 19, 26]


@pytest.mark.parametrize(("design", "experts"), [("lory", 4), ("random", 4), ("dense", 1)])
@torch.no_grad()
def test_losses_are_those_of_evaluation(
    design: str, experts: int, tokenizer: PreTrainedTokenizerFast
) -> None:
    model = tiny_model(design, vocab_size=len(tokenizer), num_experts=experts)
    text = "the owl <eos> on the mat and saw 12 bats."
    ids, pieces = tokenize(text, tokenizer)
    length = 12
    losses = read_text(model, ids, pieces, length, "fp32").losses_N
    heldout = tokenize_by_domain([Document("1", text, "a")], tokenizer, length, contexts="strung")["a"]
    instances = torch.stack(heldout.instances)
    assert len(instances) == 3
    inputs = routing_inputs(model, "a", len(instances))
    expected = score_tokens(model, instances, "fp32", **inputs).loss.numpy()
    whole = losses[: instances.numel()].reshape(instances.shape)
    assert np.isnan(whole[:, 0]).all()
    np.testing.assert_allclose(whole[:, 1:], expected, rtol=1e-5)


@pytest.mark.parametrize("text", [HOSTILE, "中文", " \n\n  x", "é", "a\r\nb\tc ", "a<eos>b"])
def test_the_pieces_of_a_text_add_up_to_it(text: str, tokenizer: PreTrainedTokenizerFast) -> None:
    ids, pieces = tokenize(text, tokenizer)
    assert "".join(pieces) == text
    assert len(ids) == len(pieces)
    assert ids.tolist() == [*tokenizer(text, split_special_tokens=True)["input_ids"], tokenizer.eos_token_id]


def test_a_text_stays_text(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    run = saved(tmp_path / "<b>run", tokenizer, "mixtral")
    page = write_lens(run, HOSTILE, tmp_path / "lens.html").read_text()
    parts = Parts(page)
    assert (
        "".join(parts.tokens)
        == HOSTILE.replace("\n", "↵").replace("文", "文··", 1).replace("中", "中··").replace("ï", "ï·")
        + "⟨end⟩"
    )
    assert "img" not in parts.tags
    assert "b" not in parts.tags
    _, script = parts.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in parts.policy
    assert "default-src 'none'" in parts.policy
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "innerHTML" not in script


def test_a_dense_models_loss_is_beside_the_mixtures(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    run, dense = saved(tmp_path / "run", tokenizer), saved(tmp_path / "dense", tokenizer, num_experts=1)
    text = "the owl sat on the mat and saw 12 bats."
    page = write_lens(run, text, tmp_path / "lens.html", dense, device="cpu").read_text()
    data = Parts(page).data
    loss, of_dense = (np.array(data[name], float) for name in ("loss", "dense"))
    for start in data["starts"]:
        loss[start : start + SEGMENT + 1] = np.nan  # a first segment reads what it predicts
    gain = np.nanmean(of_dense - loss)
    assert np.isfinite(gain)
    assert f"{gain:+.3f}".replace("-", "−") + " on average" in page
    assert "loss of dense minus that of run" in page
    assert "The first segment of a context is routed by its own text" in page
    with pytest.raises(InputError, match="a mixture; give the run of a dense model"):
        write_lens(run, text, tmp_path / "lens.html", run)
    with pytest.raises(InputError, match="a dense model, so there is nothing to route; give it as --dense"):
        write_lens(dense, text, tmp_path / "lens.html")
    other = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="a")
    saved(dense, other, num_experts=1)
    with pytest.raises(InputError, match="its tokenizer is not the mixture's"):
        write_lens(run, text, tmp_path / "lens.html", dense)


def test_tables_compare_what_was_not_routed_by_itself(tmp_path: Path) -> None:
    """12 tokens in segments of 4: gains of segment 1's are large, and are neither listed nor in a mean."""
    losses_N = np.array([np.nan, *np.full(4, 9.0), *np.arange(1.0, 8.0)])
    units_N = np.array([*np.repeat([0, 1, 2], [4, 4, 3]), -1])
    gates = np.full((1, 3, 4), 0.25)
    text = Reading(tuple(f"w{i}" for i in range(12)), (0,), units_N, gates, losses_N)
    design = tiny_model("lory").config.routing
    dense_N = losses_N + np.array([np.nan, *np.full(4, 5.0), *np.arange(1.0, 8.0)])
    lens = Lens("run", design, text, dense="dense", dense_losses_N=dense_N)
    page = write_lens_page(lens, tmp_path / "lens.html").read_text()
    most = page.split("gains most</h3>")[1].split("</table>")[0]
    assert re.findall(r'href="#t(\d+)"', most) == ["11", "10", "9", "8", "7", "6", "5"]
    assert "nan" not in page.split("gains most")[1].split("loses most")[0]
    rows = re.findall(r"segment (\d), predicts tokens (\d+–\d+)(.*?)</tr>", page)
    assert [(unit, span) for unit, span, _ in rows] == [("1", "1–4"), ("2", "5–8"), ("3", "9–11")]
    assert ["left out of the average" in rest for *_, rest in rows] == [True, False, False]
    assert ["+5.000" in rows[0][2], "+2.500" in rows[1][2], "+6.000" in rows[2][2]] == [True] * 3


def test_a_long_text_is_cut_and_the_page_says_so(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(tmp_path / "run", tokenizer)
    page = write_lens(run, "0123456789" * 10, tmp_path / "lens.html", tokens=60).read_text()
    assert "cut into 3 contexts of 25 tokens, as in evaluation" in page
    assert "The 41 tokens after these were left out (--tokens)" in page
    assert "⟨end⟩" not in page
    assert "the text has 101 tokens, the first 60 are read" in capsys.readouterr().err
    assert Parts(page).data["starts"] == [0, 25, 50]
    for text, tokens, words in (("", 60, "the text is empty"), ("a b", 1, "--tokens 1: give at least 2")):
        with pytest.raises(InputError, match=words):
            write_lens(run, text, tmp_path / "lens.html", tokens=tokens)


def routes(shares: list[list[float]]) -> Routes:
    """Routes of one layer with these choices by domain."""
    choices = np.array([shares])
    domains = tuple(f"<{i}>" for i in range(len(shares)))
    units = np.full(len(shares), 10)
    none, bits = np.zeros(choices.shape[:2]), np.zeros(1)
    return Routes(choices, choices, none, bits, bits, units, units, domains, "topic")


def reading(gates: list[list[float]]) -> Reading:
    """A text of as many tokens as units, and one more that is not routed."""
    count = len(gates) + 1
    units = np.array([*range(len(gates)), -1])
    losses = np.array([np.nan, *np.linspace(1, 2, len(gates))])
    return Reading(tuple(map(str, range(count))), (0,), units, np.array([gates]), losses)


def test_the_most_similar_domain_shares_most_choices(tmp_path: Path) -> None:
    text = reading([[0.9, 0.1, 0, 0], [0, 0.8, 0.2, 0]])
    measured = routes([[0, 0, 6, 4], [1, 2, 1, 0], [10, 0, 0, 0]])
    assert domain_overlaps(text, False, measured) == pytest.approx({"<1>": 1.0, "<0>": 0.25, "<2>": 0.25})
    assert domain_overlaps(text, True, measured)["<2>"] == pytest.approx(0.45)
    assert mean_overlap(measured) == pytest.approx((0.25 + 0.25 + 0) / 3)
    design = replace(tiny_model("mixtral").config.routing)
    page = write_lens_page(Lens("run", design, text, routes=measured), tmp_path / "lens.html").read_text()
    assert "routed most like topic <strong>&lt;1&gt;</strong>" in page
    page = write_lens_page(Lens("run", design, text), tmp_path / "lens.html").read_text()
    assert "<code>loriini analyze RUN --documents PATH…</code> measures it" in page


def test_routes_of_the_run_are_found(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    run = saved(tmp_path / "run", tokenizer)
    routes([[1, 2, 3, 4]]).save(run / ROUTES)  # of a model with one layer
    assert "has not been measured" in write_lens(run, "owl", tmp_path / "a.html").read_text()
    shares = np.full((2, 1, 4), 0.25)
    of_shares = dict.fromkeys(("choices", "mean_gates"), shares)
    of_bits = dict.fromkeys(("domain_bits", "chance_bits"), np.zeros(2))
    two_layers = replace(routes([[1, 1, 1, 1]]), **of_shares, **of_bits, confidence_entropy=np.zeros((2, 1)))
    two_layers.save(run / ROUTES)
    assert "routed most like topic" in write_lens(run, "owl", tmp_path / "b.html").read_text()
