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

// --- values under the pointer -----------------------------------------------------------------------

// The point of a chart that is nearest to the pointer says its value below the chart.
function showNearest(event) {
  const chart = event.target.closest("figure svg.chart");
  const output = chart && chart.closest("section").querySelector(".hovered");
  if (!output) return;
  let nearest = null;
  let least = 40 ** 2;
  for (const dot of chart.querySelectorAll("circle")) {
    const box = dot.getBoundingClientRect();
    const away = (box.x + box.width / 2 - event.clientX) ** 2 + (box.y + box.height / 2 - event.clientY) ** 2;
    if (away < least) [nearest, least] = [dot, away];
  }
  output.textContent = nearest ? nearest.querySelector("title").textContent : "";
}

document.addEventListener("DOMContentLoaded", () => {
  openTheme();
  document.addEventListener("pointermove", showNearest);
  openKeys();
  document.addEventListener("keydown", onKey);
  document.documentElement.dataset.ready = "";
});
