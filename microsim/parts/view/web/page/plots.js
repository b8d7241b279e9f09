"use strict";
// Small plots over time, for the page and for the file of a run: each robot in its own colour, one cursor through all.
// What is plotted of sensors comes from their declarations: {kind: "sensor:field", title, unit}.
window.MicroSimPlots = (() => {
  const FIRST = [{ kind: "height", title: "Height", unit: "m", digits: 1 }, { kind: "speed", title: "Speed", unit: "m/s", digits: 1 }];
  const LAST = [{ kind: "latency", title: "Radio latency", unit: "ms", digits: 0 }, { kind: "lost", title: "Packets lost", unit: "", digits: 0 }, { kind: "rssi", title: "Radio signal", unit: "dBm", digits: 0, span: 10 }];
  const GAP_S = 5; // without a point for so long, a line is not drawn on

  const make = (tag, className, text) => { const node = document.createElement(tag); node.className = className; if (text) node.textContent = text; return node; };
  const ticksOf = (low, high, most) => { // round numbers, at most so many steps
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
  };
  const digitsOf = (step) => Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  const firstAfter = (points, time) => { let low = 0, high = points.length; while (low < high) { const middle = (low + high) >> 1; if (points[middle].t < time) low = middle + 1; else high = middle; } return low; };

  // `box`: where they go; `colourOf(name)`: of a line; `onSeek(seconds)`: a place in a plot was clicked; `onZoom()`: another part of the time is shown
  const create = (box, colourOf, onSeek, onZoom = () => {}) => {
    let asked = { points: [], start: 0, end: 1, cursor: null, chosen: "" }, zoomed = null, pulled = null; // [start, end] in seconds: shown; being chosen
    let plots = {};
    const choose = (sensors) => { plots = {}; box.replaceChildren(...[...FIRST, ...sensors, ...LAST].map(plotOf)); }; // `sensors`: what is plotted of them
    const plotOf = ({ kind, title, unit, digits, span }) => {
      const node = make("div", "plot"), head = make("div", "name"), now = make("b", ""), canvas = document.createElement("canvas");
      node.style.display = "none"; head.append(make("span", "", unit ? `${title}, ${unit}` : title), now); node.append(head, canvas);
      canvas.setAttribute("role", "img"); canvas.dataset.plot = kind; canvas.title = `${title}: each robot in its own colour. Click to go to that moment, drag to zoom, double-click to zoom out.`;
      canvas.addEventListener("pointerdown", (event) => { try { canvas.setPointerCapture(event.pointerId); } catch { /* not a real pointer */ } pulled = { from: at(event, canvas), to: at(event, canvas), x: event.clientX, isLong: false }; });
      canvas.addEventListener("pointermove", (event) => { if (!pulled) return; pulled.to = at(event, canvas); pulled.isLong = pulled.isLong || Math.abs(event.clientX - pulled.x) > 6; draw(); });
      canvas.addEventListener("pointerup", () => { const done = pulled; pulled = null; if (!done) return; if (done.isLong) zoom([Math.min(done.from, done.to), Math.max(done.from, done.to)]); else onSeek(done.from); });
      canvas.addEventListener("pointercancel", () => { pulled = null; draw(); }); canvas.addEventListener("dblclick", () => zoom(null));
      plots[kind] = { node, canvas, now, title, unit, digits, span, isSensor: kind.includes(":") };
      return node;
    };
    const em = (node) => parseFloat(getComputedStyle(node).fontSize), left = (canvas) => 2.7 * em(canvas);
    const at = (event, canvas) => { // the time there
      const side = left(canvas), share = (event.clientX - canvas.getBoundingClientRect().left - side) / (canvas.clientWidth - side - 3), [start, end] = zoomed || [asked.start, asked.end];
      return start + Math.max(0, Math.min(1, share)) * (end - start);
    };
    const zoom = (span) => { zoomed = span && span[1] - span[0] > 0.05 ? span : null; onZoom(); draw(); };
    const said = (plot, names, values) => { // beside the title: all values of few lines, else that of the chosen robot
      const own = names.filter((name) => name.split(" → ")[0] === asked.chosen), shown = names.length <= 2 ? names : own.slice(0, 1);
      plot.now.replaceChildren(...shown.flatMap((name) => {
        const dot = make("i", "key-colour"); dot.style.background = colourOf(name); dot.title = name;
        const value = values[name]; return [dot, value === null || value === undefined ? "– " : `${plot.digits === undefined ? Number(value.toPrecision(plot.unit.startsWith("deg") ? 8 : 4)) : value.toFixed(plot.digits)} `];
      }));
      plot.canvas.setAttribute("aria-label", `${plot.title}: ${names.map((name) => `${name} ${values[name] ?? "nothing"} ${plot.unit}`).slice(0, 6).join(", ")}`);
    };
    const drawOne = (kind, plot) => {
      const { points, cursor } = asked, [start, end] = zoomed || [asked.start, asked.end], from = Math.max(0, firstAfter(points, start) - 1), to = Math.min(points.length, firstAfter(points, end + 1e-6) + 1);
      const seen = points.slice(from, to).filter((point) => point[kind]);
      const names = [...new Set(seen.flatMap((point) => Object.keys(point[kind]).filter((name) => point[kind][name] !== null && point[kind][name] !== undefined)))];
      plot.node.style.display = names.length ? "" : "none"; if (!names.length) return;
      const canvas = plot.canvas, ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight; if (!width) return;
      const size = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
      const pen = canvas.getContext("2d"), look = getComputedStyle(document.documentElement), unit = em(canvas), side = left(canvas);
      const ink = (name) => look.getPropertyValue(name).trim();
      pen.setTransform(ratio, 0, 0, ratio, 0, 0); pen.clearRect(0, 0, width, height);
      let low = Infinity, high = -Infinity;
      for (const point of seen) for (const name of names) { const value = point[kind][name]; if (value !== null && value !== undefined) { low = Math.min(low, value); high = Math.max(high, value); } }
      if (plot.span) { if (high - low < plot.span) { low -= 0.5 * plot.span; high += 0.5 * plot.span; } }
      else if (!plot.isSensor || (low >= 0 && low < 0.7 * high)) { low = Math.min(low, 0); high = Math.max(high, low + (plot.isSensor ? 1e-6 : 1)); }
      else if (high - low < 1e-3 * Math.abs(high) + 1e-6) { const pad = 1e-3 * Math.abs(high) + 1e-6; low -= pad; high += pad; }
      const ticks = ticksOf(low, high, 3), [scale, letter] = Math.max(-low, high) >= 1e4 ? [1e-3, "k"] : [1, ""], digits = digitsOf(scale * (ticks[1] - ticks[0])); [low, high] = [ticks[0], ticks[ticks.length - 1]];
      const u = (time) => side + (time - start) / (end - start) * (width - side - 3), v = (value) => height - 1.5 * unit - (value - low) / (high - low) * (height - 2.1 * unit);
      pen.font = `${Math.max(12, 0.86 * unit)}px system-ui, sans-serif`; pen.lineWidth = 1; pen.textBaseline = "middle"; pen.textAlign = "right";
      for (const value of ticks) { pen.strokeStyle = ink("--line"); pen.beginPath(); pen.moveTo(side, v(value)); pen.lineTo(width - 3, v(value)); pen.stroke(); pen.fillStyle = ink("--dim"); pen.fillText((scale * value).toFixed(digits) + letter, side - 5, v(value)); }
      pen.textBaseline = "alphabetic"; pen.textAlign = "left"; pen.fillText(`${start.toFixed(end - start < 8 ? 1 : 0)} s`, side, height - 1); pen.textAlign = "right"; pen.fillText(`${end.toFixed(end - start < 8 ? 1 : 0)} s`, width - 3, height - 1);
      if (pulled && pulled.isLong) { pen.fillStyle = ink("--accent"); pen.globalAlpha = 0.18; pen.fillRect(u(Math.min(pulled.from, pulled.to)), 0, Math.abs(u(pulled.to) - u(pulled.from)), height - 1.4 * unit); pen.globalAlpha = 1; }
      pen.save(); pen.beginPath(); pen.rect(side, 0, width - side, height); pen.clip();
      const order = [...names].sort((a, b) => (a.split(" → ")[0] === asked.chosen) - (b.split(" → ")[0] === asked.chosen)), many = names.length > 4;
      for (const name of order) {
        pen.strokeStyle = colourOf(name); pen.lineJoin = "round"; pen.lineWidth = many && name.split(" → ")[0] === asked.chosen ? 2.4 : 1.6; pen.globalAlpha = many && name.split(" → ")[0] !== asked.chosen ? 0.55 : 1; pen.beginPath();
        let before = null;
        for (const point of seen) {
          const value = point[kind][name]; if (value === null || value === undefined) { before = null; continue; }
          if (before === null || point.t - before > GAP_S) { pen.moveTo(u(point.t) - 0.5, v(value)); pen.lineTo(u(point.t), v(value)); } else pen.lineTo(u(point.t), v(value));
          before = point.t;
        }
        pen.stroke();
      }
      pen.restore(); pen.globalAlpha = 1;
      if (cursor !== null && cursor >= start && cursor <= end) { pen.strokeStyle = ink("--ink"); pen.lineWidth = 1; pen.beginPath(); pen.moveTo(u(cursor), 0.3 * unit); pen.lineTo(u(cursor), height - 1.4 * unit); pen.stroke(); }
      const at = points[Math.max(0, Math.min(points.length, firstAfter(points, (cursor ?? end) + 1e-6)) - 1)];
      said(plot, names, (at && at[kind]) || {});
    };
    const draw = (change = {}) => { asked = { ...asked, ...change }; if (asked.end <= asked.start) asked.end = asked.start + 1; if (document.hidden) return; for (const [kind, plot] of Object.entries(plots)) drawOne(kind, plot); };
    choose([]);
    return { draw, choose, zoom, zoomed: () => zoomed, shown: () => Object.keys(plots).filter((kind) => plots[kind].node.style.display !== "none"), asked: () => asked };
  };
  // Fills a list with the numbers that are not plotted yet, by sensor; those of one sensor on several robots are one plot.
  const offer = (chooser, fields, plotted) => {
    const known = new Set(plotted.map((each) => each.kind)), groups = new Map(), option = (value, words) => { const node = document.createElement("option"); node.value = value; node.textContent = words; return node; };
    for (const each of fields) for (const plot of each.plots) { if (known.has(plot.kind)) continue; const name = plot.kind.split(":")[0]; if (!groups.has(name)) groups.set(name, { topics: new Set(), plots: new Map() }); groups.get(name).topics.add(each.topic); groups.get(name).plots.set(plot.kind, plot); }
    chooser.hidden = !groups.size;
    chooser.replaceChildren(option("", "Add a plot…"), ...[...groups].map(([name, { topics, plots }]) => { const group = document.createElement("optgroup"); group.label = [...topics].slice(0, 2).join(", ") + (topics.size > 2 ? ", …" : ""); group.append(...[...plots.values()].map((plot) => option(plot.kind, plot.kind.slice(name.length + 1) + (plot.unit ? ` [${plot.unit}]` : "")))); return group; }));
  };
  return { create, offer };
})();
