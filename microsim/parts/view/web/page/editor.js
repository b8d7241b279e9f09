"use strict";
// The editor of a world: a map to draw on, viser's scene beside it, one websocket to the program that checks and saves. No library, no build.
(() => {
  const asked = new URLSearchParams(location.search), config = window.MICROSIM || {};
  const RETRY_MS = 1500, CHECK_MS = 120, NEAR_PX = 11, STILL_PX = 4;
  const icon = (path) => `<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round">${path}</svg>`;
  const TOOLS = { // word, colour, tooltip, picture
    drivable: ["Drivable", "#22b866", "Draw and correct where a car may drive", '<path d="M5 18L8 5l11 3-2 11z"/><circle cx="5" cy="18" r="1.6" fill="currentColor"/><circle cx="8" cy="5" r="1.6" fill="currentColor"/><circle cx="19" cy="8" r="1.6" fill="currentColor"/><circle cx="17" cy="19" r="1.6" fill="currentColor"/>'],
    start: ["Start", "#ff961e", "Set where the car starts, and its heading", '<circle cx="8" cy="16" r="3"/><path d="M10.5 13.5L19 5M13 5h6v6"/>'],
    scale: ["Scale", "#eb46be", "Scale the world: two points and the metres between them", '<path d="M4 15l11-11 5 5L9 20z"/><path d="M8 11l2 2M11 8l2 2M14 5l1.5 1.5"/>'],
    level: ["Level", "#1eb4c8", "Level the world: three points on level ground", '<path d="M3 17h18M12 4v6M9 8l3 3 3-3"/><path d="M6 17l6-4 6 4"/>'],
    crop: ["Crop", "#eb463c", "Keep what is inside a box", '<path d="M7 3v14h14M3 7h14v14"/>'],
    objects: ["Objects", "#966eff", "Give names to things", '<path d="M4 8l8-4 8 4v8l-8 4-8-4z"/><path d="M4 8l8 4 8-4M12 12v8"/>'],
  };
  const HOW = {
    drivable: ["Click a polygon to select it.", "Drag a point to move it, a small dot between two points to add one; zoom in to see all points.", "Right-click a point (or press Delete) to remove it."],
    start: ["Press where the middle of the rear axle is, and drag in the direction of travel.", "Drag the ring to move the car, the tip to turn it."],
    scale: ["Click one end of a length you know, on the map or in 3-D.", "Click its other end.", "Enter the length."],
    level: ["Click a point on level ground.", "Click a second one, far away.", "Click a third one, beside the line of the others."],
    crop: ["Drag a box around what is to stay.", "Drag its corners to correct it."],
    objects: ["Drag a box around a thing, as seen from above.", "Enter its name. Drag the corners, the middle or the ring to correct the box."],
  };

  let socket = null, world = null, items = null, tool = "drivable", chosen = null, hot = null, draft = null, view = asked.has("map") || innerWidth < 900 ? "map" : "both", picture = null, problems = [], sent = null, command = "", yaml = "", state = "wait", checkDue = null, pickId = 0;
  const past = [], future = [], picks = new Map(), map = { x: 0, y: 0, ppm: 5, width: 1, height: 1 };

  // ---- small things ---------------------------------------------------------------------------------------------------
  const make = (tag, attributes = {}, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...inside.filter((each) => each !== null));
    return node;
  };
  const $ = (id) => document.getElementById(id);
  const put = (id, words) => { if ($(id).textContent !== words) $(id).textContent = words; };
  const section = (id, title, ...inside) => make("section", { id, "aria-label": title }, make("h2", {}, title), ...inside);
  const send = (kind, value = null) => { if (socket && socket.readyState === 1) socket.send(JSON.stringify({ kind, value })); };
  const mm = (value) => Math.round(value * 1000) / 1000, copy = (value) => JSON.parse(JSON.stringify(value));
  const distance = (a, b) => Math.hypot(...a.map((each, index) => each - b[index]));
  const pick = (value) => new Promise((resolve) => { pickId += 1; picks.set(pickId, resolve); send("pick", { ...value, id: pickId }); });
  const copied = (button, words) => { const done = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "Copy"; }, 1500); }; (navigator.clipboard ? navigator.clipboard.writeText(words) : Promise.reject(new Error())).then(() => done("Copied"), () => done("Select it by hand")); };

  // ---- light and dark -------------------------------------------------------------------------------------------------
  const kept = { get: () => { try { return localStorage.getItem("microsim-theme"); } catch { return null; } }, set: (word) => { try { localStorage.setItem("microsim-theme", word); } catch { /* a private window */ } } };
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const setTheme = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; send("theme", dark); draw(); };
  document.documentElement.dataset.theme = (asked.has("dark") || asked.has("light") ? asked.has("dark") : kept.get() ? kept.get() === "dark" : config.dark ?? matchMedia("(prefers-color-scheme: dark)").matches) ? "dark" : "light";

  // ---- edits ----------------------------------------------------------------------------------------------------------
  const unedited = () => ({
    drivable: world.polygons.map((each, polygon) => ({ polygon, rings: each.rings, priority: each.priority })), start: null, scale: { points: [], length_m: null }, level: [], crop: null,
    objects: world.objects.map((each, object) => ({ object, name: each.name, center: each.center, size: each.size, yaw: each.yaw })),
  });
  const restored = (edits) => { // from what the program kept
    const found = copy(unedited());
    for (const each of edits.drivable || []) {
      const rings = each.remove ? [] : [each.outer, ...(each.holes || [])];
      if (each.polygon === undefined) found.drivable.push({ polygon: null, rings, changed: true });
      else Object.assign(found.drivable[each.polygon] || {}, each.remove ? { removed: true } : { rings, changed: true });
    }
    for (const each of edits.objects || []) {
      if (each.object === undefined) found.objects.push({ ...each, object: null, yaw: each.yaw || 0, changed: true });
      else Object.assign(found.objects[each.object] || {}, each.remove ? { removed: true } : { ...each, changed: true });
    }
    for (const key of ["start", "scale", "level", "crop"]) if (edits[key]) found[key] = copy(edits[key]);
    if (found.start) found.start.yaw = found.start.yaw || 0;
    return found;
  };
  const isTouched = (each, key) => (each[key] === null ? !each.removed : each.changed || each.removed);
  const toEdits = () => {
    const edits = {}; sent = { drivable: [], objects: [] };
    const list = (key, number, whole) => {
      const found = items[key].flatMap((each, index) => { if (!isTouched(each, number)) return []; sent[key].push(index); return [each.removed ? { [number]: each[number], remove: true } : { ...(each[number] === null ? {} : { [number]: each[number] }), ...whole(each) }]; });
      if (found.length) edits[key] = found;
    };
    if (items.scale.points.length === 2 && items.scale.length_m !== null) edits.scale = items.scale;
    if (items.level.length === 3) edits.level = items.level;
    if (items.crop) { const { x, y, z, keep_background } = items.crop; edits.crop = { x, y, ...(z && z[0] !== null && z[1] !== null ? { z } : {}), keep_background }; }
    list("drivable", "polygon", (each) => ({ outer: each.rings[0], ...(each.rings.length > 1 ? { holes: each.rings.slice(1) } : {}) }));
    if (items.start) edits.start = items.start;
    list("objects", "object", ({ name, center, size, yaw, cut_out }) => ({ name, center, size, yaw, ...(cut_out ? { cut_out } : {}) }));
    return edits;
  };
  const isEmpty = () => Object.keys(toEdits()).length === 0;
  const commit = () => { const now = JSON.stringify(items); if (past.at(-1) === now) return; past.push(now); if (past.length > 200) past.shift(); future.length = 0; changed(); };
  const changed = () => { state = isEmpty() ? "none" : "edited"; clearTimeout(checkDue); checkDue = setTimeout(() => send("edits", toEdits()), CHECK_MS); panel(); draw(); };
  const restore = (text) => { items = JSON.parse(text); draft = hot = null; if (chosen !== null && (!items[tool] || !items[tool][chosen] || items[tool][chosen].removed)) chosen = null; changed(); };
  const undo = () => { if (draft) { draft.ring.pop(); if (!draft.ring.length) draft = null; panel(); draw(); } else if (past.length > 1) { future.push(past.pop()); restore(past.at(-1)); } };
  const redo = () => { if (future.length) { past.push(future.pop()); restore(past.at(-1)); } };
  const start = () => items.start || world.start;

  // ---- the panels -----------------------------------------------------------------------------------------------------
  const logo = icon('<circle cx="5" cy="6" r="2.6"/><circle cx="19" cy="6" r="2.6"/><path d="M7 8l3 3.2M17 8l-3 3.2"/><rect x="9" y="10.5" width="6" height="4.4" rx="1.4"/><path d="M4 20.5h16"/>');
  const build = () => {
    const brand = make("div", { class: "brand", title: "MicroSim" }); brand.innerHTML = `${logo}<span>MicroSim</span>`;
    const views = [["map", "Map", "Only the map"], ["both", "Both", "The map and the scene"], ["scene", "3-D", "Only the scene"]];
    const bar = make("header", { id: "ms-bar" }, brand, make("span", { id: "ms-world", class: "world", "data-testid": "world" }, "…"), make("span", { id: "ms-pill", class: "pill wait", role: "status", "data-testid": "status" }, "Connecting"), make("div", { class: "space" }),
      make("button", { id: "ms-undo", title: "Undo (Ctrl+Z)", "aria-label": "Undo", onclick: undo }, "↶"), make("button", { id: "ms-redo", title: "Redo (Ctrl+Y)", "aria-label": "Redo", onclick: redo }, "↷"),
      make("div", { class: "group", role: "group", "aria-label": "View" }, ...views.map(([mode, word, tip]) => make("button", { "data-view": mode, title: tip, onclick: () => { view = mode; fit(); } }, word))),
      make("button", { id: "ms-theme", class: "icon", title: "Light or dark", "aria-label": "Light or dark", onclick: () => { kept.set(isDark() ? "light" : "dark"); setTheme(!isDark()); } }, "◐"),
      make("button", { id: "ms-save", class: "main", title: "Write the edited world", onclick: save }, "Save"));
    const tools = make("div", { class: "tools", role: "group", "aria-label": "Tools" }, ...Object.entries(TOOLS).map(([name, [word, colour, tip, path]]) => { const button = make("button", { "data-tool": name, title: tip, style: `--hue:${colour}`, onclick: () => choose(name) }); button.innerHTML = `${icon(path)}<span>${word}</span>`; return button; }));
    const left = make("aside", { id: "ms-left", class: "column", "aria-label": "Edit" }, section("ms-tools", "Edit", tools), make("section", { id: "ms-how" }), section("ms-list", "Your edits", make("ul", { id: "ms-edits", class: "edits", "data-testid": "edits" }), make("p", { id: "ms-none", class: "empty" }, "Nothing is changed yet. The world stays as it is until you save."), make("div", { id: "ms-problems", "data-testid": "problems" })),
      section("ms-again", "The same without a browser", make("pre", { id: "ms-command", "data-testid": "command" }, "…"), make("div", { class: "row" }, make("button", { id: "ms-copy", title: "Copy the command", onclick: (event) => copied(event.target, command) }, "Copy")), make("details", {}, make("summary", {}, "The file of edits"), make("pre", { id: "ms-yaml", "data-testid": "yaml" }, ""))));
    const canvas = make("canvas", { id: "ms-map", tabindex: 0, role: "img", "aria-label": "Map of the world, north is up", "data-testid": "map" });
    const layers = make("div", { id: "ms-side", class: "side" }, ...[["splats", "Splats", true], ["mesh", "Mesh", false]].map(([name, word, shown]) => make("button", { "data-layer": name, class: shown ? "on" : "", title: `Show the ${word.toLowerCase()} in 3-D`, onclick: (event) => { event.target.classList.toggle("on"); send("layer", [name, event.target.classList.contains("on")]); } }, word)));
    document.body.append(make("div", { id: "ms", class: "editor" }, bar, left, canvas, make("div", { id: "ms-divide" }), make("div", { id: "ms-tip", role: "status", "data-testid": "tip", hidden: true }), make("div", { id: "ms-where" }), layers,
      make("div", { id: "ms-done", role: "dialog", "aria-label": "Saved", hidden: true }), make("div", { id: "ms-veil", role: "status" }, make("b", { id: "ms-veil-title" }, "Opening the world…"), make("span", { id: "ms-veil-text" }, ""))));
    document.body.classList.add("ms-ready");
    listen(canvas); listenScene($("root")); fit(); connect();
  };
  const choose = (name) => { tool = name; chosen = hot = draft = null; panel(); draw(); };
  const wrongAt = (...paths) => problems.filter((each) => paths.some((path) => each.path === path || each.path.startsWith(`${path}.`) || each.path.startsWith(`${path}[`))).map((each) => make("p", { class: "wrong" }, each.text));
  const number = (label, value, tip, set) => make("label", { title: tip }, label, make("input", { type: "text", inputmode: "decimal", autocomplete: "off", value: value ?? "", "aria-label": label, onchange: (event) => { const found = Number(event.target.value.replace(",", ".")); set(event.target.value.trim() === "" || !Number.isFinite(found) ? null : found); } }));
  const FIELDS = {
    drivable: () => [
      make("button", { id: "ms-new", class: draft && !draft.hole ? "on" : "", title: "Draw another polygon, point by point", onclick: () => { draft = { ring: [], hole: null }; chosen = null; panel(); draw(); } }, "New polygon"),
      make("button", { id: "ms-hole", disabled: chosen === null, class: draft && draft.hole !== null ? "on" : "", title: "Draw a hole in the selected polygon", onclick: () => { draft = { ring: [], hole: chosen }; panel(); draw(); } }, "New hole"),
      make("button", { id: "ms-remove", disabled: chosen === null, title: "Remove the selected polygon", onclick: () => remove() }, "Remove")],
    start: () => { const now = start(); return now ? [["x", "x [m]"], ["y", "y [m]"]].map(([key, label]) => number(label, mm(now[key]), "In the map frame", (value) => { if (value !== null) { items.start = { ...now, [key]: value }; commit(); } })).concat(number("heading [°]", Math.round(now.yaw * 1800 / Math.PI) / 10, "From east, counter-clockwise", (value) => { if (value !== null) { items.start = { ...now, yaw: value * Math.PI / 180 }; commit(); } })) : []; },
    scale: () => { const [a, b] = items.scale.points, now = b ? distance(a, b) : null; return [b ? make("span", {}, `Now ${now.toFixed(3)} m`) : null, b ? number("is really [m]", items.scale.length_m, "The true length", (value) => { items.scale.length_m = value; commit(); }) : null, b && items.scale.length_m > 0 ? make("b", {}, `× ${(items.scale.length_m / now).toFixed(4)}`) : null].filter((each) => each !== null); },
    level: () => { if (items.level.length < 3) return []; const [a, b, c] = items.level, u = b.map((each, k) => each - a[k]), v = c.map((each, k) => each - a[k]), n = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]; return [make("span", {}, `The ground there is tilted by ${(Math.acos(Math.abs(n[2]) / (Math.hypot(...n) || 1)) * 180 / Math.PI).toFixed(2)}°; it becomes level.`)]; },
    crop: () => { if (!items.crop) return []; const box = items.crop, half = box.z || [null, null], setZ = (index) => (value) => { const next = [...half]; next[index] = value; box.z = next; commit(); };
      return [number("from height [m]", half[0], "Leave both empty for any height", setZ(0)), number("to [m]", half[1], "Leave both empty for any height", setZ(1)), make("label", { title: "Gaussians outside the map stay: the sky and what is far away" }, (() => { const tick = make("input", { type: "checkbox", onchange: (event) => { box.keep_background = event.target.checked; commit(); } }); tick.checked = box.keep_background !== false; return tick; })(), "Keep the sky and the distance")]; },
    objects: () => { const each = chosen === null ? null : items.objects[chosen]; return each ? [
      make("label", {}, "Name", make("input", { id: "ms-name", class: "wide", type: "text", autocomplete: "off", maxlength: 100, value: each.name, "aria-label": "Name", oninput: (event) => { each.name = event.target.value; each.changed = true; draw(); }, onchange: () => commit() })),
      number("height [m]", mm(each.size[2]), "From the ground to its top", (value) => { if (value > 0) { each.center[2] = mm(each.center[2] + 0.5 * (value - each.size[2])); each.size[2] = value; each.changed = true; commit(); } }),
      make("label", { title: "What is in the box leaves the world; it becomes the splats of an actor" }, (() => { const tick = make("input", { id: "ms-cut", type: "checkbox", onchange: (event) => { each.cut_out = event.target.checked; each.changed = true; commit(); } }); tick.checked = Boolean(each.cut_out); return tick; })(), "Cut out as an actor"),
      make("button", { title: "Remove this name and its box", onclick: () => remove() }, "Remove")] : []; },
  };
  const panel = () => {
    if (!items) return;
    for (const node of document.querySelectorAll("[data-tool]")) { node.classList.toggle("on", node.dataset.tool === tool); node.setAttribute("aria-pressed", String(node.dataset.tool === tool)); }
    const [word, , tip] = TOOLS[tool], steps = { scale: items.scale.points.length + (items.scale.length_m !== null ? 1 : 0), level: items.level.length }[tool] || 0;
    const typing = document.activeElement && document.activeElement.matches("#ms-how input[type=text]") ? document.activeElement : null, at = typing ? typing.selectionStart : 0;
    const wrong = tool in sent ? [] : wrongAt(tool);
    $("ms-how").replaceChildren(make("h2", {}, word), make("p", { class: "how" }, `${tip}.`), make("ol", { class: "how" }, ...HOW[tool].map((each, index) => make("li", { class: index < steps ? "done" : "" }, each))), make("div", { class: "fields" }, ...FIELDS[tool]()), ...wrong);
    if (typing) { const same = $("ms-how").querySelector(`input[aria-label="${typing.getAttribute("aria-label")}"]`); if (same) { same.value = typing.value; same.focus(); same.setSelectionRange(at, at); } } // the field is another one, what was typed is not
    listEdits(); say();
    $("ms-undo").disabled = past.length < 2 && !draft; $("ms-redo").disabled = !future.length; $("ms-save").disabled = state === "none" || state === "saving" || state === "lost";
    const count = $("ms-edits").children.length, words = { wait: ["wait", "Connecting"], none: ["wait", "Nothing changed"], edited: ["paused", `${count} edit${count === 1 ? "" : "s"}, not saved`], saving: ["past", "Saving…"], saved: ["", "Saved"], lost: ["gone", "No connection"] }[state];
    const broken = state === "edited" && problems.length; $("ms-pill").className = `pill ${broken ? "gone" : words[0]}`; put("ms-pill", broken ? `${problems.length} problem${problems.length > 1 ? "s" : ""}` : words[1]);
    put("ms-command", command); put("ms-yaml", yaml);
  };
  const listEdits = () => { // one line for each, with what is wrong about it
    const lines = [], add = (key, index, title, words, undoIt, path) => lines.push(make("li", { style: `--hue:${TOOLS[key][1]}`, class: key === tool && index !== null && index === chosen ? "on" : "", onclick: () => { if (tool !== key) choose(key); chosen = index !== null && !items[key][index].removed ? index : null; panel(); draw(); } },
      make("span", {}, title, make("small", {}, words)), make("button", { title: "Take this edit back", "aria-label": `Take back: ${title}`, onclick: (event) => { event.stopPropagation(); undoIt(); chosen = hot = null; commit(); } }, "✕"), ...wrongAt(path)));
    if (items.scale.points.length) add("scale", null, "Scale", items.scale.points.length < 2 ? "one more point" : items.scale.length_m === null ? "enter the length" : `× ${(items.scale.length_m / distance(...items.scale.points)).toFixed(4)}`, () => { items.scale = { points: [], length_m: null }; }, "scale");
    if (items.level.length) add("level", null, "Level", items.level.length < 3 ? `${3 - items.level.length} more` : "three points", () => { items.level = []; }, "level");
    if (items.crop) add("crop", null, "Crop", `${(items.crop.x[1] - items.crop.x[0]).toFixed(1)} m × ${(items.crop.y[1] - items.crop.y[0]).toFixed(1)} m`, () => { items.crop = null; }, "crop");
    sent.drivable.forEach((index, place) => { const each = items.drivable[index]; add("drivable", index, each.polygon === null ? "New polygon" : `Polygon ${each.polygon}`, each.removed ? "removed" : `${each.rings[0].length} points${each.rings.length > 1 ? `, holes: ${each.rings.length - 1}` : ""}, ${area(each.rings).toFixed(0)} m²`, () => takeBack("drivable", "polygon", index), `drivable[${place}]`); });
    if (items.start) add("start", null, "Start", `x ${items.start.x.toFixed(2)}, y ${items.start.y.toFixed(2)}, ${(items.start.yaw * 180 / Math.PI).toFixed(0)}°`, () => { items.start = null; }, "start");
    sent.objects.forEach((index, place) => { const each = items.objects[index]; add("objects", index, each.name || "Object without a name", each.removed ? "removed" : `${each.size.map((side) => side.toFixed(1)).join(" × ")} m${each.cut_out ? ", cut out" : ""}`, () => takeBack("objects", "object", index), `objects[${place}]`); });
    $("ms-edits").replaceChildren(...lines); $("ms-none").hidden = lines.length > 0;
    $("ms-problems").replaceChildren(...problems.filter((each) => !each.path).map((each) => make("p", { class: "wrong" }, each.text)));
  };
  const takeBack = (key, name, index) => { if (items[key][index][name] === null) items[key].splice(index, 1); else items[key][index] = copy(unedited()[key][items[key][index][name]]); };
  const remove = () => {
    if (hot && hot.remove) { hot.remove(); hot = null; commit(); return; }
    if (chosen === null || !["drivable", "objects"].includes(tool)) return;
    const each = items[tool][chosen], name = tool === "drivable" ? "polygon" : "object";
    if (each[name] === null) items[tool].splice(chosen, 1); else each.removed = true;
    chosen = null; commit();
  };
  const TIPS = { start: () => (start() ? "" : "Press where the car starts and drag where it looks"), scale: () => ["Click one end of a known length", "Click the other end", items.scale.length_m === null ? "Enter the length on the left" : ""][items.scale.points.length], level: () => ["Click a point on level ground", "Click a second point, far away", "Click a third point", ""][items.level.length], crop: () => (items.crop ? "" : "Drag a box around what is to stay"), objects: () => (chosen === null ? "Drag a box around a thing, or click one" : items.objects[chosen].name ? "" : "Enter its name on the left"),
    drivable: () => (draft ? (draft.ring.length < 3 ? "Click point after point" : "Click the first point (or press Enter) to finish") : chosen === null ? "Click a polygon to correct it, or start a new one" : "") };
  const say = (words = items ? TIPS[tool]() : "") => { put("ms-tip", words); $("ms-tip").hidden = !words || view === "scene"; };

  // ---- geometry of polygons -------------------------------------------------------------------------------------------
  const ringArea = (ring) => ring.reduce((sum, [x, y], index) => { const [u, v] = ring[(index + 1) % ring.length]; return sum + x * v - u * y; }, 0) / 2;
  const area = (rings) => rings.reduce((sum, ring, index) => sum + (index ? -1 : 1) * Math.abs(ringArea(ring)), 0);
  const isInside = ([x, y], ring) => ring.reduce((inside, [u, v], index) => { const [a, b] = ring[(index + 1) % ring.length]; return (v > y) !== (b > y) && x < u + (a - u) * (y - v) / (b - v) ? !inside : inside; }, false);
  const polygonAt = (point) => { const found = items.drivable.map((each, index) => index).filter((index) => { const { removed, rings } = items.drivable[index]; return !removed && isInside(point, rings[0]) && !rings.slice(1).some((ring) => isInside(point, ring)); }); return found.length ? found.reduce((a, b) => (area(items.drivable[a].rings) < area(items.drivable[b].rings) ? a : b)) : null; };
  const corners = ({ center: [x, y], size: [length, width], yaw }) => [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) => [x + 0.5 * (a * length * Math.cos(yaw) - b * width * Math.sin(yaw)), y + 0.5 * (a * length * Math.sin(yaw) + b * width * Math.cos(yaw))]);
  const objectAt = (point) => { const found = items.objects.findIndex((each) => !each.removed && isInside(point, corners(each))); return found < 0 ? null : found; };

  // ---- the map --------------------------------------------------------------------------------------------------------
  const toScreen = ([x, y]) => [0.5 * map.width + (x - map.x) * map.ppm, 0.5 * map.height - (y - map.y) * map.ppm];
  const toWorld = ([u, v]) => [mm(map.x + (u - 0.5 * map.width) / map.ppm), mm(map.y - (v - 0.5 * map.height) / map.ppm)];
  const frameWorld = () => {
    const rings = world.polygons.flatMap((each) => each.rings[0]), [west, south, east, north] = world.extent, xs = rings.length ? rings.map((each) => each[0]) : [west, east], ys = rings.length ? rings.map((each) => each[1]) : [south, north];
    const low = [xs, ys].map((each) => each.reduce((a, b) => Math.min(a, b))), high = [xs, ys].map((each) => each.reduce((a, b) => Math.max(a, b)));
    map.x = 0.5 * (low[0] + high[0]); map.y = 0.5 * (low[1] + high[1]); map.ppm = 0.86 * Math.min(map.width / Math.max(high[0] - low[0], 1), map.height / Math.max(high[1] - low[1], 1));
  };
  const handles = () => { // what can be dragged with this tool
    const found = [];
    if (tool === "drivable" && chosen !== null && !draft) {
      const each = items.drivable[chosen];
      each.rings.forEach((ring, r) => { let shown = null; ring.forEach((point, index) => {
        const here = toScreen(point); if (shown && distance(here, shown) < 2 * NEAR_PX) return; // those between appear when zoomed in
        shown = here; const next = ring[(index + 1) % ring.length], middle = [0.5 * (point[0] + next[0]), 0.5 * (point[1] + next[1])];
        found.push({ at: point, kind: "vertex", key: `${r}.${index}`, move: (to) => { each.changed = true; each.rings[r][index] = to; }, remove: () => { each.changed = true; if (each.rings[r].length > 3) each.rings[r].splice(index, 1); else if (r) each.rings.splice(r, 1); } });
        if (distance(toScreen(point), toScreen(next)) > 30) found.push({ at: middle, kind: "middle", key: `${r}.${index + 1}`, begin: () => { each.changed = true; each.rings[r].splice(index + 1, 0, middle); }, move: (to) => { each.rings[r][index + 1] = to; } });
      }); });
    }
    const now = tool === "start" ? start() : null;
    if (now) {
      const reach = Math.max(6, 46 / map.ppm), own = () => { items.start = { x: now.x, y: now.y, yaw: now.yaw, ...items.start }; return items.start; };
      found.push({ at: [now.x + reach * Math.cos(now.yaw), now.y + reach * Math.sin(now.yaw)], kind: "ring", move: ([x, y]) => { own().yaw = Math.round(1e4 * Math.atan2(y - now.y, x - now.x)) / 1e4; } }, { at: [now.x, now.y], kind: "vertex", move: ([x, y]) => Object.assign(own(), { x, y }) });
    }
    for (const key of ["scale", "level"]) if (tool === key) (key === "scale" ? items.scale.points : items.level).forEach((point, index, all) => found.push({ at: point, kind: "vertex", move: ([x, y]) => { all[index] = [x, y, point[2]]; }, end: () => settle(all, index) }));
    if (tool === "crop" && items.crop) for (const [i, j] of [[0, 0], [1, 0], [1, 1], [0, 1]]) found.push({ at: [items.crop.x[i], items.crop.y[j]], kind: "vertex", move: ([x, y]) => { items.crop.x[i] = x; items.crop.y[j] = y; }, end: () => tidy() });
    if (tool === "objects" && chosen !== null) {
      const each = items.objects[chosen], all = corners(each), turn = Math.max(0.5 * each.size[0] + 26 / map.ppm, 0);
      found.push({ at: [each.center[0] + turn * Math.cos(each.yaw), each.center[1] + turn * Math.sin(each.yaw)], kind: "ring", move: ([x, y]) => { each.changed = true; each.yaw = Math.round(1e4 * Math.atan2(y - each.center[1], x - each.center[0])) / 1e4; } });
      all.forEach((point, index) => found.push({ at: point, kind: "vertex", move: (to) => { each.changed = true; const fixed = all[(index + 2) % 4], dx = to[0] - fixed[0], dy = to[1] - fixed[1], c = Math.cos(each.yaw), s = Math.sin(each.yaw); each.center[0] = mm(0.5 * (to[0] + fixed[0])); each.center[1] = mm(0.5 * (to[1] + fixed[1])); each.size[0] = Math.max(0.05, mm(Math.abs(dx * c + dy * s))); each.size[1] = Math.max(0.05, mm(Math.abs(dy * c - dx * s))); } }));
      found.push({ at: each.center.slice(0, 2), kind: "vertex", move: ([x, y]) => { each.changed = true; each.center[0] = x; each.center[1] = y; }, end: () => ground(each) });
    }
    return found;
  };
  const tidy = () => { for (const axis of ["x", "y"]) items.crop[axis].sort((a, b) => a - b); };
  const settle = async (all, index) => { const found = await pick({ x: all[index][0], y: all[index][1] }); if (found) { all[index] = found; commit(); } };
  const ground = async (each) => { const found = await pick({ x: each.center[0], y: each.center[1] }); if (found) { each.center[2] = mm(found[2] + 0.5 * each.size[2]); commit(); } };
  const clickAt = async (point, spatial = null) => { // on the map, or in the scene with its height
    if (tool === "drivable" && draft) {
      if (draft.ring.length >= 3 && distance(toScreen(point), toScreen(draft.ring[0])) < NEAR_PX) { finish(); return; }
      draft.ring.push(point.slice(0, 2)); panel(); draw();
    } else if (tool === "drivable") { chosen = polygonAt(point); hot = null; panel(); draw(); }
    else if (tool === "objects") { chosen = objectAt(point); panel(); draw(); }
    else if (tool === "scale" || tool === "level") {
      const all = tool === "scale" ? items.scale.points : items.level, most = tool === "scale" ? 2 : 3;
      if (all.length >= most) { say(`There are ${most} points already: drag them, or take them back in the list`); return; }
      const found = spatial || await pick({ x: point[0], y: point[1] });
      if (found) { all.push(found); commit(); const field = $("ms-how").querySelector("input"); if (field && tool === "scale" && all.length === 2) field.focus(); } else say("There is no ground at this point: click elsewhere");
    }
  };
  const finish = () => {
    if (!draft || draft.ring.length < 3) { draft = null; panel(); draw(); return; }
    if (draft.hole !== null) { const each = items.drivable[draft.hole]; each.rings.push(draft.ring); each.changed = true; chosen = draft.hole; }
    else { items.drivable.push({ polygon: null, rings: [draft.ring], changed: true }); chosen = items.drivable.length - 1; }
    draft = null; commit();
  };

  const pointers = new Map();
  let grip = null, cursor = null; // what the pointer holds; where it is on the map
  const listen = (canvas) => {
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const nearest = (at) => { const all = handles().map((each) => [distance(toScreen(each.at), at), each]).filter(([far]) => far < NEAR_PX * (matchMedia("(pointer: coarse)").matches ? 2 : 1)); return all.length ? all.reduce((a, b) => (b[0] < a[0] - 2 ? b : a))[1] : null; };
    canvas.addEventListener("pointerdown", (event) => {
      if (!items) return;
      canvas.setPointerCapture(event.pointerId); canvas.focus({ preventScroll: true }); const at = place(event); pointers.set(event.pointerId, at);
      if (pointers.size === 2) { const [a, b] = [...pointers.values()]; grip = { kind: "pinch", span: distance(a, b), ppm: map.ppm }; return; }
      const handle = event.button === 0 ? nearest(at) : null;
      if (event.button === 2) { const over = nearest(at); if (over && over.remove) { over.remove(); hot = null; commit(); return; } }
      grip = { kind: handle ? "handle" : event.button === 0 && ["start", "crop", "objects"].includes(tool) && !(tool === "crop" && items.crop) && !(tool === "objects" && objectAt(toWorld(at)) !== null) ? "draw" : "pan", handle, from: at, world: toWorld(at), x: map.x, y: map.y, moved: false };
      hot = handle && handle.kind === "vertex" ? handle : null; draw();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!items) return;
      const at = place(event); cursor = toWorld(at); if (pointers.has(event.pointerId)) pointers.set(event.pointerId, at);
      put("ms-where", `x ${cursor[0].toFixed(2)}  y ${cursor[1].toFixed(2)} m`);
      if (!grip) { canvas.style.cursor = nearest(at) ? "grab" : "crosshair"; if (draft) draw(); return; }
      if (grip.kind === "pinch") { const [a, b] = [...pointers.values()]; if (b) zoom(grip.ppm * distance(a, b) / Math.max(grip.span, 1) / map.ppm, [0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])]); return; }
      if (!grip.moved && distance(at, grip.from) < STILL_PX) return;
      if (!grip.moved && grip.handle && grip.handle.begin) grip.handle.begin();
      grip.moved = true;
      if (grip.kind === "pan") { map.x = grip.x - (at[0] - grip.from[0]) / map.ppm; map.y = grip.y + (at[1] - grip.from[1]) / map.ppm; }
      else if (grip.kind === "handle") grip.handle.move(cursor);
      else drawing(grip.world, cursor);
      draw();
    });
    const end = (event) => {
      pointers.delete(event.pointerId); const held = grip; grip = null; if (!held || held.kind === "pinch" || event.type === "pointercancel") return;
      if (held.moved && held.kind !== "pan") { if (held.handle && held.handle.end) held.handle.end(); if (held.kind === "draw") drawn(); commit(); }
      else if (!held.moved && held.kind !== "handle" && event.button === 0) void clickAt(held.world);
      else if (!held.moved && held.handle && draft) void clickAt(held.world);
      panel();
    };
    canvas.addEventListener("pointerup", end); canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => { cursor = null; put("ms-where", ""); draw(); });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => { if (draft) { draft.ring.pop(); finish(); } });
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.0015), place(event)); }, { passive: false });
  };
  const zoom = (factor, at) => { const before = toWorld(at); map.ppm = Math.min(Math.max(map.ppm * factor, 0.05), 2000); const after = toWorld(at); map.x += before[0] - after[0]; map.y += before[1] - after[1]; draw(); };
  const drawing = (from, to) => { // a drag with a tool that draws
    if (tool === "start") items.start = { x: from[0], y: from[1], yaw: Math.round(1e4 * Math.atan2(to[1] - from[1], to[0] - from[0])) / 1e4 };
    else if (tool === "crop") items.crop = { x: [from[0], to[0]], y: [from[1], to[1]], keep_background: true };
    else if (tool === "objects") {
      if (!grip.made) { items.objects.push({ object: null, name: "", center: [0, 0, 1], size: [1, 1, 2], yaw: 0, changed: true }); chosen = items.objects.length - 1; grip.made = true; }
      const each = items.objects[chosen]; each.center = [mm(0.5 * (from[0] + to[0])), mm(0.5 * (from[1] + to[1])), each.center[2]]; each.size = [Math.max(0.05, mm(Math.abs(to[0] - from[0]))), Math.max(0.05, mm(Math.abs(to[1] - from[1]))), each.size[2]];
    }
  };
  const drawn = () => { if (tool === "crop" && items.crop) tidy(); if (tool === "objects" && chosen !== null) { void ground(items.objects[chosen]); panel(); const field = $("ms-name"); if (field) field.focus(); } };
  const listenScene = (root) => { // a click that is not a drag: a point of the world
    let from = null; if (!root) return;
    root.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; }, { capture: true, passive: true });
    root.addEventListener("pointerup", async (event) => {
      const canvas = root.querySelector("canvas"); if (!items || !canvas || !from || distance(from, [event.clientX, event.clientY]) > STILL_PX || event.button !== 0) return;
      const box = canvas.getBoundingClientRect(), found = await pick({ u: (event.clientX - box.left) / box.width, v: (event.clientY - box.top) / box.height });
      if (found) void clickAt(found.slice(0, 2), found); else say("There is nothing at this point");
    }, { capture: true, passive: true });
  };

  // ---- drawing --------------------------------------------------------------------------------------------------------
  let drawDue = false;
  const draw = () => { if (!drawDue) { drawDue = true; requestAnimationFrame(() => { drawDue = false; paint(); }); } };
  const trace = (g, points, closed = true) => { points.forEach((point, index) => { const [u, v] = toScreen(point); if (index) g.lineTo(u, v); else g.moveTo(u, v); }); if (closed) g.closePath(); };
  const line = (g, colour, width, dash = []) => { g.setLineDash(dash); g.lineWidth = width + 2; g.strokeStyle = "rgba(0,0,0,.45)"; g.stroke(); g.lineWidth = width; g.strokeStyle = colour; g.stroke(); g.setLineDash([]); };
  const label = (g, words, [u, v], colour) => { g.font = "600 13px system-ui, sans-serif"; const wide = g.measureText(words).width + 12; g.fillStyle = colour; g.beginPath(); g.roundRect(u - wide / 2, v - 10, wide, 20, 10); g.fill(); g.fillStyle = "#fff"; g.textAlign = "center"; g.textBaseline = "middle"; g.fillText(words, u, v); };
  const paint = () => {
    const canvas = $("ms-map"); if (!world || !items || !canvas.clientWidth) return;
    const ratio = devicePixelRatio || 1, g = canvas.getContext("2d"), width = Math.round(map.width * ratio), height = Math.round(map.height * ratio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    g.setTransform(ratio, 0, 0, ratio, 0, 0); g.clearRect(0, 0, map.width, map.height);
    const [west, south, east, north] = world.extent, [u, v] = toScreen([west, north]);
    if (picture) { g.imageSmoothingEnabled = map.ppm < 40; g.drawImage(picture, u, v, (east - west) * map.ppm, (north - south) * map.ppm); }
    paintDrivable(g); paintObjects(g); paintStart(g); paintCrop(g); paintPoints(g); paintDraft(g); paintHandles(g); paintRuler(g);
  };
  const paintDrivable = (g) => items.drivable.forEach((each, index) => {
    if (each.removed && tool !== "drivable") return;
    g.beginPath(); for (const ring of each.rings) trace(g, ring);
    const isOn = tool === "drivable" && index === chosen; g.fillStyle = each.removed ? "rgba(235,70,60,.14)" : `rgba(34,184,102,${isOn ? 0.34 : 0.2})`; g.fill("evenodd"); line(g, each.removed ? "#eb463c" : TOOLS.drivable[1], isOn ? 3 : 1.8, each.removed ? [6, 5] : []);
  });
  const paintObjects = (g) => items.objects.forEach((each, index) => {
    if (each.removed) return; const all = corners(each); g.beginPath(); trace(g, all); g.fillStyle = `rgba(150,110,255,${tool === "objects" && index === chosen ? 0.35 : 0.18})`; g.fill(); line(g, TOOLS.objects[1], 2);
    const top = toScreen([each.center[0], Math.max(...all.map((point) => point[1]))]); if (each.name || tool === "objects") label(g, each.name || "name?", [top[0], top[1] - 15], TOOLS.objects[1]);
  });
  const paintStart = (g) => {
    const now = start(); if (!now) return; const c = Math.cos(now.yaw), s = Math.sin(now.yaw), at = ([x, y]) => [now.x + x * c - y * s, now.y + x * s + y * c], reach = Math.max(6, 46 / map.ppm);
    g.beginPath(); trace(g, [[-0.9, -0.9], [3.6, -0.9], [3.6, 0.9], [-0.9, 0.9]].map(at)); g.fillStyle = "rgba(255,150,30,.45)"; g.fill(); line(g, TOOLS.start[1], 2); g.beginPath(); trace(g, [[now.x, now.y], at([reach, 0])], false); line(g, TOOLS.start[1], 2.5);
    const [u, v] = toScreen(at([reach, 0])), angle = -now.yaw; g.beginPath(); for (const [a, b] of [[9, 0], [-7, -7], [-7, 7]]) g.lineTo(u + a * Math.cos(angle) - b * Math.sin(angle), v + a * Math.sin(angle) + b * Math.cos(angle)); g.closePath(); g.fillStyle = TOOLS.start[1]; g.fill();
  };
  const paintCrop = (g) => {
    if (!items.crop) return; const [x0, x1] = items.crop.x, [y0, y1] = items.crop.y, [u, v] = toScreen([Math.min(x0, x1), Math.max(y0, y1)]), wide = Math.abs(x1 - x0) * map.ppm, tall = Math.abs(y1 - y0) * map.ppm;
    g.beginPath(); g.rect(0, 0, map.width, map.height); g.rect(u, v, wide, tall); g.fillStyle = "rgba(10,14,22,.55)"; g.fill("evenodd"); g.beginPath(); g.rect(u, v, wide, tall); line(g, TOOLS.crop[1], 2.5, [9, 5]);
  };
  const paintPoints = (g) => {
    const [a, b] = items.scale.points; if (b) { g.beginPath(); trace(g, [a, b], false); line(g, TOOLS.scale[1], 3); const [u, v] = toScreen([0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])]); label(g, items.scale.length_m === null ? `${distance(a, b).toFixed(2)} m` : `${items.scale.length_m} m`, [u, v - 16], TOOLS.scale[1]); }
    if (items.level.length > 1) { g.beginPath(); trace(g, items.level); g.fillStyle = "rgba(30,180,200,.25)"; g.fill(); line(g, TOOLS.level[1], 2.5); }
    for (const [key, all] of [["scale", items.scale.points], ["level", items.level]]) all.forEach((point, index) => { const [u, v] = toScreen(point); g.beginPath(); g.arc(u, v, 8, 0, 7); g.fillStyle = TOOLS[key][1]; g.fill(); g.lineWidth = 2; g.strokeStyle = "#fff"; g.stroke(); g.fillStyle = "#fff"; g.font = "700 11px system-ui, sans-serif"; g.textAlign = "center"; g.textBaseline = "middle"; g.fillText(String(index + 1), u, v + 0.5); });
  };
  const paintDraft = (g) => {
    if (!draft) return; const all = cursor ? [...draft.ring, cursor] : draft.ring; if (all.length > 1) { g.beginPath(); trace(g, all, all.length > 3); g.fillStyle = "rgba(34,184,102,.25)"; g.fill(); g.beginPath(); trace(g, all, false); line(g, TOOLS.drivable[1], 2.5, [7, 4]); }
    draft.ring.forEach((point, index) => { const [u, v] = toScreen(point); g.beginPath(); g.arc(u, v, index ? 4.5 : 8, 0, 7); g.fillStyle = index ? TOOLS.drivable[1] : "#fff"; g.fill(); g.lineWidth = 2; g.strokeStyle = index ? "#fff" : TOOLS.drivable[1]; g.stroke(); });
  };
  const paintHandles = (g) => { for (const each of handles()) {
    if (tool === "scale" || tool === "level") continue; const [u, v] = toScreen(each.at), isHot = hot && hot.key !== undefined && hot.key === each.key && each.kind === "vertex"; if (u < -20 || v < -20 || u > map.width + 20 || v > map.height + 20) continue;
    g.beginPath(); if (each.kind === "vertex") g.rect(u - 5, v - 5, 10, 10); else g.arc(u, v, each.kind === "ring" ? 7 : 4, 0, 7);
    g.globalAlpha = each.kind === "middle" ? 0.75 : 1; g.fillStyle = isHot ? "#ffd640" : "#fff"; g.fill(); g.lineWidth = 2; g.strokeStyle = TOOLS[tool][1]; g.stroke(); g.globalAlpha = 1;
  } };
  const paintRuler = (g) => {
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => each * map.ppm >= 70) || 1000, wide = step * map.ppm, u = map.width - wide - 18, v = map.height - 16, ink = isDark() ? "#e9eef6" : "#16202e";
    g.fillStyle = isDark() ? "rgba(20,28,40,.8)" : "rgba(255,255,255,.82)"; g.beginPath(); g.roundRect(u - 12, v - 24, wide + 24, 34, 8); g.roundRect(map.width - 46, 12, 34, 44, 8); g.fill();
    g.strokeStyle = ink; g.lineWidth = 2; g.beginPath(); g.moveTo(u, v - 5); g.lineTo(u, v); g.lineTo(u + wide, v); g.lineTo(u + wide, v - 5); g.stroke(); g.fillStyle = ink; g.font = "600 12px system-ui, sans-serif"; g.textAlign = "center"; g.textBaseline = "alphabetic"; g.fillText(`${step} m`, u + wide / 2, v - 8);
    g.beginPath(); g.moveTo(map.width - 29, 18); g.lineTo(map.width - 22, 36); g.lineTo(map.width - 29, 31); g.lineTo(map.width - 36, 36); g.closePath(); g.fill(); g.fillText("N", map.width - 29, 50);
  };
  const fit = () => {
    const body = document.body, isNarrow = innerWidth < 900; body.classList.toggle("ms-narrow", isNarrow); body.classList.toggle("ms-phone", innerWidth < 600); if (isNarrow && view === "both") view = "map";
    const top = $("ms-bar").getBoundingClientRect().height, side = $("ms-left").getBoundingClientRect(), left = isNarrow ? 0 : side.width, bottom = isNarrow ? innerHeight - side.top : 0, room = innerWidth - left, split = view === "map" ? innerWidth : view === "scene" ? left : Math.round(left + 0.52 * room), tall = innerHeight - top - bottom;
    Object.assign($("ms-map").style, { left: `${left}px`, top: `${top}px`, width: `${split - left}px`, height: `${tall}px`, display: split > left ? "" : "none" }); Object.assign($("ms-divide").style, { left: `${split}px`, top: `${top}px`, width: view === "both" ? "1px" : "0", height: `${tall}px` });
    Object.assign($("ms-tip").style, { left: `${left + 0.5 * (split - left)}px`, top: `${top + 12}px`, transform: "translateX(-50%)" }); Object.assign($("ms-where").style, { left: `${left + 10}px`, bottom: `${bottom + 10}px` }); Object.assign($("ms-side").style, { right: "10px", top: `${top + 10}px`, display: view === "map" ? "none" : "" });
    const before = map.width; map.width = Math.max(split - left, 1); map.height = Math.max(tall, 1); if (world && before <= 1) frameWorld();
    for (const [name, pixels] of Object.entries({ top, bottom, left: view === "map" ? Math.min(split, innerWidth - 4) : split + 1, right: 0 })) body.style.setProperty(`--ms-${name}`, `${pixels}px`);
    for (const node of document.querySelectorAll("[data-view]")) node.classList.toggle("on", node.dataset.view === view);
    say(); draw();
  };

  // ---- the program ----------------------------------------------------------------------------------------------------
  const veil = (title, words = "") => { $("ms-veil").hidden = !title; put("ms-veil-title", title); put("ms-veil-text", words); };
  const connect = () => {
    socket = new WebSocket(`${location.origin.replace("http", "ws")}${location.pathname.replace(/\/$/, "")}/panels`);
    socket.onmessage = (event) => receive(JSON.parse(event.data));
    socket.onclose = () => { state = "lost"; if (items) panel(); else veil("Connection lost", "Check the terminal; this page reconnects automatically."); setTimeout(again, RETRY_MS); };
  };
  const again = async () => { // a program that was started again gives out new addresses at the front door
    try { const answer = await fetch(location.pathname, { redirect: "manual", cache: "no-store" }); if (answer.type === "opaqueredirect") { asked.delete("websocket"); location.replace(`/?${asked}`); return; } } catch { setTimeout(again, RETRY_MS); return; }
    connect();
  };
  const receive = (message) => {
    if (message.type === "world") onWorld(message);
    else if (message.type === "picked") { const done = picks.get(message.id); picks.delete(message.id); if (done) done(message.point); }
    else if (message.type === "checked") { problems = message.problems; command = message.command; yaml = message.yaml; if (state === "saving") state = "edited"; panel(); }
    else if (message.type === "saved") onSaved(message);
  };
  const onWorld = (message) => {
    const isSame = world && world.folder === message.folder && !message.fresh; world = message; picture = new Image(); picture.onload = () => { document.body.dataset.map = "drawn"; draw(); }; picture.src = world.image;
    if (!isSame || Object.keys(message.edits).length) { items = restored(message.edits); past.length = future.length = 0; past.push(JSON.stringify(items)); chosen = hot = draft = null; problems = []; }
    put("ms-world", world.name); $("ms-world").title = world.folder; document.title = `Edit ${world.name} · MicroSim`; $("ms-save").title = world.in_place ? `Replace ${world.folder} by the edited world` : `Write the edited world to ${world.target}`;
    veil(""); fit(); if (!isSame) frameWorld(); send("theme", isDark()); changed();
  };
  const save = () => { if (!items) return; state = "saving"; problems = []; panel(); clearTimeout(checkDue); send("save", toEdits()); };
  const onSaved = (message) => {
    state = "saved"; problems = []; panel(); const close = () => { $("ms-done").hidden = true; }, drive = `microsim run ${message.folder} --view`;
    const row = (words) => make("div", { class: "row" }, make("pre", { style: "flex:1;margin:0" }, words), make("button", { title: "Copy this command", onclick: (event) => copied(event.target, words) }, "Copy"));
    $("ms-done").replaceChildren(make("b", {}, `Saved to ${message.folder}`), make("p", {}, "It is complete and valid. Drive in it:"), row(drive), ...(items.objects.some((each) => each.cut_out && !each.removed) ? [make("p", {}, "Drive with what you cut out as actors:"), row(`microsim run ${message.folder}/actors/scenario.yaml --view`)] : []), make("p", {}, `The edits are in ${message.edits}. The same again:`), row(message.command), ...message.warnings.map((words) => make("p", { class: "wrong" }, words)),
      make("div", { class: "row" }, world.in_place ? null : make("button", { id: "ms-continue", title: "Further edits are of the saved world, level and to scale", onclick: () => { close(); send("continue"); } }, "Continue in the saved world"), make("button", { id: "ms-close", class: "main", title: "Keep editing (key Esc)", onclick: close }, "Close")));
    $("ms-done").hidden = false; $("ms-close").focus();
  };
  const isTyping = (target) => target instanceof HTMLElement && target.tagName === "INPUT" && target.type === "text";
  addEventListener("keydown", (event) => {
    if (!items) return; const isControl = event.ctrlKey || event.metaKey;
    if (isControl && ["z", "y"].includes(event.key.toLowerCase()) && !isTyping(event.target)) { if (event.key.toLowerCase() === "y" || event.shiftKey) redo(); else undo(); event.preventDefault(); }
    else if (isTyping(event.target)) { if (event.key === "Enter") event.target.blur(); }
    else if (event.key === "Enter" && draft) { finish(); event.preventDefault(); }
    else if (event.key === "Delete" || event.key === "Backspace") { if (draft) undo(); else remove(); event.preventDefault(); }
    else if (event.key === "Escape") { $("ms-done").hidden = true; draft = hot = chosen = null; panel(); draw(); }
  }, true);
  addEventListener("resize", () => fit());
  window.MicroSimEditor = { toScreen, items: () => items }; // for tests
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", build); else build();
})();
