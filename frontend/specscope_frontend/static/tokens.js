"use strict";
// A request's tokens: what the pointer is on, or the arrow keys have come to, is said in words below them.
// Everything said is in the table of refused drafts and the table of steps as well.

const CAME = {
  ac: (t) => `accepted at depth ${t.dataset.d}`,
  bo: () => "bonus: the target's own, behind a draft, or a branch of it, of which all was accepted",
  co: () => "the target's own, after a rejection",
  un: () => "the target's own: nothing was drafted",
  pr: () => "the target's own, from a prefill",
};
let current = null;

/** The text that a token belongs to: its own, or that of the run whose bar it is. */
function textOf(token) {
  const run = token.closest(".rn");
  return run ? `${run.firstElementChild.textContent} (one of ${$$(".tk", run).length} tokens)` : token.textContent;
}

/** What the table says of the draft that was refused in a step; a dash there is not recorded. */
function refused(step) {
  const row = document.getElementById(`refused-${step}`);
  if (!row) return "";
  const [, said, , favourite, rank, prob, choice, can] = [...row.cells].map((cell) => cell.textContent.trim());
  const known = (value, words) => (value === "–" ? "" : `; ${words(value)}`);
  return (
    (said === "–" ? "; what the draft had said is not recorded" : `; the draft had said ${said}`) +
    known(favourite, (p) => `its favourite had ${p} of its probability`) +
    known(rank, (n) => `the target's rank of it ${n}, probability ${prob}`) +
    known(choice, (p) => `the draft gave the target's choice ${p}`) +
    (can === "no" ? "; the draft's vocabulary lacks the target's choice" : "") +
    (favourite === "–" && rank === "–" ? "; probability and rank were not taken in this step" : "")
  );
}

function say(token, place) {
  const said = document.querySelector("[data-token-said]");
  const [, came] = Object.entries(CAME).find(([name]) => token.classList.contains(name)) ?? [];
  const text = document.createElement("b");
  text.textContent = textOf(token).replaceAll("\n", "");
  const more = token.classList.contains("co") ? refused(token.dataset.s) : "";
  const tree = document.createElement("a");
  tree.href = token.closest("[data-tokens]").dataset.tree.replace("NUMBER", token.dataset.s);
  tree.textContent = `Draft of step ${token.dataset.s}`;
  said.replaceChildren(text, ` · id ${token.dataset.t} · ${came ? came(token) : ""}${more} · `, tree, place);
}

document.addEventListener("pointerover", (event) => {
  const token = event.target.closest?.("[data-tokens] .tk");
  if (token) say(token, "");
});

document.addEventListener("click", (event) => {
  const token = event.target.closest?.("[data-tokens] .tk");
  if (token) reach(token, "");
});

/** Make a token the current one, in sight and said. */
function reach(token, place) {
  current?.classList.remove("at");
  current = token;
  token.classList.add("at");
  token.scrollIntoView({ block: "nearest" });
  say(token, place);
}

document.addEventListener("keydown", (event) => {
  const box = event.target.closest?.("[data-tokens]");
  if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
  const tokens = $$(".tk", box);
  const at = tokens.indexOf(current);
  const to = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    Home: 0,
    End: tokens.length - 1,
    // The next one and the one before that followed a rejection.
    ArrowDown: tokens.findIndex((t, place) => place > at && t.classList.contains("co")),
    ArrowUp: tokens.findLastIndex((t, place) => place < at && t.classList.contains("co")),
  }[event.key];
  if (event.key === "Enter" && at >= 0) {
    location.href = box.dataset.tree.replace("NUMBER", current.dataset.s);
  } else if (to !== undefined) {
    event.preventDefault();
    if (tokens[to]) reach(tokens[to], ` · token ${to + 1} of ${tokens.length} shown`);
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy-json]");
  if (!button) return;
  try {
    const answer = await fetch(button.dataset.copyJson);
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    await navigator.clipboard.writeText(await answer.text());
    button.textContent = "Copied";
  } catch (error) {
    button.textContent = `Not copied: ${error.message}`;
  }
});

for (const name of ["DOMContentLoaded", "htmx:after:swap"])
  document.addEventListener(name, () => {
    for (const button of $$("[data-copy-json]")) button.hidden = !navigator.clipboard;
  });
