"""Known mistakes in what other people's files and full disks can do."""

from mutations.mutation import Mutation

HOSTILE = (
    Mutation(
        "code in an encoder's folder runs",
        "data/prepare/similarity/encoders.py",
        "folder, dtype=dtype, trust_remote_code=False, use_safetensors=True",
        "folder, dtype=dtype, trust_remote_code=True, use_safetensors=True",
    ),
    Mutation(
        "code in a tokenizer's folder runs",
        "model/weights/loading.py",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=False)",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=True)",
        "tests/hostile/test_hostile.py -k 'tokenizer and code'",
    ),
    Mutation(
        "weights that are NaN are loaded",
        "common/weights.py",
        "if weight.numel() and not all(",
        "if False and not all(",
        "tests/hostile/test_hostile.py -k NaN",
    ),
    Mutation(
        "a full disk raises what no command expects",
        "train/checkpoints/storage.py",
        "            raise cause from error\n",
        "            raise\n",
        "tests/hostile/test_hostile.py -k full_disk",
    ),
)
