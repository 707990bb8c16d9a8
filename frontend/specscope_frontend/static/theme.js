"use strict";
// Runs before the first paint: a remembered choice of light or dark wins over the system's.
(() => {
  try {
    const chosen = localStorage.getItem("specscope-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage can be forbidden; the system's scheme is used then.
  }
})();
