"use strict";
// viser draws its splats as squares of two coordinates that its shader puts in place. three.js cannot tell how far such a geometry reaches:
// it finds a radius of NaN and reports an error. They may be anywhere, so they get a sphere without end, before three.js looks for one.
(() => {
  const AFTER_SPLATS = 10_000.5; // viser draws splats at 10,000 and labels from 10,001 on
  const setBounds = (geometry) => {
    if (!geometry || geometry.boundingSphere || geometry.attributes.position?.itemSize !== 2) return;
    const empty = new geometry.constructor(); // its sphere is of the class that three.js keeps to itself
    empty.computeBoundingSphere();
    geometry.boundingSphere = empty.boundingSphere;
    geometry.boundingSphere.radius = Infinity;
  };
  // The shadows under robots lie on the splats: they are drawn after them, and leave no depth, which would cut their square out of the splats.
  // An image that a robot's camera shows is such a plane too, in front of the camera.
  const layShadow = (each) => {
    if (each.geometry?.type !== "PlaneGeometry" || !each.material?.map || !each.material.depthWrite || each.position.z !== 0) return;
    each.material.depthWrite = false;
    each.renderOrder = AFTER_SPLATS;
  };
  const drawn = (window.MicroSimDrawn = { ground: "", splats: false, eye: [0, 0, 0] }); // what the page waits for, and where it looks from
  const onBeforeRender = (renderer, scene, camera) => {
    drawn.eye = camera.position.toArray();
    let hasSplats = false;
    scene.traverse((each) => {
      setBounds(each.geometry);
      layShadow(each);
      if (each.name.startsWith("ground_")) drawn.ground = each.name;
      if (each.geometry?.attributes.position?.itemSize === 2) hasSplats = true;
    });
    drawn.splats = hasSplats;
  };
  window.__THREE_DEVTOOLS__ ??= new EventTarget(); // where three.js reports each scene it makes
  window.__THREE_DEVTOOLS__.addEventListener("observe", ({ detail }) => { if (detail.isScene) detail.onBeforeRender = onBeforeRender; });
})();
