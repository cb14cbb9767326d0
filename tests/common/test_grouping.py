"""Items by a key."""

from loriini.common.grouping import grouped


def test_items_and_keys_keep_their_order() -> None:
    words = ["two", "three", "six", "seven", "one", "four"]
    groups = grouped(words, len)
    assert groups == {3: ["two", "six", "one"], 5: ["three", "seven"], 4: ["four"]}
    assert list(groups) == [3, 5, 4]
    assert grouped([], len) == {}
