"""`convert --from` on data sets of other programs."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from hostile.files import flipped, parquet, write
from hostile.runner import Harm, Row

IMPORT = "convert {} --from FORM --tokenizer corpus/tokenizer --length 8 --out back"
TABLE = IMPORT.format("t.parquet").replace("FORM", "hf")
INDEX = IMPORT.format("m").replace("FORM", "megatron")
IDS = pa.table({"input_ids": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] * 20})
HEAD = struct.Struct("<9sQBQQ")


def megatron(
    head: tuple[bytes, int, int, int, int], lengths: list[int], bounds: list[int], data: int = 40
) -> Harm:
    """A Megatron data set of uint16 tokens with this index."""

    def harm(folder: Path) -> None:
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * 2 if lengths else np.zeros(0)
        parts = [HEAD.pack(*head), np.array(lengths, "<i4").tobytes(), starts.astype("<i8").tobytes()]
        (folder / "m.idx").write_bytes(b"".join([*parts, np.array(bounds, "<i8").tobytes()]))
        (folder / "m.bin").write_bytes(b"\1\0" * data)

    return harm


MAGIC = b"MMIDIDX\0\0"
TABLES = {
    "cut": parquet(IDS)[:-9],
    "flipped": flipped(parquet(IDS), 3, 60),
    "of text": parquet(pa.table({"text": ["a"]})),
    "of floats": parquet(pa.table({"input_ids": [[0.5, 1.5]]})),
    "of nulls inside": parquet(pa.table({"input_ids": pa.array([[None, 1]], pa.list_(pa.int32()))})),
    "of large ids": parquet(pa.table({"input_ids": [[2**40]]})),
    "of empty rows": parquet(pa.table({"input_ids": pa.array([[], []], pa.list_(pa.int32()))})),
}
ROWS = [
    *(
        Row(f"convert a table {name}", TABLE, r"loriini: .*", write("t.parquet", content))
        for name, content in TABLES.items()
    ),
    *(
        Row(f"convert an index {name}", INDEX, r"loriini: .*m\.(idx|bin): ", harm)
        for name, harm in {
            "of another program": megatron((b"OTHERXX\0\0", 1, 8, 1, 2), [4], [0, 1]),
            "of too many sequences": megatron((MAGIC, 1, 8, 2**62, 2), [4], [0, 1]),
            "of negative lengths": megatron((MAGIC, 1, 8, 2, 2), [-4, 4], [0, 2]),
            "of bounds outside": megatron((MAGIC, 1, 8, 1, 2), [4], [0, 7]),
            "of more tokens than there are": megatron((MAGIC, 1, 8, 1, 2), [400], [0, 1]),
            "that is empty": lambda folder: (folder / "m.idx").write_bytes(b"") and None,
        }.items()
    ),
    Row("convert an absent index", INDEX, "no such file"),
    Row("convert without a tokenizer", "convert t.parquet --from hf --out back", "needs --tokenizer"),
    Row("convert with a trained tokenizer", INDEX.replace("corpus/tokenizer", "bpe:300"), "path"),
    Row("convert to an existing folder", "convert corpus --to parquet --out corpus", "exists already"),
    Row(
        "convert with a length of 0",
        TABLE.replace("--length 8", "--length 0"),
        "length is 0; it must be at least 1",
        write("t.parquet", parquet(IDS)),
    ),
]
