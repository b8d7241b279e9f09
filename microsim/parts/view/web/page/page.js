"use strict";
// The panels: the state of the run comes over one websocket, requests go back over it. No library, no build.
(() => {
  const config = window.MICROSIM || {};
  const asked = new URLSearchParams(location.search);
  const HEARTBEAT_MS = 100; // while a key is held; the run stops the robot after 400 ms without a message
  const RETRY_MS = 1500; // between two tries to find the run again
  const WINDOW_S = 60; // of the plots
  const SPEEDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 0]; // 0: as fast as possible
  const KEYS = { // key -> what it does: axis of the command, direction, words
    KeyY: ["up", 1, "up"], KeyU: ["side", 1, "left"], KeyI: ["ahead", 1, "forward"], KeyO: ["side", -1, "right"],
    KeyH: ["up", -1, "down"], KeyJ: ["turn", 1, "turn left"], KeyK: ["ahead", -1, "back"], KeyL: ["turn", -1, "turn right"],
  };
  const AXES = { ahead: ["vx", "v", "speed", "velocity"], side: ["vy"], up: ["vz"], turn: ["yaw_rate", "omega", "steering", "steering_angle", "steer"] };
  const LAYER_WORDS = {
    trails: ["Trails", "The paths of the robots"], sensors: ["Sensors", "What sensors measure: beams, scans, images, fixes"],
    radio: ["Radio", "Packets between robots: green ones arrive, red ones are lost"], waypoints: ["Waypoints", "The goals of a pilot or mission"],
    labels: ["Scale", "Metres along the edges, and north"], frames: ["Frames", "Axes of map, base_link and sensors: x red, y green, z blue"],
    points: ["Point clouds", "Points, coloured by height"], poses: ["Poses", "Axes at the poses that odometry and localisation report"], splats: ["Splats", "The Gaussian splats of the world bundle"], drivable: ["Drivable", "Edges of the drivable area"], mesh: ["Mesh", "The static mesh of the world bundle, which LiDARs see"],
  };
  const VIEWS = [["all", "All", "Keep all robots in view"], ["chase", "Chase", "Follow the chosen robot from behind"],
    ["top", "Top", "Look down on the chosen robot"], ["free", "Free", "Move the camera yourself: drag, scroll, W A S D Q E"]];
  const GROUPS = { demo: "Demos", scenario: "Scenarios", world: "Worlds" };
  const HELP = [["I J K L", "drive the chosen robot: forward, turn left, back, turn right"], ["U O", "drone: move left, right"], ["Y H", "drone: up, down"], ["Space", "stop the robot"],
    ["P", "pause, continue"], [", .", "one tick back, one tick forward"], ["1 2 3 4", "view: all, chase, top, free"], ["W A S D Q E arrows", "move the camera"], ["mouse", "drag: rotate, right drag: pan, scroll: zoom"], ["?", "show or hide this list"]];
  const LEGEND = [ // what a layer looks like, shown if the scene has it
    ["points", "dots", "linear-gradient(90deg,#3264e6,#1ec8c8,#5adc5a,#fac828)", "LiDAR, by height"], ["beam", "line", "#ff4040", "range beam"], ["fan", "dots", "#ffaa00", "laser scan"],
    ["image", "box", "#ffffff", "camera image"], ["fix", "gem", "#8a97a8", "GPS, ring: 1 σ"], ["radio", "dots", "#00d68f", "radio, red: lost"], ["waypoints", "gem", "#8a97a8", "waypoints"]];
  const LEVEL_MARKS = { warn: "⚠", error: "✕", info: "·" };
  const FEW = 3, SHORT = 26; // that many robots, with names of that many letters in all, are buttons; more are a list

  let socket = null, scene = null, state = null, robot = "", camera = "", series = [], fields = [], added = [], seeking = false, wantedTick = null, heartbeat = null, hasEnded = false, plots = null, drawn = null, busy = "";
  const held = new Set(), images = {}, rows = {};

  // ---- small things -------------------------------------------------------------------------------------------------
  const make = (tag, attributes = {}, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...inside);
    return node;
  };
  const $ = (id) => document.getElementById(id);
  const put = (node, value) => { if (node && node.textContent !== value) node.textContent = value; };
  const text = (id, value) => put($(id), value);
  const show = (id, shown) => { $(id).hidden = !shown; };
  const css = (colour) => `rgb(${colour.join(",")})`;
  const send = (kind, value = null) => { if (socket && socket.readyState === 1) socket.send(JSON.stringify({ kind, value })); };
  const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));
  const mark = (colour) => make("i", { class: "key-colour", style: `background:${css(colour)}` });
  const option = (value, words = value) => make("option", { value }, words);
  const section = (id, title, aside, ...inside) => make("section", { id, "aria-label": title }, make("h2", {}, title, ...(aside ? [aside] : [])), ...inside);

  // ---- light and dark -----------------------------------------------------------------------------------------------
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const setTheme = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; send("theme", dark); drawPlots(); };
  const kept = { get: () => { try { return localStorage.getItem("microsim-theme"); } catch { return null; } }, set: (word) => { try { localStorage.setItem("microsim-theme", word); } catch { /* a private window */ } } };
  const firstTheme = () => {
    if (asked.has("dark") || asked.has("light")) return asked.has("dark");
    return kept.get() ? kept.get() === "dark" : config.dark ?? matchMedia("(prefers-color-scheme: dark)").matches;
  };
  document.documentElement.dataset.theme = firstTheme() ? "dark" : "light";

  // ---- the panels ---------------------------------------------------------------------------------------------------
  const logo = '<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round"><circle cx="5" cy="6" r="2.6"/><circle cx="19" cy="6" r="2.6"/><path d="M7 8l3 3.2M17 8l-3 3.2"/><rect x="9" y="10.5" width="6" height="4.4" rx="1.4"/><path d="M4 20.5h16"/><path d="M12 15v3.2" stroke-dasharray=".1 2.6"/></svg>';
  const fact = (id, name, tip) => make("div", { class: "fact", title: tip }, make("b", { id }, "–"), make("span", {}, name));

  const topBar = () => {
    const brand = make("div", { class: "brand", title: "MicroSim" }); brand.innerHTML = `${logo}<span>MicroSim</span>`;
    return make("header", { id: "ms-bar" }, brand,
      make("select", { id: "ms-scenario", "aria-label": "Demo, scenario or world", title: "Choose another demo, scenario or world", disabled: true, onchange: (event) => load(event.target) }, option("", "…")),
      make("span", { id: "ms-pill", class: "pill wait", role: "status", "data-testid": "status" }, "Connecting"), make("div", { class: "space" }),
      make("div", { class: "clock", title: "Simulated time" }, make("span", { id: "ms-time", "data-testid": "time" }, "–"), make("small", {}, " s")),
      fact("ms-tick", "tick", "Ticks since the start: the unit of simulated time"), fact("ms-seed-now", "seed", "The seed of all noise in this run"),
      fact("ms-rtf", "real time", "Simulated seconds per second, over the last two"), fact("ms-late", "tick lag", "Lag of the last tick behind its time"),
      make("button", { id: "ms-help", class: "icon", title: "Show the keys (key ?)", "aria-label": "Keys", onclick: () => showKeys() }, "?"),
      make("button", { id: "ms-theme", class: "icon", title: "Light or dark", "aria-label": "Light or dark", onclick: () => { kept.set(isDark() ? "light" : "dark"); setTheme(!isDark()); } }, "◐"),
      make("button", { id: "ms-clean", class: "icon", title: "Only the scene: hide the panels", "aria-label": "Only the scene", onclick: () => setClean(true) }, "▢"));
  };

  const left = () => make("aside", { id: "ms-left", class: "column", "aria-label": "Sensors and plots" },
    section("ms-camera", "Camera", make("em", { id: "ms-camera-stamp" }),
      make("div", { class: "frame" }, make("img", { id: "ms-image", alt: "what the camera sees", title: "The newest image, as it was published", "data-testid": "camera", hidden: true }),
        make("p", { id: "ms-no-image", class: "empty" }, "No image yet")),
      make("div", { id: "ms-cameras", class: "group wide" }),
      make("select", { id: "ms-camera-list", "aria-label": "Camera", title: "Whose camera is shown", hidden: true, onchange: (event) => { camera = event.target.value; showImage(); } })),
    section("ms-plot-box", "Last minute", make("em", {}, make("span", { id: "ms-plot-of" }), make("button", { id: "ms-zoom-out", class: "link", title: "Show the whole time again", hidden: true, onclick: () => plots.zoom(null) }, "Zoom out")), make("div", { id: "ms-plots" }), make("p", { id: "ms-no-plots", class: "empty" }, "Plots appear with the first seconds of the run"),
      make("select", { id: "ms-add-plot", "aria-label": "Add a plot", title: "Plot any number of any sensor's messages, from now on", hidden: true, onchange: (event) => addPlot(event.target.value) })),
    section("ms-radio", "Radio", make("em", { id: "ms-radio-of" }), make("table", { id: "ms-links", "data-testid": "links", title: "Packets sent and lost, mean latency in milliseconds, packets on the way" })));

  const padButton = (code) => {
    const [, , words] = KEYS[code];
    const button = make("button", { "data-key": code, title: `${words}: hold this button, or the key ${code.slice(3)}` }, make("kbd", {}, code.slice(3)), make("span", {}, words));
    button.addEventListener("pointerdown", (event) => { event.preventDefault(); button.setPointerCapture(event.pointerId); press(code); });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(end, () => release(code));
    button.addEventListener("contextmenu", (event) => event.preventDefault()); // a long touch is not a question
    return button;
  };

  const right = () => make("aside", { id: "ms-right", class: "column", "aria-label": "Control" },
    section("ms-drive", "Drive", make("em", { id: "ms-driven" }),
      make("div", { id: "ms-robots", class: "group wide", role: "group", "aria-label": "Robot to drive" }),
      make("select", { id: "ms-robot-list", "aria-label": "Robot to drive", title: "The robot that keys drive and the view follows", hidden: true, onchange: (event) => choose(event.target.value) }),
      make("div", { class: "pad" }, ...["KeyY", "KeyU", "KeyI", "KeyO", "KeyH", "KeyJ", "KeyK", "KeyL"].map(padButton),
        make("button", { class: "stop", id: "ms-stop", title: "Stop the robot at once: this button, or the space bar", onclick: () => stopRobot() }, make("kbd", {}, "space"), make("span", {}, "stop"))),
      make("div", { class: "row" }, make("span", { class: "note" }, "Throttle"),
        make("input", { id: "ms-throttle", type: "range", min: 5, max: 100, step: 5, value: 60, title: "How fast keys drive, in percent of the robot's limit", "aria-label": "Throttle", oninput: (event) => text("ms-throttle-now", `${event.target.value} %`) }),
        make("span", { id: "ms-throttle-now", class: "note right" }, "60 %")),
      make("button", { id: "ms-release", hidden: true, title: "Give this robot back to the pilot", onclick: () => send("release") }, "Hand back to the pilot")),
    section("ms-state", "Robots", make("em", {}, "in metres"), make("table", { id: "ms-facts", "data-testid": "robots", title: "Position x, y, height above the ground, speed, and what the range sensor measures" }), make("p", { id: "ms-no-robots", class: "empty" }, "No robot yet")),
    section("ms-proof", "Digest so far", make("button", { id: "ms-copy", class: "link", title: "Copy the digest", onclick: copyDigest }, "Copy"),
      make("div", { id: "ms-digest", class: "digest", title: "SHA-256 over every message since the start: the same scenario, seed and commands give the same", "data-testid": "digest" }, "–")),
    section("ms-log", "Log", make("em", { id: "ms-log-count" }), make("ol", { id: "ms-lines", role: "log", "aria-label": "Warnings and events", "data-testid": "log" }),
      make("p", { id: "ms-no-lines", class: "empty" }, "Nothing to report. Warnings, ignored commands and failing sensors appear here.")));

  const look = () => section("ms-look", "View", null,
      make("div", { class: "group wide", id: "ms-view", role: "group", "aria-label": "Where to look from" },
        ...VIEWS.map(([mode, word, tip]) => make("button", { "data-mode": mode, title: tip, onclick: () => setView(mode) }, word))),
      make("details", { id: "ms-more" }, make("summary", { title: "Choose what is drawn" }, "Layers"), make("div", { id: "ms-layers", class: "layers" }),
      make("div", { class: "row" }, make("span", { class: "note" }, "Robots ×"),
        make("input", { id: "ms-scale", type: "range", min: 1, max: 6, step: 0.5, value: 1, title: "Scale of the drawn robots, on all pages", "aria-label": "Size of robots", onchange: (event) => send("scale", Number(event.target.value)) }),
        make("span", { id: "ms-scale-now", class: "note right" }, "1"))));

  const story = () => make("section", { id: "ms-story", "aria-label": "What is shown", hidden: true },
    make("header", {}, make("b", { id: "ms-story-title", "data-testid": "title" }), make("button", { id: "ms-fold", class: "link", title: "Fold or unfold this card", "aria-expanded": "true", onclick: () => fold() }, "Hide")),
    make("p", { id: "ms-about", "data-testid": "about" }), make("ul", { id: "ms-legend", "data-testid": "legend" }), make("ol", { id: "ms-events", "data-testid": "events", "aria-live": "polite" }),
    make("p", { id: "ms-hint", "data-testid": "hint", hidden: true }), make("p", { id: "ms-the-end", "data-testid": "end", hidden: true }));
  const fold = (folded = !$("ms-story").classList.contains("folded")) => { $("ms-story").classList.toggle("folded", folded); text("ms-fold", folded ? "Show" : "Hide"); $("ms-fold").setAttribute("aria-expanded", String(!folded)); };
  const help = () => make("div", { id: "ms-keys", role: "dialog", "aria-label": "Keys", hidden: true }, make("b", {}, "Keys"),
    make("dl", {}, ...HELP.flatMap(([keys, words]) => [make("dt", {}, ...keys.split(" ").map((key) => make("kbd", {}, key))), make("dd", {}, words)])),
    make("button", { id: "ms-keys-close", title: "Close (key Esc)", onclick: () => showKeys(false) }, "Close"));
  const showKeys = (shown = $("ms-keys").hidden) => { show("ms-keys", shown); if (shown) $("ms-keys-close").focus(); };

  const steps = () => [
    make("button", { id: "ms-back-1", title: "Look back by one tick (key ,)", "aria-label": "Back by one tick", onclick: () => stepBack() }, "−1"),
    ...[1, 10, 60].map((ticks) => make("button", { id: `ms-step-${ticks}`, title: `Advance by ${ticks} tick${ticks > 1 ? "s" : " (key .)"}, and pause`, "aria-label": `Advance by ${ticks} ticks`, onclick: () => send("step", ticks) }, `+${ticks}`))];
  const bottom = () => make("footer", { id: "ms-transport" },
    make("button", { id: "ms-play", class: "main", title: "Pause or continue (key P)", onclick: () => playOrPause() }, "Pause"),
    make("div", { class: "group", role: "group", "aria-label": "Steps" }, ...steps()),
    make("label", { class: "small", id: "ms-seed-box" }, "Seed", make("input", { id: "ms-seed", type: "text", inputmode: "numeric", autocomplete: "off", title: "Seed for the next reset", onkeydown: (event) => { if (event.key === "Enter") reset(); event.stopPropagation(); } })),
    make("button", { id: "ms-reset", title: "Reset to the start, with this seed", onclick: () => reset() }, "Reset"),
    make("div", { id: "ms-timeline" }, make("input", { id: "ms-scrub", type: "range", min: 0, max: 1, step: 1, value: 0, title: "Look back: drag to any tick of the last two minutes", "aria-label": "Timeline", oninput: onScrub, onchange: () => { seeking = false; } }),
      make("div", { class: "ends" }, make("span", { id: "ms-from" }, "0 s"), make("span", { id: "ms-what" }, ""), make("span", { id: "ms-to" }, "0 s"))),
    make("button", { id: "ms-branch", hidden: true, title: "Discard what came after this moment and continue from here", onclick: () => send("branch") }, "Branch here"),
    make("label", { class: "small", id: "ms-speed-box" }, make("span", { id: "ms-speed-now" }, "Speed 1×"),
      make("input", { id: "ms-speed", type: "range", min: 0, max: SPEEDS.length - 1, step: 1, value: 3, title: "Simulated seconds per second: 0.1 to 50, then as fast as possible", "aria-label": "Speed", oninput: (event) => send("speed", SPEEDS[Number(event.target.value)]) })));

  const isTouch = () => matchMedia("(pointer: coarse)").matches;
  const build = () => {
    const hint = isTouch() ? "one finger: rotate · two: pan, zoom" : "drag: rotate · right drag: pan · scroll: zoom";
    document.body.append(make("div", { id: "ms" }, topBar(), left(), right(), look(), story(), bottom(), make("div", { id: "ms-hints" }, make("span", {}, hint)),
      make("div", { id: "ms-veil", role: "status" }, make("b", { id: "ms-veil-title" }, "Opening the scene…"), make("span", { id: "ms-veil-text" }, "")),
      make("button", { id: "ms-show", title: "Show the panels again", onclick: () => setClean(false) }, "Panels"), help()));
    const root = $("root"); if (root) for (const kind of ["pointerdown", "wheel"]) root.addEventListener(kind, () => { if (view !== "free") setView("free"); }, { capture: true, passive: true }); // moving the camera by hand keeps it
    document.body.classList.add("ms-ready");
    if (asked.has("clean")) document.body.classList.add("ms-clean");
    $("ms").addEventListener("click", (event) => { if (event.detail && event.target.closest("button")) event.target.closest("button").blur(); }); // after a click of the mouse keys are for driving
    plots = window.MicroSimPlots.create($("ms-plots"), lineColour, (seconds) => { if (scene && state) { $("ms-scrub").value = Math.round(seconds * scene.hz); requestSeek(Math.round(seconds * scene.hz)); } }, () => { show("ms-zoom-out", plots.zoomed() !== null); drawPlots(); });
    fit(); connect();
  };
  let isNarrow = false; // the card of the story is folded once, when the page becomes narrow
  const setClean = (clean) => { document.body.classList.toggle("ms-clean", clean); fit(); $(clean ? "ms-show" : "ms-clean").focus(); };
  const fit = () => { // viser's canvas fills what the panels leave
    const width = innerWidth, body = document.body;
    body.classList.toggle("ms-narrow", width < 900); body.classList.toggle("ms-phone", width < 600);
    if (width < 900) $("ms-state").after($("ms-camera"), $("ms-plot-box"), $("ms-radio")); // one column holds all
    else $("ms-left").append($("ms-camera"), $("ms-plot-box"), $("ms-radio"));
    if (width < 900) $("ms-drive").after($("ms-look")); else $("ms-right").after($("ms-look"));
    if (width < 600 && !isNarrow) fold(true);
    isNarrow = width < 600;
    const box = (id) => { const node = $(id), place = node.getBoundingClientRect(); return node.getClientRects().length ? place : null; };
    const top = box("ms-bar"), foot = box("ms-transport"), west = box("ms-left"), east = box("ms-right"), phone = body.classList.contains("ms-phone");
    const sides = { top: top ? top.height : 0, bottom: phone && east ? innerHeight - east.top : foot ? foot.height : 0, left: west ? west.width : 0, right: east && !phone ? east.width : 0 };
    for (const [side, pixels] of Object.entries(sides)) body.style.setProperty(`--ms-${side}`, `${pixels}px`);
    drawPlots();
  };

  // ---- state of the run ---------------------------------------------------------------------------------------------
  const veil = (title, words = "") => { $("ms-veil").hidden = !title; text("ms-veil-title", title); text("ms-veil-text", words); };
  const pill = (kind, words) => { const node = $("ms-pill"); node.className = `pill ${kind}`; put(node, words); };
  const connect = () => {
    socket = new WebSocket(`${location.origin.replace("http", "ws")}${location.pathname.replace(/\/$/, "")}/panels`);
    socket.onopen = () => { hasEnded = false; setTheme(isDark()); setView(view); };
    socket.onmessage = (event) => receive(JSON.parse(event.data));
    socket.onclose = () => lost();
  };
  const lost = () => {
    const first = state !== null || !document.body.classList.contains("ms-lost"), time = $("ms-time").textContent;
    state = null; releaseAll(); document.body.classList.add("ms-lost");
    pill("gone", hasEnded ? "The run has ended" : "No connection");
    if (first && hasEnded) veil(`The run has ended${time === "–" ? "" : ` at ${time} s`}`, "The last moment stays visible. Start the run again in the terminal, and this page reconnects automatically.");
    else if (first) veil("Connection lost", "The run may have stopped, or this machine was asleep. Check the terminal; this page reconnects automatically.");
    for (const node of $("ms").querySelectorAll("#ms-transport button, #ms-transport input, #ms-drive button, #ms-look button, #ms-look input, #ms-scenario")) node.disabled = true;
    setTimeout(again, RETRY_MS);
  };
  const again = async () => { // a run that was restarted gives out new addresses at the front door
    try {
      const answer = await fetch(location.pathname, { redirect: "manual", cache: "no-store" });
      if (answer.type === "opaqueredirect") { asked.delete("websocket"); location.replace(`/?${asked}`); return; }
    } catch { setTimeout(again, RETRY_MS); return; }
    connect();
  };
  const receive = (message) => {
    if (message.type === "scene") onScene(message);
    else if (message.type === "image") { images[message.topic] = message; if (message.topic === camera) showImage(); }
    else if (message.type === "end") hasEnded = true;
    else if (message.type === "progress") { busy = message.text; waitForScene(); }
    else if (message.type === "fields") { fields = message.sensors; requestPlots(); showChoices(); }
    else if (message.type === "state" && scene) onState(message);
  };
  const onScene = (message) => {
    const isOther = !scene || scene.scenario !== message.scenario; scene = message; series = []; fields = []; if (isOther) added = []; choosePlots(); plots.zoom(null); for (const topic of Object.keys(images)) delete images[topic];
    document.body.classList.remove("ms-lost");
    for (const node of $("ms").querySelectorAll("#ms-transport button, #ms-transport input, #ms-drive button, #ms-look button, #ms-look input")) node.disabled = false;
    if (!drivable().some((each) => each.name === robot)) robot = (drivable().at(-1) || {}).name || "";
    if (!scene.cameras.includes(camera)) camera = scene.cameras[0] || "";
    const chooser = $("ms-scenario"), kinds = Object.entries(scene.choices), isKnown = kinds.some(([kind, names]) => names.some((name) => `${kind}:${name}` === scene.chosen));
    chooser.replaceChildren(...(isKnown ? [] : [option("", scene.scenario)]), ...kinds.map(([kind, names]) => { const group = make("optgroup", { label: GROUPS[kind] || kind }); group.append(...names.map((name) => option(`${kind}:${name}`, name))); return group; }));
    chooser.value = isKnown ? scene.chosen : ""; chooser.disabled = kinds.length === 0;
    chooser.title = kinds.length ? "Choose another demo, scenario or world" : `This run stays in ${scene.scenario}`;
    const replay = scene.mode === "replay";
    for (const id of ["ms-reset", "ms-seed-box", "ms-drive"]) show(id, !replay);
    show("ms-branch", false); show("ms-camera", Boolean(camera)); show("ms-no-robots", !scene.robots.length);
    $("ms-scrub").title = replay ? "Go to any tick of the recording" : "Look back: drag to any tick of the last two minutes";
    text("ms-plot-of", "drag to zoom"); showStory();
    document.title = `${scene.title || scene.scenario} · MicroSim`;
    choosers(); buildFacts();
    $("ms-layers").replaceChildren(...Object.entries(scene.layers).map(([name, shown]) => {
      const [word, tip] = LAYER_WORDS[name] || [name, name];
      const box = make("input", { type: "checkbox", "data-layer": name, onchange: (event) => send("layer", [name, event.target.checked]) }); box.checked = shown;
      return make("label", { title: `${tip} (on all pages)` }, box, word);
    }));
    $("ms-scale").value = scene.scale; text("ms-scale-now", String(Math.round(scene.scale * 10) / 10));
    $("ms-seed").value = ""; show("ms-image", false); show("ms-no-image", true); text("ms-camera-stamp", "");
    rows.links = {}; $("ms-links").replaceChildren(head("", "sent", "lost", "ms", "queue"));
    waitForScene(); send("theme", document.documentElement.dataset.theme === "dark");
    choose(robot); marks(); fit();
  };
  const choosers = () => { // few robots are buttons, many are a list
    const robots = drivable(), names = robots.map((each) => each.name), few = names.length <= FEW && names.join("").length <= SHORT, shots = scene.cameras, isOnly = (topic) => shots.filter((each) => each.split("/")[1] === topic.split("/")[1]).length === 1, shortly = (topic) => (isOnly(topic) ? topic.split("/")[1] : topic.split("/").slice(1, 3).join(" ").replace(/_/g, " "));
    $("ms-robots").replaceChildren(...(few ? robots : []).map((each) => make("button", { "data-robot": each.name, title: `Drive and follow ${each.name}`, onclick: () => choose(each.name) }, mark(each.colour), each.name)));
    $("ms-robot-list").replaceChildren(...(few ? [] : names).map((name) => option(name))); show("ms-robot-list", !few); show("ms-robots", few);
    const fewShots = shots.length <= FEW && shots.map(shortly).join("").length <= SHORT + 8;
    $("ms-cameras").replaceChildren(...(shots.length > 1 && fewShots ? shots : []).map((topic) => make("button", { "data-topic": topic, title: `Show ${topic}`, onclick: () => { camera = topic; showImage(); marks(); } }, shortly(topic))));
    $("ms-camera-list").replaceChildren(...(fewShots ? [] : shots).map((topic) => option(topic, shortly(topic)))); show("ms-camera-list", !fewShots); show("ms-cameras", shots.length > 1 && fewShots);
  };

  const onState = (message) => {
    const before = state; state = message;
    if (!before) { show("ms-reset", scene.mode === "live"); waitForScene(); }
    if (before && message.epoch !== before.epoch && !message.is_past && !before.is_past && message.tick < before.tick) setView(view === "free" ? "all" : view);
    tellEvents(message);
    if (message.plot.whole) series = [];
    for (const point of message.plot.points) series.push(point);
    if (message.plot.points.length && scene.mode === "replay") series.sort((a, b) => a.t - b.t);
    while (scene.mode === "live" && series.length && series[0].t < series[series.length - 1].t - 2.2 * WINDOW_S) series.shift();
    text("ms-time", message.time.toFixed(2)); text("ms-tick", message.tick.toLocaleString("en")); text("ms-seed-now", message.seed);
    text("ms-rtf", message.paused ? "–" : `${message.rtf.toFixed(2)} ×`); text("ms-late", message.paused ? "–" : `${message.late_ms.toFixed(1)} ms`);
    $("ms-late").parentElement.title = `Lag of the last tick behind its time; the worst so far was ${message.worst_ms.toFixed(1)} ms`;
    pill(message.is_past ? "past" : message.paused ? "paused" : "", message.is_past ? "Looking back" : message.paused ? "Paused" : scene.mode === "replay" ? "Replay" : "Running");
    text("ms-play", message.paused ? (message.is_past ? "To now" : "Play") : "Pause");
    if (document.activeElement !== $("ms-seed") && (!before || before.next_seed !== message.next_seed || !$("ms-seed").value)) $("ms-seed").value = message.next_seed;
    const speed = SPEEDS.indexOf(message.speed); if (speed >= 0) $("ms-speed").value = speed;
    text("ms-speed-now", `Speed ${message.speed === 0 ? "max" : `${message.speed}×`}`);
    text("ms-digest", message.digest); timeline(message); facts(message); links(message); drawPlots();
    for (const [name, shown] of Object.entries(message.layers)) { const box = document.querySelector(`[data-layer="${name}"]`); if (box) box.checked = shown; }
    log(message.log);
    text("ms-driven", message.driven ? `by hand: ${message.driven}` : message.pilot ? "by its pilot" : "");
    show("ms-release", Boolean(message.driven && message.pilot));
  };
  const waitForScene = () => { // the veil stays until the ground is drawn, and says what it waits for
    if (hasEnded || document.body.classList.contains("ms-lost") || !scene) return;
    clearTimeout(drawn);
    const seen = window.MicroSimDrawn, missing = busy ? busy : !state ? "Waiting for the first state of the run" : !document.querySelector("#root canvas") ? "Waiting for WebGL" : seen.ground !== scene.ground ? "Waiting for the ground"
      : scene.splats && scene.layers.splats && !seen.splats ? `Waiting for ${scene.splats.toLocaleString("en")} splats` : "";
    if (missing) { veil(busy ? `${missing.split(":")[0]}…` : `Opening ${scene.title || scene.scenario}…`, busy ? missing.split(":").slice(1).join(":") : missing); drawn = setTimeout(waitForScene, 100); } else veil("");
  };
  const load = (chooser) => { const words = chooser.selectedOptions[0].textContent; busy = `Loading ${words}:waiting for the run`; waitForScene(); send("load", chooser.value); chooser.blur(); };
  const showStory = () => {
    show("ms-story", Boolean(scene.title || scene.about || scene.mode === "live")); text("ms-story-title", scene.title || scene.scenario); text("ms-about", scene.about.replaceAll("`", "")); show("ms-about", Boolean(scene.about));
    const kinds = new Set([...scene.kinds, ...(scene.layers.radio ? ["radio"] : []), "waypoints"]);
    const entry = (shape, colour, words) => make("li", { "data-sign": words }, make("i", { class: `sign ${shape}`, style: `background:${colour}` }), words);
    $("ms-legend").replaceChildren(...scene.robots.slice(0, 6).map((each) => entry("dot", css(each.colour), each.name)), ...LEGEND.filter(([kind]) => kinds.has(kind)).map(([, ...rest]) => entry(...rest)));
    $("ms-events").replaceChildren();
  };
  const listed = (words) => [words.slice(0, -1).join(", "), words.at(-1)].filter(Boolean).join(" and ");
  const tellEvents = (message) => { // what the pilot reports, up to the moment that is shown
    const seen = message.events.filter(([seconds]) => seconds <= message.time + 1e-6).slice(-4), key = JSON.stringify(seen);
    if ($("ms-events").dataset.key !== key) { $("ms-events").dataset.key = key; $("ms-events").replaceChildren(...seen.map(([seconds, words]) => make("li", {}, make("time", {}, `${seconds.toFixed(1)} s:`), ` ${words}`))); }
    const goals = document.querySelector("[data-sign=waypoints]"); if (goals) goals.hidden = !message.pilot;
    const idle = scene.mode === "live" && !message.driven ? message.idle : []; show("ms-hint", idle.length > 0 && message.time > 1);
    if (idle.length) text("ms-hint", `${idle.length > 3 ? `${idle.length} robots` : listed(idle)} ${idle.length > 1 ? "have" : "has"} no pilot. To drive, choose a robot under Drive and hold ${isTouch() ? "a button" : "I, J, K or L"}.`);
    show("ms-the-end", message.restart_s !== null && message.restart_s !== undefined);
    if (message.restart_s) text("ms-the-end", `The end. Starts again in ${Math.ceil(message.restart_s)} s.`);
  };
  const timeline = (message) => {
    const [first, last] = message.past, scrub = $("ms-scrub");
    scrub.min = first; scrub.max = Math.max(last, first + 1); if (!seeking) scrub.value = message.tick;
    scrub.setAttribute("aria-valuetext", `${message.time.toFixed(2)} seconds, tick ${message.tick}`);
    text("ms-from", `${(first / scene.hz).toFixed(1)} s`); text("ms-to", `${(last / scene.hz).toFixed(1)} s`);
    text("ms-what", message.is_past ? `showing ${message.time.toFixed(2)} s, tick ${message.tick.toLocaleString("en")}` : "");
    show("ms-branch", scene.mode === "live" && message.is_past);
    $("ms-back-1").disabled = message.tick <= first;
  };
  const head = (...words) => make("tr", {}, ...words.map((word) => make("th", { scope: "col" }, word)));
  const buildFacts = () => { // cells stay, only their texts change, so that what is pointed at or clicked does not vanish
    rows.facts = {};
    $("ms-facts").replaceChildren(...(scene.robots.length ? [head("", "x, y", "up", "m/s", "beam")] : []), ...scene.robots.map((each) => {
      const cells = [1, 2, 3, 4].map(() => make("td", {}, "–"));
      const pick = make("button", { class: "pick", title: `${Object.keys(each.limits).length ? "Drive and follow" : "Follow"} ${each.name} (${each.model})`, onclick: () => choose(each.name) }, mark(each.colour), make("span", {}, each.name));
      const row = make("tr", { "data-row": each.name }, make("td", {}, pick), ...cells); rows.facts[each.name] = cells; return row;
    }));
  };
  const short = (value) => number(value, Math.abs(value) < 100 ? 1 : 0);
  const facts = (message) => {
    $("ms-facts").classList.toggle("no-beam", !Object.values(message.robots).some((each) => each.beam !== undefined || each.touching.length));
    for (const [name, cells] of Object.entries(rows.facts)) {
      const now = message.robots[name]; if (!now) continue;
      const seen = now.beam === undefined ? "–" : now.beam === null ? "clear" : now.beam.toFixed(1);
      [`${short(now.position[0])}, ${short(now.position[1])}`, short(now.height), short(now.speed), now.touching.length ? "hit" : seen].forEach((word, index) => put(cells[index], word));
      cells[3].className = now.touching.length ? "bad" : ""; cells[3].title = `${now.contacts} contacts since the start${now.touching.length ? `, touches ${now.touching.join(", ")}` : ""}`;
    }
  };
  const links = (message) => { // of many, those of the chosen robot
    const many = message.links.length > 8, seen = many ? message.links.filter((each) => each.from === robot) : message.links;
    show("ms-radio", message.links.length > 0); text("ms-radio-of", many ? `from ${robot}` : "");
    const names = new Set(seen.map((each) => `${each.from} → ${each.to}`));
    for (const name of Object.keys(rows.links)) if (!names.has(name)) { rows.links[name].row.remove(); delete rows.links[name]; }
    for (const each of seen) {
      const name = `${each.from} → ${each.to}`;
      if (!rows.links[name]) { const cells = [1, 2, 3, 4].map(() => make("td", {})), row = make("tr", {}, make("td", { class: "long" }, many ? `→ ${each.to}` : name), ...cells); rows.links[name] = { row, cells }; $("ms-links").append(row); }
      const { row, cells } = rows.links[name]; row.title = `${name}: ${each.delivered} delivered, after ${each.latency.toFixed(0)} ms on average, the last after ${each.last} ms, ${each.queued} on the way${each.rssi === null ? "" : `, ${each.rssi} dBm`}`;
      [String(each.sent), String(each.lost), each.latency.toFixed(0), String(each.queued)].forEach((word, index) => put(cells[index], word)); cells[1].className = each.lost ? "bad" : "";
    }
  };
  const log = (news) => {
    if (!news.length) return;
    const lines = $("ms-lines"), atEnd = lines.scrollTop + lines.clientHeight > lines.scrollHeight - 30;
    for (const [id, seconds, level, words, times] of news) {
      const old = lines.querySelector(`[data-line="${id}"]`); if (old) old.remove();
      lines.append(make("li", { class: level, "data-line": id }, make("time", {}, `${seconds.toFixed(1)} s`), make("i", { "aria-label": level }, LEVEL_MARKS[level] || "·"), make("span", {}, words), times > 1 ? make("b", { title: `${times} times` }, `×${times.toLocaleString("en")}`) : ""));
    }
    while (lines.children.length > 200) lines.firstChild.remove();
    const warnings = lines.querySelectorAll(".warn, .error").length;
    text("ms-log-count", warnings ? `${warnings} warning${warnings > 1 ? "s" : ""}` : ""); show("ms-no-lines", !lines.children.length);
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  };
  const showImage = () => { const found = images[camera]; show("ms-image", Boolean(found)); show("ms-no-image", !found); if (found) { $("ms-image").src = `data:image/png;base64,${found.png}`; $("ms-image").alt = `what ${camera} sees`; } text("ms-camera-stamp", found ? `${found.stamp.toFixed(2)} s` : ""); };
  const choose = (name) => {
    releaseAll(); robot = name; const chosen = scene.robots.find((each) => each.name === name);
    for (const code of Object.keys(KEYS)) document.querySelector(`[data-key="${code}"]`).disabled = !chosen || !axisInput(chosen, KEYS[code][0]);
    $("ms-robot-list").value = name; const own = scene.cameras.find((topic) => topic.startsWith(`/${name}/`)); if (own && scene.cameras.length > FEW) { camera = own; $("ms-camera-list").value = own; showImage(); }
    marks(); if (state) links(state); drawPlots(); if (view === "chase" || view === "top") setView(view);
  };
  const marks = () => {
    const mark = (nodes, is) => { for (const node of nodes) { node.classList.toggle("on", is(node)); if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(is(node))); } };
    mark(document.querySelectorAll("[data-robot]"), (node) => node.dataset.robot === robot); mark(document.querySelectorAll("[data-row]"), (node) => node.dataset.row === robot);
    mark(document.querySelectorAll("[data-topic]"), (node) => node.dataset.topic === camera); mark(document.querySelectorAll("[data-mode]"), (node) => node.dataset.mode === view);
  };
  let view = "all";
  const setView = (mode) => { view = mode; send("view", { mode, robot }); marks(); };
  const reset = () => { const seed = $("ms-seed").value.trim(); send("reset", seed === "" ? null : seed); };
  const playOrPause = () => send("pause", !(state && state.paused));
  const stepBack = () => { if (state && state.tick > state.past[0]) send("seek", state.tick - 1); };
  function copyDigest() { const done = (word) => { text("ms-copy", word); setTimeout(() => text("ms-copy", "Copy"), 1500); }; (navigator.clipboard ? navigator.clipboard.writeText($("ms-digest").textContent) : Promise.reject(new Error())).then(() => done("Copied"), () => done("Select it by hand")); }
  const requestSeek = (tick) => { // at most one request under way
    if (wantedTick === null) setTimeout(() => { send("seek", wantedTick); wantedTick = null; }, 40);
    wantedTick = tick;
  };
  function onScrub(event) { seeking = true; requestSeek(Number(event.target.value)); }

  // ---- plots --------------------------------------------------------------------------------------------------------
  const lineColour = (name) => { const found = scene && scene.robots.find((each) => each.name === name.split(" → ")[0]); return found ? css(found.colour) : "#888"; };
  let plotsDue = null; // at most five times a second
  const drawPlots = () => { if (plotsDue === null) plotsDue = setTimeout(() => { plotsDue = null; drawPlotsNow(); }, 200); };
  const drawPlotsNow = () => {
    if (!scene || !plots) return;
    const newest = series.length ? series[series.length - 1].t : 0, now = state ? state.time : newest, isBack = Boolean(state && (state.is_past || scene.mode === "replay"));
    const end = scene.mode === "replay" ? Math.max(now, Math.min(WINDOW_S, newest)) : now < newest - WINDOW_S ? now + 0.5 * WINDOW_S : newest;
    const first = series.length ? series[0].t : 0, start = Math.max(end - WINDOW_S, Math.min(first, Math.max(end - 10, 0)), 0);
    const zoomed = plots.zoomed(); text("ms-plot-of", zoomed ? "" : "drag to zoom");
    plots.draw({ points: series, start, end, cursor: isBack ? now : null, chosen: robot });
    show("ms-no-plots", !plots.shown().length);
  };

  const choosePlots = () => { plots.choose([...scene.plots, ...added]); showChoices(); };
  const showChoices = () => window.MicroSimPlots.offer($("ms-add-plot"), fields, [...scene.plots, ...added]);
  const requestPlots = () => { for (const each of fields) if (each.plots.some((plot) => added.some(({ kind }) => kind === plot.kind))) send("plot", each.topic); }; // after a restart too
  const addPlot = (kind) => {
    const owners = fields.filter((each) => each.plots.some((plot) => plot.kind === kind)); if (!owners.length) return;
    added.push(owners[0].plots.find((plot) => plot.kind === kind)); requestPlots(); choosePlots(); plots.zoom(null); drawPlots(); // its points begin now
  };

  // ---- driving ------------------------------------------------------------------------------------------------------
  const drivable = () => scene.robots.filter((each) => Object.keys(each.limits).length); // actors on a path take no commands
  const axisInput = (chosen, axis) => AXES[axis].find((name) => name in chosen.limits);
  const command = () => {
    const chosen = scene && scene.robots.find((each) => each.name === robot); if (!chosen || !drivable().includes(chosen)) return null;
    const share = Number($("ms-throttle").value) / 100, inputs = Object.fromEntries(Object.keys(chosen.limits).map((name) => [name, 0]));
    for (const code of held) { const [axis, sign] = KEYS[code], input = axisInput(chosen, axis); if (input) inputs[input] += sign * share * chosen.limits[input]; }
    return [robot, inputs];
  };
  const drive = () => { const wanted = command(); if (wanted && scene.mode === "live") send("drive", wanted); };
  const showHeld = () => { for (const node of document.querySelectorAll("[data-key]")) node.classList.toggle("held", held.has(node.dataset.key)); };
  const press = (code) => {
    if (held.has(code) || !scene || document.querySelector(`[data-key="${code}"]`).disabled) return;
    held.add(code); showHeld(); drive();
    if (view === "all") setView("chase"); // the robot that is driven stays in view
    if (heartbeat === null) heartbeat = setInterval(drive, HEARTBEAT_MS);
  };
  const release = (code) => { if (!held.delete(code)) return; showHeld(); drive(); if (!held.size) { clearInterval(heartbeat); heartbeat = null; } };
  const releaseAll = () => { for (const code of [...held]) release(code); };
  const stopRobot = () => { releaseAll(); drive(); };
  const isTyping = (target) => target instanceof HTMLElement && (target.tagName === "SELECT" || target.isContentEditable || (target.tagName === "INPUT" && target.type === "text"));
  const SHORTCUTS = { KeyP: playOrPause, Comma: stepBack, Period: () => send("step", 1), ...Object.fromEntries(VIEWS.map(([mode], index) => [`Digit${index + 1}`, () => setView(mode)])) };
  const isReached = () => { const node = document.activeElement; return Boolean(node && node.closest("#ms") && node.matches("button:focus-visible, input[type=checkbox]:focus-visible")); };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "?") { showKeys(); event.preventDefault(); }
    else if (event.code in KEYS) { if (!event.repeat) press(event.code); event.preventDefault(); }
    else if (event.code === "Space") { stopRobot(); if (!isReached()) event.preventDefault(); } // a button reached by Tab is pressed too
    else if (event.code in SHORTCUTS && (!event.repeat || event.code !== "KeyP")) { SHORTCUTS[event.code](); event.preventDefault(); }
    else if (event.code === "Escape" && !$("ms-keys").hidden) showKeys(false);
    else if (event.code === "Escape" && document.body.classList.contains("ms-clean")) setClean(false);
  }, true);
  addEventListener("keyup", (event) => { if (event.code in KEYS) release(event.code); else if (event.code === "Space" && !isTyping(event.target) && !isReached()) event.preventDefault(); }, true);
  addEventListener("blur", releaseAll);
  document.addEventListener("visibilitychange", () => { if (document.hidden) releaseAll(); else drawPlots(); });
  addEventListener("resize", () => fit());

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", build); else build();
})();
