"use strict";
// The panels: what the run tells them comes over one websocket, what a user wants goes back over it. No library, no build.
(() => {
  const config = window.MICROSIM || {};
  // viser's splats are squares of two coordinates; three.js wants a third for a sphere around them, complains, and draws them well.
  const complain = console.error.bind(console);
  console.error = (...words) => { if (!String(words[0]).startsWith("THREE.BufferGeometry.computeBoundingSphere(): Computed radius is NaN")) complain(...words); };
  const asked = new URLSearchParams(location.search);
  const HEARTBEAT_MS = 100; // while a key is held; the run stops the robot when it hears nothing for 400 ms
  const SPEEDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 0]; // 0: as fast as possible
  const KEYS = { // key -> what it does: axis of the command, direction, words
    KeyY: ["up", 1, "up"], KeyU: ["side", 1, "left"], KeyI: ["ahead", 1, "ahead"], KeyO: ["side", -1, "right"],
    KeyH: ["up", -1, "down"], KeyJ: ["turn", 1, "turn left"], KeyK: ["ahead", -1, "back"], KeyL: ["turn", -1, "turn right"],
  };
  const AXES = { ahead: ["vx", "v", "speed", "velocity"], side: ["vy"], up: ["vz"], turn: ["yaw_rate", "omega", "steering", "steering_angle", "steer"] };
  const LAYER_WORDS = {
    trails: ["Trails", "The ways robots came"], sensors: ["Sensors", "Range beams, scans, camera frustums and GPS fixes"], radio: ["Radio", "Packets between robots: green arrives, red is lost"],
    waypoints: ["Waypoints", "Where a pilot wants to go"], labels: ["Scale", "Metres along the edges, and north"], frames: ["Frames", "Axes of map, base_link and sensors: x red, y green, z blue"],
    lidar: ["LiDAR", "Points, coloured by height"], splats: ["Splats", "The Gaussian splats of the world bundle"], drivable: ["Drivable", "Where the car may drive"],
  };
  let socket = null, scene = null, state = null, robot = "", camera = "", series = [], seeking = false, seekWish = null, heartbeat = null;
  const held = new Set(), images = {}, plots = {};

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
  const text = (id, value) => { const node = $(id); if (node && node.textContent !== value) node.textContent = value; };
  const css = (colour) => `rgb(${colour.join(",")})`;
  const send = (kind, value = null) => { if (socket && socket.readyState === 1) socket.send(JSON.stringify({ kind, value })); };
  const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));

  // ---- light and dark -----------------------------------------------------------------------------------------------
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const setTheme = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; send("theme", dark); drawPlots(); };
  const firstTheme = () => {
    if (asked.has("dark") || asked.has("light")) return asked.has("dark");
    const kept = localStorage.getItem("microsim-theme");
    if (kept) return kept === "dark";
    return config.dark ?? matchMedia("(prefers-color-scheme: dark)").matches;
  };
  document.documentElement.dataset.theme = firstTheme() ? "dark" : "light";

  // ---- the panels ---------------------------------------------------------------------------------------------------
  const logo = '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round"><circle cx="5" cy="6" r="2.6"/><circle cx="19" cy="6" r="2.6"/><path d="M7 8l3 3.2M17 8l-3 3.2"/><rect x="9" y="10.5" width="6" height="4.4" rx="1.4"/><path d="M4 20.5h16"/><path d="M12 15v3.2" stroke-dasharray=".1 2.6"/></svg>';
  const fact = (id, name, tip) => make("div", { class: "fact", title: tip }, make("b", { id }, "–"), make("span", {}, name));

  const topBar = () => {
    const brand = make("div", { class: "brand", title: "MicroSim" }); brand.innerHTML = `${logo}<span>MicroSim</span>`;
    return make("header", { id: "ms-bar" }, brand,
      make("select", { id: "ms-scenario", "aria-label": "Scenario", title: "Scenario: choose another world to run", onchange: (event) => send("load", event.target.value) }),
      make("span", { id: "ms-pill", class: "pill", "data-testid": "status" }, "…"), make("div", { class: "space" }),
      make("div", { class: "clock", title: "Simulated time" }, make("span", { id: "ms-time", "data-testid": "time" }, "0.00"), make("small", {}, " s")),
      fact("ms-tick", "tick", "Ticks since the start: the unit of simulated time"), fact("ms-seed-now", "seed", "The seed of all noise in this run"),
      fact("ms-rtf", "real time", "Simulated seconds per second, over the last two"), fact("ms-late", "late", "How late the last tick was (and the latest of all)"),
      make("button", { id: "ms-theme", title: "Light or dark", "aria-label": "Light or dark", onclick: () => { localStorage.setItem("microsim-theme", isDark() ? "light" : "dark"); setTheme(!isDark()); } }, "◐"),
      make("button", { id: "ms-clean", title: "Only the scene: hide the panels (press again to bring them back)", onclick: () => { document.body.classList.toggle("ms-clean"); fit(); } }, "▢"));
  };

  const left = () => make("aside", { id: "ms-left", class: "column" },
    make("section", { id: "ms-camera" }, make("h2", {}, "Camera", make("em", { id: "ms-camera-stamp" })),
      make("img", { id: "ms-image", alt: "what the camera sees", title: "The newest image, as it was published", "data-testid": "camera" }),
      make("div", { id: "ms-cameras", class: "group wide", style: "margin-top:.45em" })),
    make("section", {}, make("h2", {}, "Last minute"), make("div", { id: "ms-plots" })),
    make("section", { id: "ms-radio" }, make("h2", {}, "Radio"), make("table", { id: "ms-links", "data-testid": "links" })));

  const padButton = (code) => {
    const [axis, sign, words] = KEYS[code];
    const button = make("button", { "data-key": code, title: `${words}: hold this button, or the key ${code.slice(3)}` }, make("kbd", {}, code.slice(3)), make("span", {}, words));
    button.addEventListener("pointerdown", (event) => { event.preventDefault(); button.setPointerCapture(event.pointerId); press(code); });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(end, () => release(code));
    return button;
  };

  const right = () => make("aside", { id: "ms-right", class: "column" },
    make("section", { id: "ms-drive" }, make("h2", {}, "Drive", make("em", { id: "ms-driven" })),
      make("div", { id: "ms-robots", class: "group wide" }),
      make("div", { class: "pad" }, ...["KeyY", "KeyU", "KeyI", "KeyO", "KeyH", "KeyJ", "KeyK", "KeyL"].map(padButton),
        make("button", { class: "stop", id: "ms-stop", title: "Stop the robot at once: this button, or the space bar", onclick: () => stopRobot() }, make("kbd", {}, "space"), make("span", {}, "stop"))),
      make("div", { class: "row", style: "margin-top:.5em" }, make("span", { class: "note", style: "margin:0" }, "Speed"),
        make("input", { id: "ms-throttle", type: "range", min: 5, max: 100, step: 5, value: 60, title: "How fast keys drive, in percent of the robot's limit", "aria-label": "Speed of driving", oninput: (event) => text("ms-throttle-now", `${event.target.value} %`) }),
        make("span", { id: "ms-throttle-now", class: "note", style: "margin:0;min-width:3.2em;text-align:right" }, "60 %")),
      make("button", { id: "ms-release", style: "margin-top:.5em;width:100%;display:none", title: "Let the pilot have this robot again", onclick: () => send("release") }, "Hand back to the pilot")),
    make("section", {}, make("h2", {}, "Robots"), make("table", { id: "ms-facts", "data-testid": "robots" })),
    make("section", {}, make("h2", {}, "View"),
      make("div", { class: "group wide", id: "ms-view" },
        ...[["free", "Free", "Move the camera yourself: drag, scroll, W A S D Q E"], ["chase", "Chase", "Follow the chosen robot from behind"], ["top", "Top", "Look down on the chosen robot"], ["home", "All", "See all robots"]]
          .map(([mode, word, tip]) => make("button", { "data-mode": mode, title: tip, onclick: () => setView(mode) }, word))),
      make("div", { id: "ms-layers", class: "layers" }),
      make("div", { class: "row", style: "margin-top:.5em" }, make("span", { class: "note", style: "margin:0;white-space:nowrap" }, "Robots ×"),
        make("input", { id: "ms-scale", type: "range", min: 1, max: 6, step: 0.5, value: 1, title: "How much larger than life robots are drawn, on all pages", "aria-label": "Size of robots", onchange: (event) => send("scale", Number(event.target.value)) }),
        make("span", { id: "ms-scale-now", class: "note", style: "margin:0" }, "1"))),
    make("section", {}, make("h2", {}, "Digest so far"), make("div", { id: "ms-digest", class: "digest", title: "SHA-256 over every message since the start: the same scenario, seed and commands give the same", "data-testid": "digest" })),
    make("section", { id: "ms-log" }, make("h2", {}, "Log"), make("ol", { id: "ms-lines", "data-testid": "log" })));

  const bottom = () => make("footer", { id: "ms-transport" },
    make("button", { id: "ms-play", class: "main", title: "Pause or go on", onclick: () => send("pause", !(state && state.paused)) }, "Pause"),
    make("div", { class: "group" }, ...[1, 10, 60].map((ticks) => make("button", { id: `ms-step-${ticks}`, title: `Advance by ${ticks} tick${ticks > 1 ? "s" : ""}, and pause`, onclick: () => send("step", ticks) }, `+${ticks}`))),
    make("label", { class: "small" }, "Seed", make("input", { id: "ms-seed", type: "text", inputmode: "numeric", title: "Seed for the next reset", onkeydown: (event) => { if (event.key === "Enter") reset(); event.stopPropagation(); } })),
    make("button", { id: "ms-reset", title: "Back to the start, with this seed", onclick: () => reset() }, "Reset"),
    make("div", { id: "ms-timeline" }, make("input", { id: "ms-scrub", type: "range", min: 0, max: 1, step: 1, value: 0, title: "Look back: drag to any moment that is kept", "aria-label": "Timeline", oninput: onScrub, onchange: () => { seeking = false; } }),
      make("div", { class: "ends" }, make("span", { id: "ms-from" }, "0 s"), make("span", { id: "ms-what" }, ""), make("span", { id: "ms-to" }, "0 s"))),
    make("button", { id: "ms-branch", title: "Forget what came after this moment, and go on from here", onclick: () => send("branch") }, "Branch here"),
    make("label", { class: "small", id: "ms-speed-box" }, make("span", { id: "ms-speed-now", style: "font-size:1em;color:var(--dim)" }, "Speed 1×"),
      make("input", { id: "ms-speed", type: "range", min: 0, max: SPEEDS.length - 1, step: 1, value: 3, title: "Simulated seconds per second: 0.1 to 50, then as fast as possible", "aria-label": "Speed", oninput: (event) => send("speed", SPEEDS[Number(event.target.value)]) })));

  const build = () => {
    const root = make("div", { id: "ms" }, left(), right(), topBar(), bottom(), make("div", { id: "ms-hints" }, make("span", {}, "drag: turn · right drag: move · scroll: nearer")),
      make("button", { id: "ms-show", title: "Show the panels again", onclick: () => { document.body.classList.remove("ms-clean"); fit(); } }, "Panels"));
    document.body.append(root);
    document.body.classList.add("ms-ready");
    if (asked.has("clean")) document.body.classList.add("ms-clean");
    fit(); connect();
  };
  const fit = () => { // viser's canvas fills what the panels leave
    document.body.classList.toggle("ms-narrow", innerWidth < 900);
    const style = getComputedStyle($("ms")), em = parseFloat(style.fontSize);
    for (const side of ["left", "right", "top", "bottom"]) document.body.style.setProperty(`--ms-${side}`, `${parseFloat(style.getPropertyValue(`--${side}`)) * (style.getPropertyValue(`--${side}`).includes("em") ? em : 1)}px`);
    drawPlots();
  };

  // ---- what the run tells -------------------------------------------------------------------------------------------
  const connect = () => {
    socket = new WebSocket(`${location.origin.replace("http", "ws")}${location.pathname.replace(/\/$/, "")}/panels`);
    socket.onopen = () => { setTheme(isDark()); };
    socket.onmessage = (event) => hear(JSON.parse(event.data));
    socket.onclose = () => { state = null; const pill = $("ms-pill"); pill.className = "pill gone"; pill.textContent = "The run has ended"; setTimeout(connect, 1500); };
  };
  const hear = (message) => {
    if (message.type === "scene") onScene(message);
    else if (message.type === "image") { images[message.topic] = message; if (message.topic === camera) showImage(); }
    else if (message.type === "state" && scene) onState(message);
  };
  const onScene = (message) => {
    scene = message; series = []; for (const topic of Object.keys(images)) delete images[topic];
    if (!scene.robots.some((each) => each.name === robot)) robot = (scene.robots[scene.robots.length - 1] || {}).name || "";
    camera = scene.cameras[0] || "";
    const chooser = $("ms-scenario"), names = scene.scenarios.includes(scene.scenario) ? scene.scenarios : [scene.scenario, ...scene.scenarios];
    chooser.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    chooser.value = scene.scenario; chooser.disabled = scene.scenarios.length === 0;
    const replay = scene.mode === "replay";
    $("ms-reset").style.display = replay ? "none" : ""; $("ms-seed").parentElement.style.display = replay ? "none" : "";
    $("ms-drive").style.display = replay ? "none" : ""; $("ms-branch").style.display = "none";
    $("ms-camera").style.display = camera ? "" : "none";
    document.title = `${scene.title || scene.scenario} · MicroSim`;
    $("ms-robots").replaceChildren(...scene.robots.map((each) => make("button", { "data-robot": each.name, title: `Keys and view belong to ${each.name}`, onclick: () => choose(each.name) }, mark(each.colour), each.name)));
    $("ms-cameras").replaceChildren(...(scene.cameras.length > 1 ? scene.cameras : []).map((topic) => make("button", { "data-topic": topic, title: `Show ${topic}`, onclick: () => { camera = topic; showImage(); marks(); } }, topic.split("/").slice(1, 3).join(" "))));
    $("ms-layers").replaceChildren(...Object.entries(scene.layers).map(([name, shown]) => {
      const [word, tip] = LAYER_WORDS[name] || [name, name];
      const box = make("input", { type: "checkbox", "data-layer": name, onchange: (event) => send("layer", [name, event.target.checked]) }); box.checked = shown;
      return make("label", { title: `${tip} (on all pages)` }, box, word);
    }));
    $("ms-scale").value = scene.scale; text("ms-scale-now", String(Math.round(scene.scale * 10) / 10));
    $("ms-seed").value = "";
    buildPlots(); choose(robot); marks();
  };
  const mark = (colour) => make("i", { class: "key-colour", style: `background:${css(colour)}` });

  const onState = (message) => {
    const before = state; state = message;
    if (message.plot.whole) series = [];
    series.push(...message.plot.points);
    const newest = series.length ? series[series.length - 1].t : 0;
    while (series.length && series[0].t < newest - 60) series.shift();
    text("ms-time", message.time.toFixed(2)); text("ms-tick", message.tick.toLocaleString("en")); text("ms-seed-now", message.seed);
    text("ms-rtf", message.paused ? "–" : `${message.rtf.toFixed(2)} ×`); text("ms-late", message.paused ? "–" : `${message.late_ms.toFixed(1)} ms`);
    $("ms-late").parentElement.title = `How late the last tick was; the latest of all was ${message.worst_ms.toFixed(1)} ms late`;
    const pill = $("ms-pill"); pill.className = `pill${message.is_past ? " past" : message.paused ? " paused" : ""}`;
    pill.textContent = message.is_past ? "Looking back" : message.paused ? "Paused" : scene.mode === "replay" ? "Replay" : "Running";
    text("ms-play", message.paused ? (message.is_past ? "To now" : "Play") : "Pause");
    if (document.activeElement !== $("ms-seed") && (!before || before.next_seed !== message.next_seed || !$("ms-seed").value)) $("ms-seed").value = message.next_seed;
    const speed = SPEEDS.indexOf(message.speed); if (speed >= 0) $("ms-speed").value = speed;
    text("ms-speed-now", `Speed ${message.speed === 0 ? "max" : `${message.speed}×`}`);
    text("ms-digest", message.digest); timeline(message); facts(message); links(message); drawPlots();
    for (const [name, shown] of Object.entries(message.layers)) { const box = document.querySelector(`[data-layer="${name}"]`); if (box) box.checked = shown; }
    for (const [, seconds, level, words] of message.log) {
      const lines = $("ms-lines"), line = make("li", { class: level }, make("time", {}, `${seconds.toFixed(1)} s`), words);
      lines.append(line); while (lines.children.length > 200) lines.firstChild.remove(); lines.scrollTop = lines.scrollHeight;
    }
    text("ms-driven", message.driven ? `by hand: ${message.driven}` : message.pilot ? "by its pilot" : "");
    $("ms-release").style.display = message.driven && message.pilot ? "" : "none";
    marks();
  };
  const timeline = (message) => {
    const [first, last] = message.past, scrub = $("ms-scrub");
    scrub.min = first; scrub.max = Math.max(last, first + 1); if (!seeking) scrub.value = message.tick;
    text("ms-from", `${(first / scene.hz).toFixed(1)} s`); text("ms-to", `${(last / scene.hz).toFixed(1)} s`);
    text("ms-what", message.is_past ? `looking at ${message.time.toFixed(2)} s` : "");
    $("ms-branch").style.display = scene.mode === "live" && message.is_past ? "" : "none";
  };
  const facts = (message) => {
    const rows = [make("tr", {}, make("th", {}, ""), ...["x, y [m]", "up [m]", "m/s", "range"].map((word) => make("th", {}, word)))];
    for (const each of scene.robots) {
      const now = message.robots[each.name]; if (!now) continue;
      const seen = now.range === undefined ? "–" : now.range === null ? "clear" : now.range.toFixed(1);
      rows.push(make("tr", { "data-row": each.name }, make("td", {}, mark(each.colour), each.name), make("td", {}, `${now.position[0].toFixed(1)}, ${now.position[1].toFixed(1)}`), make("td", {}, number(now.height)), make("td", {}, number(now.speed)), make("td", {}, seen)));
    }
    $("ms-facts").replaceChildren(...rows);
  };
  const links = (message) => {
    $("ms-radio").style.display = message.links.length ? "" : "none";
    const rows = [make("tr", {}, ...["", "sent", "lost", "mean", "queue"].map((word) => make("th", {}, word)))];
    for (const each of message.links) rows.push(make("tr", { title: `${each.delivered} delivered, last after ${each.last} ms${each.rssi === null ? "" : `, ${each.rssi} dBm`}` }, make("td", {}, `${each.from} → ${each.to}`), make("td", {}, String(each.sent)), make("td", { class: each.lost ? "bad" : "" }, String(each.lost)), make("td", {}, `${each.latency.toFixed(0)} ms`), make("td", {}, String(each.queued))));
    $("ms-links").replaceChildren(...rows);
  };
  const showImage = () => { const found = images[camera]; if (found) { $("ms-image").src = `data:image/png;base64,${found.png}`; text("ms-camera-stamp", `${found.stamp.toFixed(2)} s`); } };
  const choose = (name) => { releaseAll(); robot = name; const chosen = scene.robots.find((each) => each.name === name); for (const code of Object.keys(KEYS)) document.querySelector(`[data-key="${code}"]`).disabled = !chosen || !axisInput(chosen, KEYS[code][0]); marks(); if (view !== "free" && view !== "home") setView(view); };
  const marks = () => {
    for (const node of document.querySelectorAll("[data-robot]")) node.classList.toggle("on", node.dataset.robot === robot);
    for (const node of document.querySelectorAll("[data-topic]")) node.classList.toggle("on", node.dataset.topic === camera);
    for (const node of document.querySelectorAll("[data-mode]")) node.classList.toggle("on", node.dataset.mode === view);
  };
  let view = "free";
  const setView = (mode) => { view = mode === "home" ? "free" : mode; send("view", { mode, robot }); marks(); };
  const reset = () => { const wish = $("ms-seed").value.trim(); send("reset", wish === "" ? null : wish); };
  function onScrub(event) { // at most one wish on its way
    seeking = true; const wish = Number(event.target.value);
    if (seekWish === null) setTimeout(() => { send("seek", seekWish); seekWish = null; }, 40);
    seekWish = wish;
  }

  // ---- plots --------------------------------------------------------------------------------------------------------
  const PLOTS = { height: ["Height above ground", "m"], speed: ["Speed", "m/s"], range: ["Range", "m"], latency: ["Radio latency", "ms"], lost: ["Packets lost", ""] };
  const buildPlots = () => {
    const nodes = [];
    for (const [key, [name, unit]] of Object.entries(PLOTS)) {
      const canvas = make("canvas", { "data-plot": key }), now = make("b", {}, "–");
      const node = make("div", { class: "plot", style: "display:none" }, make("div", { class: "name", title: `${name}: each robot in its own colour` }, name, now), canvas);
      plots[key] = { node, canvas, now, unit }; nodes.push(node);
    }
    $("ms-plots").replaceChildren(...nodes);
  };
  const lineColour = (name) => { const found = scene.robots.find((each) => each.name === name.split(" → ")[0]); return found ? css(found.colour) : "#888"; };
  const drawPlots = () => { if (scene && document.body.classList.contains("ms-ready") && !document.hidden) for (const key of Object.keys(plots)) drawPlot(key, plots[key]); };
  const drawPlot = (key, { node, canvas, now, unit }) => {
    const names = [...new Set(series.flatMap((point) => Object.keys(point[key]).filter((name) => point[key][name] !== null)))];
    node.style.display = names.length ? "" : "none"; if (!names.length) return;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight; if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    const pen = canvas.getContext("2d"), look = getComputedStyle(document.documentElement);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0); pen.clearRect(0, 0, width, height);
    const values = series.flatMap((point) => Object.values(point[key])).filter((value) => value !== null);
    let low = Math.min(0, ...values), high = Math.max(1, ...values); high += 0.08 * (high - low);
    const end = series[series.length - 1].t, start = Math.max(end - 60, Math.min(series[0].t, Math.max(end - 10, 0))), stop = Math.max(end, start + 1), em = parseFloat(getComputedStyle(canvas).fontSize), side = 2.4 * em;
    const u = (t) => side + (t - start) / (stop - start) * (width - side - 2), v = (value) => height - 1.25 * em - (value - low) / (high - low) * (height - 1.6 * em);
    pen.font = `${0.72 * em}px system-ui, sans-serif`; pen.fillStyle = look.getPropertyValue("--dim"); pen.strokeStyle = look.getPropertyValue("--line"); pen.lineWidth = 1;
    pen.textBaseline = "middle"; pen.textAlign = "right";
    for (const value of [low, 0.5 * (low + high), high]) { pen.beginPath(); pen.moveTo(side, v(value)); pen.lineTo(width, v(value)); pen.stroke(); pen.fillText(high - low < 5 ? value.toFixed(1) : value.toFixed(0), side - 4, v(value)); }
    pen.textBaseline = "alphabetic"; pen.textAlign = "left"; pen.fillText(`${start.toFixed(0)} s`, side, height - 1); pen.textAlign = "right"; pen.fillText(`${stop.toFixed(0)} s`, width - 1, height - 1);
    const shown = [];
    names.forEach((name, index) => {
      pen.strokeStyle = lineColour(name); pen.lineWidth = 1.7; pen.lineJoin = "round"; pen.beginPath(); let drawing = false;
      for (const point of series) { const value = point[key][name]; if (point.t < start || value === null || value === undefined) { drawing = false; continue; } if (drawing) pen.lineTo(u(point.t), v(value)); else pen.moveTo(u(point.t), v(value)); drawing = true; }
      pen.stroke(); const last = series[series.length - 1][key][name]; if (last !== null && last !== undefined) shown.push(`${last.toFixed(unit === "m" || unit === "m/s" ? 1 : 0)}`);
    });
    now.textContent = `${shown.join(" · ") || "–"} ${unit}`;
  };

  // ---- driving ------------------------------------------------------------------------------------------------------
  const axisInput = (chosen, axis) => AXES[axis].find((name) => name in chosen.limits);
  const command = () => {
    const chosen = scene && scene.robots.find((each) => each.name === robot); if (!chosen) return null;
    const share = Number($("ms-throttle").value) / 100, inputs = Object.fromEntries(Object.keys(chosen.limits).map((name) => [name, 0]));
    for (const code of held) { const [axis, sign] = KEYS[code], input = axisInput(chosen, axis); if (input) inputs[input] += sign * share * chosen.limits[input]; }
    return [robot, inputs];
  };
  const drive = () => { const wish = command(); if (wish && scene.mode === "live") send("drive", wish); };
  const showHeld = () => { for (const node of document.querySelectorAll("[data-key]")) node.classList.toggle("held", held.has(node.dataset.key)); };
  const press = (code) => {
    if (held.has(code) || !scene || document.querySelector(`[data-key="${code}"]`).disabled) return;
    held.add(code); showHeld(); drive();
    if (heartbeat === null) heartbeat = setInterval(drive, HEARTBEAT_MS);
  };
  const release = (code) => { if (!held.delete(code)) return; showHeld(); drive(); if (!held.size) { clearInterval(heartbeat); heartbeat = null; } };
  const releaseAll = () => { for (const code of [...held]) release(code); };
  const stopRobot = () => { releaseAll(); drive(); };
  const isTyping = (target) => target instanceof HTMLElement && (target.tagName === "SELECT" || target.isContentEditable || (target.tagName === "INPUT" && target.type === "text"));
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.code in KEYS) { if (!event.repeat) press(event.code); event.preventDefault(); }
    else if (event.code === "Space") { stopRobot(); event.preventDefault(); }
  }, true);
  addEventListener("keyup", (event) => { if (event.code in KEYS) release(event.code); else if (event.code === "Space") event.preventDefault(); }, true);
  addEventListener("blur", releaseAll);
  document.addEventListener("visibilitychange", () => { if (document.hidden) releaseAll(); else drawPlots(); });
  addEventListener("resize", () => fit());

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", build); else build();
})();
