"use strict";
// The file of a run: viser's player, with our words and plots beside it. Its slider and the plots show one moment.
addEventListener("DOMContentLoaded", () => {
  const { words, colours, points: columns, plots: sensorPlots, fields } = window.MICROSIM_RUN;
  const make = (tag, attributes = {}, ...inside) => { const node = document.createElement(tag); for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value); node.append(...inside); return node; };
  const points = columns.t.map((t, index) => { // from columns, which are smaller, to moments
    const point = { t };
    for (const [kind, lines] of Object.entries(columns)) if (kind !== "t") point[kind] = Object.fromEntries(Object.entries(lines).map(([name, values]) => [name, values[index]]));
    return point;
  });
  const end = points.length ? points[points.length - 1].t : 1, colourOf = (name) => colours[name.split(" → ")[0]] || "#888";
  const [title, ...rest] = words, box = make("div", { id: "ms-plots" }), robots = make("p", { id: "ms-robots" });
  for (const [name, colour] of Object.entries(colours)) robots.append(make("span", {}, make("i", { class: "key-colour", style: `background:${colour}` }), name));
  const hide = make("button", { id: "ms-hide", title: "Hide or show the plots", "aria-expanded": "true" }, "Hide plots");
  const card = make("aside", { id: "ms-card", "aria-label": "Run" }, make("header", {}, make("b", {}, title), hide), ...rest.map((word) => make("p", {}, word)), robots, box);
  document.body.append(card); document.body.classList.add("ms-file");
  const field = () => document.querySelector("#root .mantine-NumberInput-input"), slider = () => document.querySelector("#root .mantine-Slider-thumb");
  const seek = (seconds) => { // as if it were typed into the player's own field of time
    const input = field(); if (!input) return;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, seconds.toFixed(2)); input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  let drawn = null;
  const plots = window.MicroSimPlots.create(box, colourOf, seek, () => { drawn = null; }), shown = [...sensorPlots];
  const chooser = make("select", { id: "ms-add-plot", "aria-label": "Add a plot", title: "Plot any number of any sensor's messages" });
  const choosePlots = () => { plots.choose(shown); window.MicroSimPlots.offer(chooser, fields, shown); drawn = null; };
  chooser.addEventListener("change", () => { shown.push(fields.flatMap((each) => each.plots).find((plot) => plot.kind === chooser.value)); choosePlots(); });
  card.append(chooser); choosePlots();
  const follow = () => {
    const thumb = slider(), now = thumb ? Number(thumb.getAttribute("aria-valuenow")) : 0;
    if (now !== drawn) { drawn = now; plots.draw({ points, start: 0, end, cursor: Math.min(now, end), chosen: "" }); card.dataset.at = String(now); }
    requestAnimationFrame(follow);
  };
  hide.addEventListener("click", () => { const shown = !document.body.classList.toggle("ms-bare"); hide.textContent = shown ? "Hide plots" : "Show plots"; hide.setAttribute("aria-expanded", String(shown)); drawn = null; dispatchEvent(new Event("resize")); });
  addEventListener("resize", () => { drawn = null; });
  follow();
});
