"use strict";

// The theme is the reader's own until the button says otherwise; what it says is remembered where the browser allows it.
const preferences = {
  get(name) { try { return localStorage.getItem("ragfault-" + name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem("ragfault-" + name, value); } catch { /* storage is unavailable */ } },
};
const storedTheme = preferences.get("theme");
if (storedTheme === "light" || storedTheme === "dark") document.documentElement.dataset.theme = storedTheme;

function openTheme() {
  const button = document.getElementById("theme");
  const systemTheme = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (systemTheme.matches ? "dark" : "light")) === "dark";
  const name = () => button.setAttribute("aria-pressed", String(dark()));
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    preferences.set("theme", document.documentElement.dataset.theme);
    name();
  });
  systemTheme.addEventListener("change", name);
  name();
}
