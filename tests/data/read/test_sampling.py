from hashlib import sha256

from loriini.data.read.document import Document
from loriini.data.read.sampling import hash_fraction, heldout_groups, take_evenly


def test_hash_fractions_are_uniform_and_stable() -> None:
    fractions = [hash_fraction(f"d{i}") for i in range(2000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert 0.47 < sum(fractions) / len(fractions) < 0.53
    assert hash_fraction("lory") == int(sha256(b"lory").hexdigest()[:16], 16) / 16**16


def test_groups_give_equal_shares() -> None:
    groups = {"small": ["s"] * 2, "a": ["a"] * 50, "b": ["b"] * 50, "c": ["c"] * 50, "d": ["d"] * 50}
    chosen = take_evenly(groups, len, 42, key=str)
    assert {name: chosen.count(name) for name in "sabcd"} == {"s": 2, "a": 10, "b": 10, "c": 10, "d": 10}


def test_no_group_gives_more_than_a_quarter() -> None:
    assert len(take_evenly({"only": ["x"] * 100}, len, 40, key=str)) == 10
    assert take_evenly({"only": ["a long first item"]}, len, 40, key=str) == ["a long first item"]


def documents_of(domain: str, **sizes: int) -> list[tuple[Document, str]]:
    return [(Document(f"{domain}/{group}", "x" * size, domain), group) for group, size in sizes.items()]


def test_every_domain_is_held_out_and_large_groups_are_not() -> None:
    small = {f"p{i}": 10 for i in range(30)}
    grouped = documents_of("a", big=200, **small) + documents_of("b", big=10, other=5)
    taken = heldout_groups(grouped, 0.1)
    assert "big" not in taken
    assert "other" in taken
    assert 50 <= sum(small.get(group, 0) for group in taken) <= 70
    assert heldout_groups(documents_of("a", only=100), 0.1) == set()
