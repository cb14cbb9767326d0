import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loriini.data.prepare.tokenized.pieces import Cut, Pieces, cut_instances


def cut_reference(lengths: list[int], order: list[int], size: int) -> list[list[tuple[int, int]]]:
    """The naive twin: one token at a time; (document, tokens) pieces for each instance."""
    owners = [document for document in order for _ in range(lengths[document])]
    chunks = [owners[i : i + size] for i in range(0, len(owners) - size + 1, size)]
    return [[(d, chunk.count(d)) for d in dict.fromkeys(chunk)] for chunk in chunks]


def in_blocks(instances: Cut | Pieces, count: int) -> list[list[tuple[int, int]]]:
    """(document, tokens) pieces for each instance, from blocks of `count`, each numbered from 0."""
    found = []
    for first in range(0, len(instances), count):
        block = instances.block(first, min(first + count, len(instances)))
        assert block.starts_I[0] == 0
        assert block.starts_I[-1] == len(block.documents_P) == len(block.lengths_P)
        pieces = list(zip(block.documents_P.tolist(), block.lengths_P.tolist(), strict=True))
        found += [pieces[a:b] for a, b in zip(block.starts_I, block.starts_I[1:], strict=False)]
    return found


@given(
    st.lists(st.one_of(st.integers(0, 9), st.integers(0, 90)), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(1, 9),
    st.randoms(),
)
@settings(deadline=None)
def test_cut_equals_its_naive_twin(lengths: list[int], size: int, count: int, random) -> None:  # type: ignore[no-untyped-def]
    """In blocks of one instance, of some and of all; documents are empty, short, or span many instances."""
    order = random.sample(range(len(lengths)), random.randint(0, len(lengths)))
    cut = cut_instances(np.cumsum([0, *lengths]), np.array(order, np.int64), size)
    expected = cut_reference(lengths, order, size)
    assert len(cut) == len(expected)
    for blocks in (1, count, len(cut) + 1):
        assert in_blocks(cut, blocks) == expected
    whole = cut.block(0, len(cut))
    assert len(whole) == len(expected)
    assert in_blocks(whole, count) == expected


def test_a_block_holds_nothing_of_other_instances() -> None:
    """A document of 8 million instances, and the memory that cutting three of them takes."""
    tracemalloc.start()
    try:
        cut = cut_instances(np.array([0, 7, 1 << 24]), np.array([1, 0]), 2)
        block = cut.block(1 << 22, (1 << 22) + 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(cut) == 1 << 23
    assert block.documents_P.tolist() == [1, 1, 1]
    assert peak < 100_000


def test_positions_begin_again_at_each_piece() -> None:
    pieces = cut_instances(np.cumsum([0, 3, 7, 1, 4]), np.array([1, 0, 3, 2]), 5).block(0, 3)
    assert [pieces.positions(i).tolist() for i in range(3)] == [
        [0, 1, 2, 3, 4],
        [0, 1, 0, 1, 2],
        [0, 1, 2, 3, 0],
    ]
