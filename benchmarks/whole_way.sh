#!/usr/bin/env bash
# From a small Llama to mixtures that other programs run: every command once, in a new folder.
# bash benchmarks/whole_way.sh FOLDER TASKS_DATA
# Needs the extras tasks and gguf. Six minutes on two cores. The last text is computed in float32, that of
# `generate` in bfloat16 where the hardware has it, so near ties may fall differently.
set -euo pipefail
mkdir -p "$1" && cd "$1"
tasks="$2"
say() { printf '\n== %s\n' "$*"; "$@" 2>>log; }

stdlib="$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
mkdir text && cp -r "$stdlib"/{asyncio,email,unittest} text/ && find text -name __pycache__ -prune -exec rm -r {} +
for domain in asyncio email unittest; do mkdir -p "heldout/$domain"; mv "text/$domain"/[p-s]*.py "heldout/$domain/"; done

say loriini prepare first --documents text --tokenizer bpe:1024 --length 256 --out corpora
say loriini train tiny-dense --corpus corpora/first --steps 200 --out runs/dense
say loriini export runs/dense --to llama --out llama

say loriini prepare second --documents text --tokenizer llama --length 256 --out corpora
say loriini train tiny-lory --init llama --corpus corpora/second --heldout heldout --steps 100 --out runs/lory
say loriini train tiny-mixtral --init llama --corpus corpora/second --heldout heldout --steps 100 --out runs/mixtral
say loriini compare dense lory mixtral --recipe tiny --corpus corpora/second --heldout heldout --seeds 2 --steps 100 --out compared
say loriini compare runs/dense runs/lory runs/mixtral --heldout heldout --out compared-runs
say loriini evaluate runs/dense runs/lory runs/mixtral --tasks copa arc_easy piqa --limit 50 --tasks-data "$tasks"
say loriini analyze runs/lory --documents heldout
say loriini lens runs/lory --text heldout/email/policy.py --dense runs/dense --out lens.html

prompt='async def '
say loriini export runs/lory --to hf --dtype bfloat16 --out out/hf
say loriini export runs/lory --to llama --prompt "$prompt" --out out/llama
say loriini export runs/mixtral --to mixtral --out out/mixtral
say loriini export runs/mixtral --to gguf --out out/gguf
say loriini generate runs/mixtral --prompt "$prompt" --max-new-tokens 24 --greedy

say python - <<'PYTHON'
"""transformers alone, and with the folder's own shim."""
import json, sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

for folder in ("out/llama", "out/mixtral", "out/hf"):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("async def ", return_tensors="pt")
    text = tokenizer.decode(model.generate(**ids, max_new_tokens=24, do_sample=False)[0])
    record = Path(folder, "export.json")
    difference = json.loads(record.read_text())["max_logit_difference"]
    print(f"{type(model).__name__}: {text!r}; largest difference of a logit {difference:.1e}; loriini imported: {'loriini' in sys.modules}")
PYTHON
