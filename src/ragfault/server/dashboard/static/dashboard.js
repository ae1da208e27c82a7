"use strict";

// --- keys -------------------------------------------------------------------------------------------

const PLACES = { o: "/", i: "/insights", t: "/traces", n: "/incidents", c: "/clusters", r: "/runs", d: "/drift" };
const ROOT = document.documentElement.dataset.root || "";
let going = false;

function move(step) {
  const links = [...document.querySelectorAll("a.go")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

function onKey(event) {
  if (preferences.get("keys") === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  if (going && PLACES[event.key]) location.assign(ROOT + PLACES[event.key]);
  going = event.key === "g";
  if (event.key === "j") move(1);
  if (event.key === "k") move(-1);
  if (event.key === "?") location.assign(`${ROOT}/help`);
  if (event.key === "/") {
    event.preventDefault();
    const field = document.getElementById("search");
    if (field) field.focus(); else location.assign(`${ROOT}/traces#search`);
  }
}

function openKeys() {
  const button = document.getElementById("keys");
  if (!button) return;
  const showState = () => {
    const on = preferences.get("keys") !== "off";
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Keys are on" : "Keys are off";
  };
  button.hidden = false;
  button.addEventListener("click", () => { preferences.set("keys", preferences.get("keys") === "off" ? "on" : "off"); showState(); });
  showState();
}

document.addEventListener("DOMContentLoaded", () => {
  openTheme();
  openKeys();
  document.addEventListener("keydown", onKey);
  document.documentElement.dataset.ready = "";
});
