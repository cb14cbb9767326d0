"use strict";
(() => {
  const data = JSON.parse(document.getElementById("lens-data").textContent);
  const text = document.getElementById("tokens");
  const details = document.getElementById("details");
  const controls = document.getElementById("controls");
  const tokens = [...text.querySelectorAll(".t")];
  const words = tokens.map((token) => token.textContent);
  const units = [...text.querySelectorAll(".unit[data-unit]")];
  const layers = data.weights.length;
  const routesTokens = data.unitName === "token";
  const NUMBERED_LAYERS = 4; // more layers than this are drawn as thin bars without numbers
  let current = 0;
  let highlighted = null;

  const make = (name, content, className) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined) made.textContent = content;
    return made;
  };
  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);
  const byWeight = (pairs) => [...pairs].sort((a, b) => b[1] - a[1]);
  const gain = (i) => (data.dense && data.dense[i] !== null && data.loss[i] !== null ? data.dense[i] - data.loss[i] : null);
  const view = () => controls.elements.view.value;
  const shownLayers = () => {
    const layer = controls.elements.layer.value;
    return layer === "all" ? [...Array(layers).keys()] : [Number(layer)];
  };
  const pairsOf = (layer, unit) => (unit < 0 ? [] : data.weights[layer][unit]);
  const total = (pairs) => pairs.reduce((sum, [, weight]) => sum + weight, 0);

  // Weights as colours side by side, each as wide as its share.
  const stripes = (pairs) => {
    const sum = total(pairs);
    let reached = 0;
    const stops = pairs.map(([expert, weight]) => {
      const from = reached;
      reached += (100 * weight) / sum;
      return `var(--e${expert}) ${from.toFixed(2)}% ${reached.toFixed(2)}%`;
    });
    return `linear-gradient(90deg, ${stops.join(", ")})`;
  };
  // The expert's number and weight, or as much of them as there is room for.
  const labelled = (expert, weight, part, narrow) => {
    if (part < (narrow ? 0.09 : 0.04)) return "";
    return part < (narrow ? 0.2 : 0.12) ? `${expert}` : `${expert} · ${weight.toFixed(2)}`;
  };
  const bar = (layer, pairs) => {
    const made = make("div", undefined, "bar");
    if (layer !== null) made.append(make("b", `layer ${layer}`));
    for (const [expert, weight] of pairs) {
      const part = make("i", labelled(expert, weight, weight / total(pairs), layer === null));
      part.title = `expert ${expert}: ${weight.toFixed(3)}`;
      part.style.setProperty("--c", `var(--e${expert})`);
      part.style.flexGrow = weight;
      made.append(part);
    }
    if (!pairs.length) made.append(make("span", "no expert"));
    return made;
  };
  const gloss = (content, background, className = "") => {
    const made = make("span", content, `g ${className}`);
    made.setAttribute("aria-hidden", "true");
    if (background) made.style.background = background;
    return made;
  };
  const share = (colour, part) => `color-mix(in oklab, var(${colour}) ${Math.round(100 * Math.min(1, part))}%, transparent)`;

  const glossesOf = (i, numbers) => {
    if (view() === "loss") {
      const loss = data.loss[i];
      if (loss === null) return [gloss("", null, "none")];
      return [gloss(numbers ? loss.toFixed(1) : "", share("--hard", loss / 10), numbers ? "" : "thin")];
    }
    if (view() === "gain") {
      const g = gain(i);
      if (g === null) return [gloss("", null, "none")];
      const colour = share(g > 0 ? "--better" : "--worse", Math.abs(g) / 2);
      return [gloss(numbers ? signed(g).slice(0, -1) : "", colour, numbers ? "" : "thin")];
    }
    if (!routesTokens) return [];
    const chosen = shownLayers();
    const named = numbers && chosen.length <= NUMBERED_LAYERS;
    return chosen.map((layer) => {
      const pairs = byWeight(pairsOf(layer, data.unit[i]));
      if (!pairs.length) return gloss("", null, named ? "none" : "none thin");
      const first = pairs.slice(0, 2).map(([expert]) => expert);
      const name = first.join("·") + (pairs.length > 2 ? "…" : "");
      return gloss(named ? name : "", stripes(pairs), named ? "" : "thin");
    });
  };

  // Beside a segment: in each layer shown, the expert of the largest weight.
  const spine = (unit) => {
    const most = shownLayers().flatMap((layer) => byWeight(pairsOf(layer, unit)).slice(0, 1));
    const stops = most.map(([e], i) => `var(--e${e}) ${(100 * i) / most.length}% ${(100 * (i + 1)) / most.length}%`);
    return stops.length ? `linear-gradient(${stops.join(", ")})` : "none";
  };

  const taken = (i) => {
    if (highlighted === null) return true;
    return shownLayers().some((layer) => {
      const pairs = pairsOf(layer, data.unit[i]);
      const found = pairs.find(([expert]) => expert === highlighted);
      return found && (pairs.length < data.experts || found[1] > total(pairs) / data.experts);
    });
  };

  const draw = () => {
    const numbers = document.getElementById("numbers").checked;
    tokens.forEach((token, i) => {
      token.replaceChildren(words[i], ...glossesOf(i, numbers));
      token.classList.toggle("dim", !taken(i));
    });
    for (const unit of units) {
      unit.querySelector(".bars")?.remove();
      unit.style.removeProperty("--spine");
      if (view() !== "experts") continue;
      unit.style.setProperty("--spine", spine(Number(unit.dataset.unit)));
      const bars = make("div", undefined, "bars");
      bars.setAttribute("aria-hidden", "true");
      bars.append(...shownLayers().map((layer) => bar(layer, pairsOf(layer, Number(unit.dataset.unit)))));
      unit.prepend(bars);
    }
    drawKey();
  };

  const drawKey = () => {
    const sums = Array(data.experts).fill(0);
    for (const layer of shownLayers()) for (const pairs of data.weights[layer]) for (const [e, w] of pairs) sums[e] += w;
    const all = sums.reduce((a, b) => a + b, 0) || 1;
    for (const chip of document.querySelectorAll(".chip")) {
      const expert = Number(chip.dataset.expert);
      const percent = `${Math.round((100 * sums[expert]) / all)} %`;
      chip.replaceChildren(`${expert}`, make("small", percent));
      chip.setAttribute("aria-label", `expert ${expert}, ${percent} of the weight`);
      chip.setAttribute("aria-pressed", String(highlighted === expert));
    }
    document.getElementById("key").hidden = view() !== "experts";
    document.getElementById("scale").textContent = {
      experts: "Number and colour are the expert, the width of a colour is its weight; per cent: its share of all weight in the layers shown.",
      loss: "Negative log-likelihood of each token in nats; strong colour: hard to predict (10 nats or more).",
      gain: "The dense model's loss minus the mixture's in nats: + and blue, the mixture is better; − and red, worse.",
    }[view()];
  };

  const weightsAsText = (pairs, most) => {
    if (!pairs.length) return "no expert";
    const ordered = byWeight(pairs);
    const named = ordered.slice(0, most).map(([expert, weight]) => `${expert}: ${weight.toFixed(3)}`);
    const rest = ordered.slice(most);
    return named.join(", ") + (rest.length ? `, ${rest.length} others ${total(rest).toFixed(3)}` : "");
  };
  const lossAsText = (i) => {
    if (data.loss[i] === null) return "not predicted";
    const p = Math.exp(-data.loss[i]);
    const own = `loss ${data.loss[i].toFixed(2)} (probability ${p < 0.001 ? p.toExponential(1) : p.toFixed(3)})`;
    return gain(i) === null ? own : `${own}; dense ${data.dense[i].toFixed(2)}, gain ${signed(gain(i))}`;
  };
  const place = (i) => {
    const unit = data.unit[i];
    if (unit < 0) return "not routed";
    return routesTokens ? "" : `${data.unitName} ${unit + 1}`;
  };
  const labelOf = (i) => {
    const routed = shownLayers().map((layer) => `layer ${layer}: experts ${weightsAsText(pairsOf(layer, data.unit[i]), 2)}`);
    return [`${words[i].trim() || "space"}, token ${i}`, place(i), lossAsText(i), ...(data.unit[i] < 0 ? [] : routed)].filter(Boolean).join("; ");
  };

  const show = (i) => {
    const list = make("dl");
    for (let layer = 0; data.unit[i] >= 0 && layer < layers; layer++) {
      const pairs = pairsOf(layer, data.unit[i]);
      const value = make("dd");
      value.append(bar(null, pairs), weightsAsText(pairs, 6));
      list.append(make("dt", `layer ${layer}`), value);
    }
    const where = [`token ${i}`, place(i)].filter(Boolean).join(", ");
    details.replaceChildren(make("h3", `“${words[i]}”`), make("p", where), make("p", lossAsText(i)), list);
  };

  const select = (i, focus = true) => {
    tokens[current].tabIndex = -1;
    tokens[current].setAttribute("aria-selected", "false");
    current = i;
    const token = tokens[i];
    token.tabIndex = 0;
    token.setAttribute("aria-selected", "true");
    token.setAttribute("aria-label", labelOf(i));
    if (focus) token.focus();
    show(i);
  };

  // The token nearest in the line above or below; where lines break depends on the screen.
  const vertical = (step) => {
    const { offsetTop: top, offsetLeft: left } = tokens[current];
    let best = current;
    let line = null;
    for (let i = current + step; i >= 0 && i < tokens.length; i += step) {
      if (tokens[i].offsetTop === top) continue;
      line ??= tokens[i].offsetTop;
      if (tokens[i].offsetTop !== line) break;
      if (best === current || Math.abs(tokens[i].offsetLeft - left) < Math.abs(tokens[best].offsetLeft - left)) best = i;
    }
    return best;
  };
  const nextUnit = (step) => {
    if (routesTokens) return vertical(step);
    let i = current;
    while (i + step >= 0 && i + step < tokens.length && data.unit[i] === data.unit[current]) i += step;
    return i;
  };
  const changeLayer = (step) => {
    const inputs = [...controls.querySelectorAll("input[name=layer]")];
    const at = inputs.findIndex((input) => input.checked);
    inputs[(at + step + inputs.length) % inputs.length].checked = true;
    draw();
    select(current);
  };
  const KEYS = {
    ArrowRight: () => select(Math.min(current + 1, tokens.length - 1)),
    ArrowLeft: () => select(Math.max(current - 1, 0)),
    ArrowDown: () => select(vertical(1)),
    ArrowUp: () => select(vertical(-1)),
    PageDown: () => select(nextUnit(1)),
    PageUp: () => select(nextUnit(-1)),
    Home: () => select(0),
    End: () => select(tokens.length - 1),
    "]": () => changeLayer(1),
    "[": () => changeLayer(-1),
  };

  const indexOf = (event) => {
    const token = event.target.closest(".t");
    return token === null ? -1 : Number(token.id.slice(1));
  };
  text.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  text.addEventListener("click", (event) => indexOf(event) >= 0 && select(indexOf(event)));
  text.addEventListener("mouseover", (event) => indexOf(event) >= 0 && show(indexOf(event)));
  text.addEventListener("mouseleave", () => show(current));
  controls.addEventListener("change", draw);
  controls.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("key").addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (chip === null) return;
    const expert = Number(chip.dataset.expert);
    highlighted = highlighted === expert ? null : expert;
    draw();
  });
  for (const link of document.querySelectorAll("a.found")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      select(Number(link.hash.slice(2)));
    });
  }
  units.forEach((unit) => {
    const number = Number(unit.dataset.unit);
    const routed = data.weights.map((of, layer) => `layer ${layer}: experts ${weightsAsText(of[number], 2)}`);
    unit.setAttribute("aria-label", `${data.unitName} ${number + 1}; ${routed.join("; ")}`);
  });
  draw();
  select(0, false);
})();
