"use strict";

// A page that says so fetches itself anew while somebody sees it. Only what changed is put in place: the focus, a
// selection, a field that was written in and what was unfolded stay as the reader left them.

const FIELDS = "input, select, textarea";

// What names an element among its siblings.
const named = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "");

function touched(field) {
  if (field === document.activeElement) return true;
  if (field.matches("select")) {
    return field.selectedIndex !== Math.max(0, [...field.options].findIndex((each) => each.defaultSelected));
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
  const wanted = new Set([...fresh.childNodes].map(named));
  const there = new Map();
  for (const child of [...old.childNodes]) {
    const name = named(child);
    if (name && !wanted.has(name)) child.remove();
    else if (name) there.set(name, child);
  }
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const name = named(next);
    const alike = at && !name && !named(at) && at.nodeName === next.nodeName;
    const same = name ? there.get(name) : alike ? at : null;
    if (same && same.nodeName === next.nodeName) {
      there.delete(name);
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
  } else if (!old.isEqualNode(fresh) && !(old.matches(FIELDS) && touched(old))) {
    followAttributes(old, fresh);
    followChildren(old, fresh);
  }
}

// What the reader is likely to look at: what stands in the upper part of the window.
function looked(main) {
  const there = document.elementFromPoint(innerWidth / 2, innerHeight / 3);
  return there && main.contains(there) ? there : main;
}

function put(main, page) {
  const fresh = page.getElementById("main");
  const reading = getSelection();
  if (!fresh || (!reading.isCollapsed && main.contains(reading.anchorNode))) return;
  const held = document.activeElement;
  const inside = main.contains(held);
  const anchor = inside && held !== main ? held : looked(main);
  const top = anchor.getBoundingClientRect().top;
  follow(main, fresh);
  if (scrollY && anchor.isConnected) {
    scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
  }
  if (inside && document.activeElement !== held) {
    (main.contains(held) ? held : main).focus({ preventScroll: true });
  }
  document.title = page.title;
}

async function fetched() {
  const answer = await fetch(location.href, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(30000) });
  if (!answer.ok) throw new Error(answer.status);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function openRenewal() {
  const main = document.getElementById("main");
  const button = document.getElementById("renewal");
  const said = document.getElementById("renewed");
  const chosen = kept.get("renewal");
  let paused = chosen === "off" || (chosen !== "on" && matchMedia("(prefers-reduced-motion: reduce)").matches);
  let timer;
  const plan = () => {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(round, 1000 * Number(main.dataset.renew));
  };
  const round = async () => {
    clearTimeout(timer);
    try {
      const page = await fetched();
      if (!paused) put(main, page);
      said.textContent = "";
    } catch {
      said.textContent = "This page could not be renewed.";
    }
    plan();
  };
  const say = () => { button.textContent = paused ? "Resume updates" : "Pause updates"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    kept.set("renewal", paused ? "off" : "on");
    say();
    if (paused) clearTimeout(timer); else round();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer); else if (!paused) round();
  });
  say();
  plan();
}

document.addEventListener("DOMContentLoaded", openRenewal);
