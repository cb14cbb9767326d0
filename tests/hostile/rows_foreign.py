"""`convert --from` on data sets of other programs."""

import pyarrow as pa

from hostile.files import flipped, parquet, write
from hostile.runner import Row

TABLE = "convert t.parquet --from hf --tokenizer corpus/tokenizer --length 8 --out back"
IDS = parquet(pa.table({"input_ids": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] * 20}))
ROWS = [
    Row("convert a table flipped", TABLE, r"loriini: .*", write("t.parquet", flipped(IDS, 3, 60))),
    Row(
        "convert with a length of 0",
        TABLE.replace("--length 8", "--length 0"),
        "length is 0; it must be at least 1",
        write("t.parquet", IDS),
    ),
]
