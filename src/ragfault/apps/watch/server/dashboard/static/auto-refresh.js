"use strict";

// A page with this mark reloads itself while it is visible. Only what changed is replaced: the focus, a
// selection, a field that was written in and what was unfolded stay as the reader left them.

const FIELDS = "input, select, textarea";

// What names an element among its siblings.
const nodeKey = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "");

function isEdited(field) {
  if (field === document.activeElement) return true;
  if (field.matches("select")) {
    return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
  }
  return field.value !== field.defaultValue;
}

function followAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
}

function followChildren(old, fresh) {
  const freshKeys = new Set([...fresh.childNodes].map(nodeKey));
  const existing = new Map();
  for (const child of [...old.childNodes]) {
    const name = nodeKey(child);
    if (name && !freshKeys.has(name)) child.remove();
    else if (name) existing.set(name, child);
  }
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const name = nodeKey(next);
    const alike = at && !name && !nodeKey(at) && at.nodeName === next.nodeName;
    const same = name ? existing.get(name) : alike ? at : null;
    if (same && same.nodeName === next.nodeName) {
      existing.delete(name);
      if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
      follow(same, next);
    } else {
      old.insertBefore(document.importNode(next, true), at);
    }
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
}

function follow(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
  } else if (!old.isEqualNode(fresh) && !(old.matches(FIELDS) && isEdited(old))) {
    followAttributes(old, fresh);
    followChildren(old, fresh);
  }
}

// The elements in the upper part of the window, which the reader is likely to look at.
function findAnchor(main) {
  const there = document.elementFromPoint(innerWidth / 2, innerHeight / 3);
  return there && main.contains(there) ? there : main;
}

function applyPage(main, page) {
  const fresh = page.getElementById("main");
  const reading = getSelection();
  if (!fresh || (!reading.isCollapsed && main.contains(reading.anchorNode))) return;
  const focused = document.activeElement;
  const inside = main.contains(focused);
  const anchor = inside && focused !== main ? focused : findAnchor(main);
  const top = anchor.getBoundingClientRect().top;
  follow(main, fresh);
  if (scrollY && anchor.isConnected) {
    scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
  }
  if (inside && document.activeElement !== focused) {
    (main.contains(focused) ? focused : main).focus({ preventScroll: true });
  }
  document.title = page.title;
}

async function fetchPage() {
  const answer = await fetch(location.href, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(30000) });
  if (!answer.ok) throw new Error(answer.status);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function startAutoRefresh() {
  const main = document.getElementById("main");
  const button = document.getElementById("refresh-toggle");
  const status = document.getElementById("refresh-status");
  const chosen = preferences.get("refresh-toggle");
  let paused = chosen === "off" || (chosen !== "on" && matchMedia("(prefers-reduced-motion: reduce)").matches);
  let timer;
  const schedule = () => {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(refresh, 1000 * Number(main.dataset.refresh));
  };
  const refresh = async () => {
    clearTimeout(timer);
    try {
      const page = await fetchPage();
      if (!paused) applyPage(main, page);
      status.textContent = "";
    } catch {
      status.textContent = "This page could not be refreshed.";
    }
    schedule();
  };
  const showState = () => { button.textContent = paused ? "Resume updates" : "Pause updates"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    preferences.set("refresh-toggle", paused ? "off" : "on");
    showState();
    if (paused) clearTimeout(timer); else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer); else if (!paused) refresh();
  });
  showState();
  schedule();
}

document.addEventListener("DOMContentLoaded", startAutoRefresh);
