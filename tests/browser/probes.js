// What tests ask a page: given to it as an expression, which gives an object of questions.
({
  // Texts that are hard to read against what is behind them: WCAG AA asks for 4.5 : 1.
  pale() {
    const dot = document.createElement("canvas"); dot.width = dot.height = 1;
    const pen = dot.getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
    const linear = (part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = (node) => { for (; node; node = node.parentElement) { const found = rgba(getComputedStyle(node).backgroundColor); if (found[3] > 200) return found; } return [255, 255, 255]; };
    const found = [], walk = document.createTreeWalker(document.getElementById("ms"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const words = walk.currentNode.textContent.trim(), node = walk.currentNode.parentElement;
      if (!words || !node.getClientRects().length || node.closest(":disabled")) continue;
      const [a, b] = [light(rgba(getComputedStyle(node).color)), light(behind(node))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) found.push(`${words}: ${ratio.toFixed(1)}`);
    }
    return found;
  },
  // Controls that stick out of the window to the left or right.
  outside() {
    return [...document.querySelectorAll("#ms button, #ms select, #ms input, #ms table, #ms .clock, #ms .pill")].filter((node) => node.getClientRects().length)
      .filter((node) => { const { left, right } = node.getBoundingClientRect(); return left < -0.5 || right > innerWidth + 0.5; }).map((node) => node.id || node.outerHTML);
  },
  // Parts of the two bars that lie on each other.
  overlapping() {
    const all = [...document.querySelectorAll("#ms-bar > *, #ms-transport > *")].filter((node) => node.getClientRects().length && !node.matches(".space")), box = (node) => node.getBoundingClientRect(), found = [];
    for (const a of all) for (const b of all) {
      if (a === b || a.parentElement !== b.parentElement) continue;
      if (box(a).left < box(b).right - 1 && box(b).left < box(a).right - 1 && box(a).top < box(b).bottom - 1 && box(b).top < box(a).bottom - 1) found.push(`${a.id} on ${b.id}`);
    }
    return found;
  },
  // Texts smaller than 12 px.
  small() {
    const found = [], walk = document.createTreeWalker(document.getElementById("ms"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const words = walk.currentNode.textContent.trim(), node = walk.currentNode.parentElement, size = parseFloat(getComputedStyle(node).fontSize);
      if (words && node.getClientRects().length && size < 12) found.push(`${words}: ${size} px`);
    }
    return found;
  },
  // A press of the pointer in a plot, at that share of its width; dragged to another share, if one is given.
  press(kind, share, to = share) {
    const plot = document.querySelector(`canvas[data-plot="${kind}"]`), box = plot?.getBoundingClientRect();
    if (!box?.width) return; // a plot without points is not shown, and a drag there would be a click, which seeks
    const at = (type, where) => plot.dispatchEvent(new PointerEvent(type, { clientX: box.left + where * box.width, clientY: box.top + 5, buttons: 1 }));
    at("pointerdown", share); if (to !== share) at("pointermove", to); at("pointerup", to);
  },
});
