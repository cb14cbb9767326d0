"""Known mistakes in exported models."""

from mutations.mutation import Mutation

EXPORTS = (
    Mutation(
        "experts side by side in a Llama lose their gates",
        "export/converters.py",
        'part["down_proj"] * float(gates_E[i])',
        'part["down_proj"]',
        "tests/export/test_merged.py",
    ),
    Mutation(
        "a GGUF file keeps the order of rotary dimensions",
        "export/gguf_file.py",
        "if architecture.interleaved and part in heads:",
        "if not architecture.interleaved and part in heads:",
        "tests/export/test_gguf.py",
    ),
    Mutation(
        "gates that are not renormalised count as those that are",
        "export/converters.py",
        "everyone = k == num_experts and",
        "everyone = k <= num_experts and",
        "tests/export/test_served.py",
    ),
    Mutation(
        "an export of another tokenizer is called current",
        "export/export.py",
        ", *TOKENIZER_FILES",
        "",
        "tests/export/test_export.py -k same_export",
    ),
    Mutation(
        "a model is compared at other rotary factors than its prompt had",
        "export/probe.py",
        "else min(longest, original)",
        "else longest",
        "tests/export/test_merged.py -k original_length",
    ),
)
