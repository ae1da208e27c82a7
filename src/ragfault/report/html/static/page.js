// The page: tooltips, links to traces, and the start.

// Marks of charts carry their figures as labels; the tooltip shows the label of the mark under the pointer.
function openTips() {
  const tip = find("tip");
  const show = (event) => {
    const mark = event.target.closest?.("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute("data-tip");
    const box = mark.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (box.top > tip.offsetHeight + 12 ? box.top - tip.offsetHeight - 8 : box.bottom + 8) + "px";
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });
}

function linked() {
  const match = /^#trace=(.*)$/.exec(location.hash);
  if (!match) return null;
  try {
    return decodeURIComponent(match[1]);
  } catch {
    return match[1];
  }
}

function follow() {
  const id = linked();
  if (id === null) return;
  find("traces").scrollIntoView();
  const place = store.place.get(id);
  if (place === undefined) {
    find("detail").replaceChildren(el("p.empty", {}, "This run has no trace ", el("bdi", {}, visible(id)), "."));
    return;
  }
  if (place === detail.place) return;
  reveal(place);
  showTrace(place, true);
}

function pick(place, focus = false) {
  if (detail.place === place && focus) {
    enterPane(find("detail"));
    return;
  }
  history.replaceState(null, "", "#trace=" + encodeURIComponent(store.index.ids[place]));
  showTrace(place, focus);
}

// A button of the scorecard that narrows the list to one cause, one kind of problem or one level.
function openFilters() {
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      find("filters").reset();
      const name = button.dataset.filter;
      find(name).value = String(store.index[name + "s"].indexOf(button.dataset.value));
      refill();
      find("traces").scrollIntoView();
      find("list").focus({ preventScroll: true });
    });
  }
}

// Without a link the first trace is shown, and neither the address nor the focus moves.
function first() {
  choose(0, true);
  showTrace(list.shown[0]);
}

async function start() {
  openTheme();
  openTips();
  if (!("DecompressionStream" in window)) {
    find("waiting").textContent = "This browser cannot unpack the traces. Open the page in a browser of 2023 or later.";
    return;
  }
  await openStore();
  find("waiting").hidden = true;
  find("browser").hidden = false;
  openList(pick);
  openFilters();
  find("detail").addEventListener("keydown", (event) => { if (event.key === "Escape") find("list").focus(); });
  addEventListener("hashchange", follow);
  if (linked() !== null) follow();
  else if (list.shown.length) first();
  document.documentElement.dataset.ready = "yes";
}

start();
