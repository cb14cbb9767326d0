"""Numbers as text."""

from loriini.reporting.wording import amount, bounds, minus, percent


def test_changes_have_signs_and_amounts_none() -> None:
    assert [percent(-0.038), percent(0.2, 0), percent(-0.0004), percent(-0.0)] == [
        "−3.8 %",
        "+20 %",
        "−0.0 %",
        "+0.0 %",
    ]
    assert [amount(-0.038), amount(0.2, 0), amount(-0.0004)] == ["3.8 %", "20 %", "less than 0.05 %"]
    assert bounds(-0.05, 0.026) == "−5.0 to +2.6 %"
    assert bounds(-0.0004, 0.026) == "−0.0 to +2.6 %"
    assert (amount(0.0), bounds(-0.0, 0.0)) == ("0.0 %", "+0.0 to +0.0 %")
    assert minus("-0.031 (-0.050 to -0.012)") == "−0.031 (−0.050 to −0.012)"
