"use strict";

// The theme follows the reader's own until the button says otherwise.
function openTheme() {
  const button = document.getElementById("theme");
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (wanted.matches ? "dark" : "light")) === "dark";
  const name = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  wanted.addEventListener("change", name);
  name();
}
