"use strict";
// What pages do beyond links and forms. Everything here adds to a page that reads well without it.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// --- theme: system, light, dark, remembered ---------------------------------------------------------

const THEMES = ["system", "light", "dark"];
const themeButton = $("[data-theme-toggle]");

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function showTheme() {
  $("[data-theme-text]", themeButton).textContent = theme()[0].toUpperCase() + theme().slice(1);
  themeButton.setAttribute("aria-label", `Colours: ${theme()}. Change`);
}

themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("specscope-theme");
    else localStorage.setItem("specscope-theme", next);
  } catch {
    // The choice holds for this page only.
  }
  showTheme();
  document.dispatchEvent(new Event("specscope:theme"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new Event("specscope:theme")),
);
themeButton.hidden = false;
showTheme();

// --- live: paused by the reader, quiet in a hidden tab, honest when the server does not answer ---------

const liveButton = $("[data-live]");
let paused = false;
let answered = new Date();

function showLive(stale) {
  if (!liveButton) return;
  const text = paused ? "Paused" : stale ? `No answer since ${answered.toLocaleTimeString()}` : "Live";
  liveButton.classList.toggle("stale", stale && !paused);
  liveButton.setAttribute("aria-pressed", String(!paused));
  $("[data-live-text]", liveButton).textContent = text;
}

if (liveButton) {
  liveButton.hidden = false;
  liveButton.addEventListener("click", () => {
    paused = !paused;
    showLive(false);
  });
  document.addEventListener("htmx:before:request", (event) => {
    if (paused || document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:after:swap", () => {
    answered = new Date();
    showLive(false);
    dress();
  });
  for (const name of ["htmx:error", "htmx:response:error"])
    document.addEventListener(name, () => showLive(true));
}

// --- small helps --------------------------------------------------------------------------------------

/** Give what the server rendered its local touches; called again after each refresh. */
function dress() {
  for (const time of $$("time[datetime]"))
    time.title = `${new Date(time.dateTime).toLocaleString()} local time`;
  for (const button of $$("[data-copy]")) button.hidden = !navigator.clipboard;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  navigator.clipboard.writeText($("code", button.parentElement).textContent).then(() => {
    button.textContent = "Copied";
  });
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.submit();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  event.preventDefault();
  $("[data-shortcut='/']").focus();
});

dress();
