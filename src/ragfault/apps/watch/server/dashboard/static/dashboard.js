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

// --- a time chosen on a chart -----------------------------------------------------------------------

// Dragging a mouse over a chart shows that time on the whole page; the form above does the same without a script.
function openBrush() {
  let field = null;
  let begin = 0;
  const shareAt = (event) => {
    const box = field.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.x) / box.width));
  };
  const show = (from, to) => {
    let shown = field.parentNode.querySelector(".brushed");
    if (!shown) {
      shown = field.cloneNode();
      shown.setAttribute("class", "brushed");
      field.after(shown);
    }
    const [x, width] = [Number(field.getAttribute("x")), Number(field.getAttribute("width"))];
    shown.setAttribute("x", x + width * Math.min(from, to));
    shown.setAttribute("width", width * Math.abs(to - from));
  };
  for (const hint of document.querySelectorAll(".brush-hint")) hint.hidden = false;
  document.addEventListener("pointerdown", (event) => {
    const chart = event.pointerType === "mouse" && event.button === 0 && event.target.closest("svg.chart");
    field = chart ? chart.querySelector(".brush") : null;
    if (!field) return;
    begin = shareAt(event);
    event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => { if (field) show(begin, shareAt(event)); });
  document.addEventListener("pointerup", (event) => {
    if (!field) return;
    const [first, last] = [Number(field.dataset.first), Number(field.dataset.last)];
    const minutes = [begin, shareAt(event)].sort((a, b) => a - b).map((share) => first + share * (last - first));
    const [since, until] = [Math.floor(minutes[0]), Math.ceil(minutes[1])];
    const shown = field.parentNode.querySelector(".brushed");
    if (shown) shown.remove();
    const width = field.getBoundingClientRect().width;
    field = null;
    if ((minutes[1] - minutes[0]) / (last - first) * width < 5) return;
    const url = new URL(location.href);
    url.searchParams.delete("window");
    url.searchParams.set("since", 60 * since);
    url.searchParams.set("until", 60 * until);
    location.assign(url);
  });
}

// --- menu -------------------------------------------------------------------------------------------

/** A narrow window cuts the menu off: bring the current page into view. */
function showCurrent() {
  const link = document.querySelector("nav [aria-current]");
  if (!link) return;
  const menu = link.closest("nav");
  menu.scrollLeft = link.offsetLeft - (menu.clientWidth - link.offsetWidth) / 2;
}

document.addEventListener("DOMContentLoaded", () => {
  openTheme();
  showCurrent();
  openBrush();
  document.addEventListener("pointermove", showNearest);
  openKeys();
  document.addEventListener("keydown", onKey);
  document.documentElement.dataset.ready = "";
});
