"""Tables of plain text, for standard output."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Columns beside each other; `right` sets all but the first to the right, as numbers are."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        aligned = (c.rjust(w) if right and i else c.ljust(w) for i, (c, w) in enumerate(cells))
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
