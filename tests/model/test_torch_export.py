"""torch.export: whole models as graphs of any number of sequences, which can be written to files.

Where a shape is read by `len`, it becomes a constant of the graph; `shape[0]` stays a symbol.
"""

from pathlib import Path

import pytest
import torch

from tiny import covering_designs, label_arguments, random_ids, tiny_model

# torch itself uses what it deprecates, when it traces autograd functions; 2.11 warns of files that it reads.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The given buffer is not writable"),
]


BY_DEFAULT = ["ec-segment", "aoe-top-p"]
OTHERS = [
    pytest.param(name, True, marks=pytest.mark.grid) for name in covering_designs() if name not in BY_DEFAULT
]


@pytest.mark.parametrize(
    ("design", "with_gradients"), [*((name, True) for name in BY_DEFAULT), ("lory", False), *OTHERS]
)
def test_an_exported_model_takes_any_number_of_sequences(
    design: str, with_gradients: bool, tmp_path: Path
) -> None:
    model = tiny_model(design, num_hidden_layers=1)
    labels = label_arguments(model, 3)
    any_number = {"input_ids": {0: torch.export.Dim("sequences")}, "use_cache": None}
    with torch.set_grad_enabled(with_gradients):
        exported = torch.export.export(
            model,
            (random_ids(3),),
            {"use_cache": False, **labels},
            dynamic_shapes=None if labels else any_number,  # torch knows no shapes of further keywords
        )
    torch.export.save(exported, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for batch in [3] if labels else [1, 2, 5]:
        ids, labels = random_ids(batch), label_arguments(model, batch)
        found, expected = (m(ids, use_cache=False, **labels) for m in (loaded, model))
        torch.testing.assert_close(found.logits, expected.logits)
        for routing, of_model in zip(found.routings, expected.routings, strict=True):
            torch.testing.assert_close(routing.gates, of_model.gates)
            assert routing.unit_shape == of_model.unit_shape
