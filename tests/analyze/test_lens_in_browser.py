"""The lens in a headless browser: used by keyboard, on a phone."""

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from lenses import HOSTILE, PAIRS, Parts, saved
from loriini.analyze.lens import write_lens
from runs import byte_tokenizer

CHROMIUM = which("chromium") or which("google-chrome") or which("chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=5000"
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

DRIVER = """
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const page = frame.contentDocument;
  const result = {};
  const press = (key) => page.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const glosses = (i) => [...page.querySelectorAll(`#t${i} .g`)].map((g) => g.textContent);
  result.width = page.documentElement.scrollWidth;
  result.stops = page.querySelectorAll("#tokens [tabindex='0']").length;
  result.glosses = glosses(0);
  const units = [...page.querySelectorAll(".unit[data-unit]")];
  const parts = (bar) => [...bar.querySelectorAll("i")].map((part) => part.title);
  result.bars = units.map((unit) => [...unit.querySelectorAll(".bar")].map(parts));
  result.label = units[1]?.getAttribute("aria-label");
  page.getElementById("t0").focus();
  press("ArrowRight");
  result.second = [page.activeElement.id, page.activeElement.getAttribute("aria-label")];
  press("]");
  result.layer = glosses(1);
  press("End");
  result.last = page.activeElement.getAttribute("aria-label");
  page.querySelector("input[value=loss]").click();
  result.loss = glosses(1);
  result.details = page.getElementById("details").textContent;
  document.title = JSON.stringify(result);
});
"""


def in_browser(page: str, driver: str, folder: Path) -> dict[str, Any]:
    """What a script finds on the page, which is shown 400 pixels wide."""
    frame = page.replace("&", "&amp;").replace('"', "&quot;")
    (folder / "phone.html").write_text(
        f'<iframe style="width: 400px; height: 800px; border: 0" srcdoc="{frame}"></iframe>'
        f"<script>{driver}</script>"
    )
    command = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    ended = subprocess.run(
        [*command, (folder / "phone.html").as_uri()],
        capture_output=True,
        timeout=240,
        env={**os.environ, "HOME": str(folder)},
        check=True,
    )
    title = re.search(r"<title>(\{.*?\})</title>", ended.stdout.decode())
    assert title, ended.stdout.decode()[:2000]
    found: dict[str, Any] = json.loads(unescape(title[1]))
    return found


def test_in_a_browser_tokens_are_reached_by_keyboard(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", byte_tokenizer(PAIRS), "mixtral")
    page = write_lens(run, HOSTILE, tmp_path / "lens.html").read_text()
    data, found = Parts(page).data, in_browser(page, DRIVER, tmp_path)
    assert found["width"] <= 400
    assert found["stops"] == 1
    best = [[str(e) for e, _ in sorted(layer[0], key=lambda pair: -pair[1])] for layer in data["weights"]]
    assert found["glosses"] == ["·".join(layer) for layer in best]
    name, label = found["second"]
    assert name == "t1"
    first, weight = max(data["weights"][0][1], key=lambda pair: pair[1])
    assert f"layer 0: experts {first}: {weight:.3f}" in label
    assert f"loss {data['loss'][1]:.2f}" in label
    assert len(found["layer"]) == 1
    assert "⟨end⟩" in found["last"]
    assert "not routed" in found["last"]
    assert found["loss"] == [f"{data['loss'][1]:.1f}"]
    assert "⟨end⟩" in found["details"]


def test_in_a_browser_segments_have_bars_of_their_weights(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", byte_tokenizer(PAIRS))
    page = write_lens(run, "0123456789" * 3, tmp_path / "lens.html").read_text()
    data, found = Parts(page).data, in_browser(page, DRIVER, tmp_path)
    assert found["width"] <= 400
    assert len(found["bars"]) == len(data["weights"][0])
    titles = [[f"expert {expert}: {weight:.3f}" for expert, weight in layer[1]] for layer in data["weights"]]
    assert found["bars"][1] == titles
    assert found["glosses"] == []
    assert re.match(r"segment 2; layer 0: experts \d: 0\.\d{3}, ", found["label"])
