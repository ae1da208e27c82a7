// The list of traces: filtered, sorted, and drawn only where it is seen.

const list = { shown: [], active: -1, height: 76, box: null, inner: null, pick: null };

function openList(pick) {
  list.pick = pick;
  list.box = find("list");
  list.inner = find("rows");
  list.box.addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  list.box.addEventListener("keydown", onListKey);
  new ResizeObserver(drawRows).observe(list.box);
  fillChoices();
  for (const id of ["search", "kind", "cause", "level", "route", "sort", "order"]) {
    find(id).addEventListener("input", refill);
  }
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("clear").addEventListener("click", resetFilters);
  refill();
}

function fillChoices() {
  const { kinds, causes, levels, routes, scores } = store.index;
  const choices = (id, names) => find(id).append(...names.map(([value, text]) => el("option", { value }, text)));
  choices("kind", [["any", "any problem"], ...kinds.map((name, i) => [i, store.legend.kinds[name].title])]);
  choices("cause", causes.map((name, i) => [i, store.legend.causes[name]]));
  find("cause").closest("label").hidden = !causes.length;
  choices("level", levels.map((name, i) => [i, name]));
  choices("route", routes.map((name, i) => [i, visible(name)]));
  find("route").closest("label").hidden = routes.length < 2;
  const first = ["triad", "groundedness"].filter((name) => name in scores);
  const rest = Object.keys(scores).filter((name) => !first.includes(name));
  choices("sort", [...first, ...rest].map((name) => [name, name]));
}

function resetFilters() {
  find("filters").reset();
  refill();
  find("search").focus();
}

function chosen() {
  const value = (id) => find(id).value;
  const { problems, cause, level, route } = store.index;
  const tests = [];
  const words = value("search").toLocaleLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) tests.push((i) => words.every((word) => haystack()[i].includes(word)));
  if (value("kind") === "any") tests.push((i) => problems[i].length > 0);
  else if (value("kind") === "none") tests.push((i) => problems[i].length === 0);
  else if (value("kind")) tests.push((i) => problems[i].includes(Number(value("kind"))));
  if (value("cause")) tests.push((i) => cause[i] === Number(value("cause")));
  if (value("level")) tests.push((i) => level[i] === Number(value("level")));
  if (value("route")) tests.push((i) => route[i] === Number(value("route")));
  return [...store.index.ids.keys()].filter((i) => tests.every((test) => test(i)));
}

function sorted(places) {
  const name = find("sort").value;
  const worst = find("order").value === "worst";
  if (!name) return worst ? places : places.reverse();
  const values = store.index.scores[name];
  const rising = (store.legend.metrics[name].better === "higher") === worst ? 1 : -1;
  const order = (a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null) || a - b;
    return rising * (values[a] - values[b]) || a - b;
  };
  return places.sort(order);
}

function refill() {
  list.shown = sorted(chosen());
  list.active = -1;
  list.inner.style.height = list.shown.length * list.height + "px";
  list.box.scrollTop = 0;
  const all = store.index.ids.length;
  find("matches").textContent =
    list.shown.length === all ? count(all, "trace") : `${list.shown.length.toLocaleString("en")} of ${count(all, "trace")}`;
  find("nothing").hidden = list.shown.length > 0;
  drawRows();
}

function drawRows() {
  const { box, inner, height, shown } = list;
  const first = Math.max(0, Math.floor(box.scrollTop / height) - 4);
  const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + 4);
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(row(at));
  inner.replaceChildren(...rows);
  if (list.active >= first && list.active < last) box.setAttribute("aria-activedescendant", "row-" + list.active);
  else box.removeAttribute("aria-activedescendant");
}

function row(at) {
  const { index, legend } = store;
  const place = list.shown[at];
  const level = index.levels[index.level[place]];
  const kinds = index.problems[place].map((i) => legend.kinds[index.kinds[i]].title);
  const name = find("sort").value || "triad";
  const value = index.scores[name] ? index.scores[name][place] : null;
  const node = el(
    "div.row",
    {
      role: "option",
      id: "row-" + at,
      "aria-selected": String(list.active < 0 ? place === detail.place : at === list.active),
      "aria-setsize": list.shown.length,
      "aria-posinset": at + 1,
      click: () => choose(at),
    },
    el("span.row-query", { dir: "auto" }, visible(index.queries[place]) || "(no query)"),
    el("span.row-value", { title: name }, number(value)),
    el("span.row-answer", { dir: "auto" }, visible(index.answers[place]) || "(no answer)"),
    el("span.row-signs", {}, sign(legend.levels[level].glyph, level, "level-" + level), ...kinds.map((kind) => el("span.tag", {}, kind))),
  );
  node.style.top = at * list.height + "px";
  return node;
}

function choose(at, quiet = false) {
  if (at < 0 || at >= list.shown.length) return;
  list.active = at;
  const { box, height } = list;
  if (at * height < box.scrollTop) box.scrollTop = at * height;
  else if ((at + 1) * height > box.scrollTop + box.clientHeight) box.scrollTop = (at + 1) * height - box.clientHeight;
  drawRows();
  if (!quiet) list.pick(list.shown[at]);
}

// Show a trace that was asked for by name; the filters give way if they hide it.
function reveal(place) {
  if (!list.shown.includes(place)) {
    find("filters").reset();
    refill();
  }
  choose(list.shown.indexOf(place), true);
}

function onListKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const page = Math.max(1, Math.floor(list.box.clientHeight / list.height) - 1);
  const last = list.shown.length - 1;
  const moves = {
    ArrowDown: list.active + 1, j: list.active + 1, ArrowUp: Math.max(0, list.active - 1), k: Math.max(0, list.active - 1),
    PageDown: Math.min(last, list.active + page), PageUp: Math.max(0, list.active - page), Home: 0, End: last,
  };
  if (event.key in moves) choose(moves[event.key]);
  else if (event.key === "Enter") enterDetail();
  else if (event.key === "/") find("search").focus();
  else return;
  event.preventDefault();
}

function enterDetail() {
  if (list.active < 0) choose(0);
  else list.pick(list.shown[list.active], true);
}
