"""The process of the page: viser draws the scene, `page.js` the panels around it."""
