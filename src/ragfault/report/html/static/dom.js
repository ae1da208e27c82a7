"use strict";

// Elements are made here and nowhere else: strings become text nodes, so nothing in a trace can become markup.

function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return node;
}

function set(node, name, value) {
  if (typeof value === "function") node.addEventListener(name, value);
  else if (value === true) node.setAttribute(name, "");
  else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
}

const find = (id) => document.getElementById(id);

// Control characters and bidirectional overrides are shown as signs of their own. Every replacement has the
// length of what it replaces, so that offsets into the text stay true.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;
const BREAKS = /[\u2028\u2029]/g;

function visible(text) {
  return String(text)
    .replace(BREAKS, "\n")
    .replace(/\r(?=\n)/g, " ")
    .replace(CONTROLS, (sign) => (sign < " " ? String.fromCharCode(0x2400 + sign.charCodeAt(0)) : "\u2421"))
    .replace(OVERRIDES, "\ufffd");
}

// Offsets in a run count characters; a browser counts UTF-16 units.
function unit(text, offset) {
  if (!/[\ud800-\udfff]/.test(text)) return Math.max(0, Math.min(offset, text.length));
  return Array.from(text).slice(0, Math.max(0, offset)).join("").length;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}

const count = (n, one, many = one + "s") => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

function sign(glyph, text, kind = "") {
  return el("span.sign" + (kind ? "." + kind : ""), {}, el("span", { "aria-hidden": "true" }, glyph), " ", text);
}
