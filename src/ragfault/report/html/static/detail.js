// One trace: its answer by claims, its chunks by relevance and use, and all that was observed of it.

const detail = { place: -1, chunks: new Map(), claims: [] };

const SUPPORT = {
  supported: ["✓", "the chunks state it"],
  inferred: ["≈", "follows from the chunks"],
  unsupported: ["?", "no chunk states it"],
  contradicted: ["✗", "a chunk says otherwise"],
};
const RELEVANCE = {
  high: ["●●●", "high relevance"],
  medium: ["●●○", "medium relevance"],
  low: ["●○○", "low relevance"],
  none: ["○○○", "not relevant"],
};
const LONG = 1400;

async function showTrace(place, focus = false) {
  detail.place = place;
  const seen = await traceAt(place);
  if (detail.place !== place) return;
  const pane = find("detail");
  detail.chunks = new Map();
  detail.claims = [];
  pane.replaceChildren(...traceView(place, seen));
  pane.scrollTop = 0;
  if (focus) enterPane(pane);
}

function enterPane(pane) {
  find("trace-title").focus({ preventScroll: true });
  pane.scrollIntoView({ block: "nearest" });
}

function traceView(place, { trace, verdicts, scores }) {
  return [
    headView(place, trace),
    problemView(place),
    el("div.pair", {},
      el("div.side", {},
        answerView(trace, verdicts),
        citationView(trace, verdicts),
        missingView(verdicts),
        aspectView(trace, verdicts),
        keyView(trace, verdicts),
        failureView(verdicts),
      ),
      el("div.side", {}, chunkView(trace, verdicts)),
    ),
    scoreView(scores),
  ].filter(Boolean);
}

function section(title, note, ...children) {
  return el("section.part", {}, el("h4", {}, title, note ? el("span.note", {}, " ", note) : null), ...children);
}

// --- the head ---------------------------------------------------------------------------------------

function headView(place, trace) {
  const level = store.index.levels[store.index.level[place]];
  const { glyph, action } = store.legend.levels[level];
  return el("header.trace-head", {},
    el("p.crumbs", {},
      sign(glyph, level, "level-" + level), el("span.note", {}, action ? " → " + action : ""),
      el("a.permalink", { href: "#trace=" + encodeURIComponent(trace.id) }, "link to this trace")),
    el("h3", { id: "trace-title", tabindex: "-1" }, el("span.note", {}, "Trace "), el("bdi", {}, visible(trace.id))),
    prose(trace.query, "query"),
    el("dl.circumstances", {}, circumstances(trace).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("bdi", {}, visible(text)))))),
    trace.error ? el("p.failure", {}, sign("✗", "the pipeline failed: "), el("bdi", {}, visible(trace.error))) : null,
  );
}

function circumstances(trace) {
  const latency = trace.latency ? ["total", "retrieval", "generation"].filter((part) => part in trace.latency).map((part) => `${part} ${Math.round(trace.latency[part]).toLocaleString("en")} ms`) : [];
  const tokens = trace.tokens ? Object.entries(trace.tokens).map(([part, n]) => `${part} ${number(n)}`) : [];
  const { route, model, time, conversation, turn } = trace;
  const known = Object.entries({ route, model, time, conversation, turn, latency: latency.join(", "), tokens: tokens.join(", ") });
  const other = Object.entries(trace.metadata || {}).slice(0, 12).map(([name, value]) => [visible(name), plain(value)]);
  return [...known, ...other].filter(([, text]) => text !== undefined && text !== null && text !== "");
}

function plain(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 200 ? text.slice(0, 200) + "…" : text;
}

function problemView(place) {
  const kinds = store.index.problems[place].map((i) => store.legend.kinds[store.index.kinds[i]]);
  if (!kinds.length) return null;
  const remedies = kinds.map((kind) => el("li", {}, el("strong", {}, kind.title), ": " + kind.remedies.join("; ")));
  return el("div.problems", {},
    el("ul", { "aria-label": "Problems found in this trace" }, kinds.map((kind) => el("li", {}, sign("▲", kind.title)))),
    el("details", {}, el("summary", {}, "what to change"), el("ul", {}, remedies)));
}

// --- the answer and its claims ------------------------------------------------------------------------

function answerView(trace, verdicts) {
  if (!trace.answer) return section("Answer", "", el("p.empty", {}, trace.answer === "" ? "The answer is empty." : "No answer was recorded."));
  const claims = verdicts.claim || [];
  const note = verdicts.answer ? `relevance to the query ${verdicts.answer.relevance === null ? "not known" : number(verdicts.answer.relevance)}${verdicts.answer.refused ? " · refuses" : ""}` : "";
  const text = el("p.answer", { dir: "auto" }, claimed(trace.answer, claims));
  const hint = claims.length ? el("p.note", {}, "Choose a claim (click or Enter) to see its evidence in the chunks.") : el("p.empty", {}, verdicts.claim ? "The answer makes no checkable claim." : "The judge gave no verdicts on claims.");
  const items = claims.map((claim, i) => claimItem(trace, claim, i));
  return section("Answer", note, clamp(text, trace.answer), hint,
    el("ol.claims", { "aria-label": "Claims of the answer" }, items),
    el("p.hidden", { id: "said", role: "status" }));
}

function claimed(answer, claims) {
  const parts = [];
  let at = 0;
  const order = claims.map((claim, i) => ({ i, claim, start: unit(answer, claim.start), end: unit(answer, claim.end) }))
    .sort((a, b) => a.start - b.start);
  for (const { i, claim, start, end } of order) {
    const from = Math.max(at, start);
    if (end <= from) continue;
    parts.push(visible(answer.slice(at, from)), claimMark(answer.slice(from, end), claim, i, answer, from));
    at = end;
  }
  return [...parts, visible(answer.slice(at))];
}

// The words of a claim that the judge doubts are marked; the offsets are characters of the answer.
function doubted(text, claim, answer, from) {
  const parts = [];
  let at = 0;
  for (const [start, end] of claim.unsupported_spans || []) {
    const [first, last] = [unit(answer, start) - from, unit(answer, end) - from].map((place) => Math.max(at, Math.min(place, text.length)));
    if (last <= first) continue;
    parts.push(visible(text.slice(at, first)), el("span.doubt", {}, visible(text.slice(first, last))));
    at = last;
  }
  return [...parts, visible(text.slice(at))];
}

function claimMark(text, claim, i, answer, from) {
  const node = el(`span.claim.${claim.support}`,
    { role: "button", tabindex: "0", "aria-pressed": "false", click: () => showClaim(i), keydown: (event) => onPress(event, () => showClaim(i)) },
    doubted(text, claim, answer, from), el("span.hidden", {}, `, claim ${i + 1}, ${claim.support}`),
    el("sup", { "aria-hidden": "true" }, SUPPORT[claim.support][0] + (i + 1)));
  (detail.claims[i] ||= []).push(node);
  return node;
}

function claimItem(trace, claim, i) {
  const [glyph, meaning] = SUPPORT[claim.support];
  const evidence = claim.evidence || [];
  const button = el(`button.claim-open.${claim.support}`, { type: "button", "aria-pressed": "false", click: () => showClaim(i) },
    el("span.claim-number", {}, String(i + 1)), sign(glyph, claim.support), claim.p === undefined || claim.p === null ? null : el("span.note", {}, ` p ${number(claim.p)}`));
  (detail.claims[i] ||= []).push(button);
  detail.claims[i].evidence = evidence;
  detail.claims[i].nearest = claim.support === "unsupported";
  return el("li", {}, button,
    el("span.claim-text", { dir: "auto" }, visible(claim.claim)),
    el("span.note.claim-reason", { dir: "auto" }, claim.reason ? visible(claim.reason) : meaning),
    (claim.unsupported_spans || []).length ? el("span.note.claim-reason", { dir: "auto" }, "in doubt: ",
      claim.unsupported_spans.map(([start, end]) => visible(trace.answer.slice(unit(trace.answer, start), unit(trace.answer, end)))).join(", ")) : null,
    evidence.map((piece) => quote(trace, piece, detail.claims[i].nearest)));
}

function quote(trace, { chunk, start, end }, nearest = false) {
  const at = (trace.chunks || []).findIndex((each) => each.id === chunk);
  if (at < 0) return el("span.note", {}, "evidence in a chunk that is not here: ", visible(chunk));
  const text = trace.chunks[at].text || "";
  return el("q.quote", { dir: "auto" }, el("span.note", {}, `${nearest ? "what comes nearest, in " : ""}chunk ${at + 1}: `), visible(text.slice(unit(text, start), unit(text, end))));
}

function onPress(event, act) {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  act();
}

function showClaim(i) {
  const again = detail.claims[i].some((node) => node.getAttribute("aria-pressed") === "true");
  for (const nodes of detail.claims) for (const node of nodes || []) node.setAttribute("aria-pressed", "false");
  for (const chunk of detail.chunks.values()) chunk.mark([]);
  if (again) return say("Evidence hidden.");
  for (const node of detail.claims[i]) node.setAttribute("aria-pressed", "true");
  const evidence = detail.claims[i].evidence || [];
  for (const id of new Set(evidence.map((piece) => piece.chunk))) {
    detail.chunks.get(id)?.mark(evidence.filter((piece) => piece.chunk === id));
  }
  const first = find("detail").querySelector("mark");
  if (first) first.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
  return say(evidence.length ? `Claim ${i + 1}: ${detail.claims[i].nearest ? "what comes nearest is" : "evidence"} marked in ${count(new Set(evidence.map((piece) => piece.chunk)).size, "chunk")}.` : `Claim ${i + 1}: no evidence in the chunks.`);
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const say = (text) => { find("said").textContent = text; };

// --- the chunks ---------------------------------------------------------------------------------------

function chunkView(trace, verdicts) {
  if (!trace.chunks) return section("Chunks", "", el("p.empty", {}, "The chunks were not recorded."));
  const used = (verdicts.use || []).filter((use) => use.used).length;
  const note = trace.chunks.length ? `${trace.chunks.length} retrieved${verdicts.use ? `, ${used} used` : ""}` : "";
  const items = trace.chunks.map((chunk, i) => chunkItem(chunk, i, verdicts.chunk?.[i], verdicts.use?.[i]));
  return section("Chunks", note, items.length ? el("ol.chunks", {}, items) : el("p.empty", {}, "Nothing was retrieved."));
}

function chunkItem(chunk, i, verdict, use) {
  const raw = chunk.text || "";
  const text = el("p.chunk-text", { dir: "auto" }, visible(raw) || "(empty)");
  const body = clamp(text, raw);
  const item = el(`li.chunk.level-chunk-${verdict ? verdict.level : "unknown"}`, {},
    el("p.chunk-head", {},
      el("strong", {}, String(i + 1)),
      verdict ? sign(...RELEVANCE[verdict.level]) : el("span.note", {}, "not judged"),
      verdict ? el("span.note", {}, number(verdict.relevance)) : null,
      use ? (use.used ? sign("◆", "used", "used") : sign("◇", "not used", "unused")) : null,
      el("bdi.chunk-id", {}, visible(chunk.id))),
    body, verdict?.reason ? el("p.note", { dir: "auto" }, visible(verdict.reason)) : null,
    sourceLine(chunk));
  if (!detail.chunks.has(chunk.id)) detail.chunks.set(chunk.id, { mark: (pieces) => markChunk(item, body, text, raw, pieces) });
  return item;
}

function sourceLine(chunk) {
  const parts = [chunk.document, chunk.kind && chunk.kind !== "text" ? chunk.kind : null,
    chunk.start === undefined || chunk.start === null ? null : `characters ${chunk.start}–${chunk.end}`,
    chunk.score === undefined || chunk.score === null ? null : `retriever's score ${number(chunk.score)}`,
    ...Object.entries(chunk.metadata || {}).slice(0, 8).map(([name, value]) => `${name}: ${plain(value)}`)].filter(Boolean);
  return parts.length ? el("p.note.source", { dir: "auto" }, visible(parts.join(" · "))) : null;
}

function markChunk(item, body, text, raw, pieces) {
  item.classList.toggle("evident", pieces.length > 0);
  if (pieces.length) unclamp(body);
  const parts = [];
  let at = 0;
  const spans = pieces.map(({ start, end }) => [unit(raw, start), unit(raw, end)]).sort((a, b) => a[0] - b[0]);
  for (const [start, end] of spans) {
    const from = Math.max(at, start);
    if (end <= from) continue;
    parts.push(visible(raw.slice(at, from)), el("mark", {}, visible(raw.slice(from, end))));
    at = end;
  }
  text.replaceChildren(...parts, visible(raw.slice(at)) || (raw ? "" : "(empty)"));
}

// --- everything else ----------------------------------------------------------------------------------

function verdictList(items) {
  return el("ul.verdicts", {}, items.map(([good, label, text]) =>
    el("li", {}, good === null ? sign("○", label) : good ? sign("✓", label, "good") : sign("✗", label, "bad"), " ", el("span", { dir: "auto" }, visible(text)))));
}

function citationView(trace, verdicts) {
  if (!trace.citations) return null;
  if (!trace.citations.length) return section("Citations", "", el("p.empty", {}, "The answer cites nothing."));
  const items = trace.citations.map((citation, i) => {
    const verdict = verdicts.citation?.[i];
    const quoted = quoteState(trace, citation);
    const text = [`→ ${citation.chunk}`, citation.quote ? `“${citation.quote}” (${quoted})` : "", citation.claim ? `for: ${citation.claim}` : ""].filter(Boolean).join(" · ");
    return [verdict ? verdict.supports : null, verdict ? (verdict.supports ? "supports" : "does not support") : "not judged", text];
  });
  return section("Citations", "", verdictList(items));
}

function quoteState(trace, citation) {
  const chunk = (trace.chunks || []).find((each) => each.id === citation.chunk);
  if (!chunk) return "names no chunk of this trace";
  const flat = (text) => text.replace(/\s+/g, " ").replace(/[“”„«»]/g, '"').replace(/[‘’]/g, "'").trim();
  return flat(chunk.text || "").includes(flat(citation.quote)) ? "stands there verbatim" : "does not stand there verbatim";
}

function missingView(verdicts) {
  if (!verdicts.missing) return null;
  if (!verdicts.missing.length) return section("Missing context", "", el("p.empty", {}, "Nothing the query needs is missing."));
  return section("Missing context", count(verdicts.missing.length, "item"), verdictList(verdicts.missing.map((text) => [false, "missing", text])));
}

function aspectView(trace, verdicts) {
  const aspects = (verdicts.answer?.aspects || []).map(({ text, answered }) => [answered, answered ? "answered" : "not answered", text]);
  const facts = (verdicts.fact || []).map(({ fact, present, contradicted }) =>
    [present && !contradicted, contradicted ? "contradicted" : present ? "stated" : "not stated", fact]);
  const recall = (verdicts.recall || []).map(({ statement, covered }) => [covered, covered ? "in the chunks" : "in no chunk", statement]);
  const parts = [["Aspects of the query", aspects], ["Expected facts in the answer", facts], ["Expected facts in the chunks", recall]];
  const shown = parts.filter(([, items]) => items.length).map(([title, items]) => section(title, "", verdictList(items)));
  return shown.length ? el("div", {}, shown) : null;
}

function keyView(trace, verdicts) {
  const references = trace.reference === undefined || trace.reference === null ? [] : [trace.reference].flat();
  const truth = (verdicts.truth || []).map(({ claim, status }) => [status === "unknown" ? null : status === "supported", status, claim]);
  const harm = (verdicts.harm || []).map(({ category, score }) => [null, number(score), category]);
  const gold = Object.entries(trace.gold?.chunks || {}).map(([id, grade]) => `${id} (${number(grade)})`);
  return el("div", {},
    references.length ? section(references.length > 1 ? "References" : "Reference", "", references.map((text) => prose(text, "reference"))) : null,
    gold.length ? section("Gold chunks", "", el("p.note", {}, visible(gold.join(", ")))) : null,
    truth.length ? section("Claims against the reference", "", verdictList(truth)) : null,
    harm.length ? section("Harm", "", verdictList(harm)) : null);
}

function failureView(verdicts) {
  const lost = Object.entries(verdicts.failures || {});
  if (!lost.length) return null;
  return section("Lost verdicts", "", verdictList(lost.map(([part, why]) => [false, part === "*" ? "all" : part, why])));
}

function scoreView(scores) {
  const rows = scores.map(([metric, status, value, reason]) =>
    el("tr", {}, el("th", { scope: "row" }, visible(metric)),
      el("td.figure", {}, status === "scored" ? number(value) : ""),
      el("td", {}, status === "scored" ? "" : sign(status === "failed" ? "✗" : "–", status, status)),
      el("td.note", { dir: "auto" }, reason ? visible(reason) : "")));
  const head = ["metric", "value", "state", "reason"].map((name) => el("th", { scope: "col" }, name));
  return section("Scores", "", el("div.scroll", {}, el("table.scores", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}

// --- long texts ---------------------------------------------------------------------------------------

function prose(text, kind) {
  return clamp(el("p." + kind, { dir: "auto" }, visible(text) || "(empty)"), text);
}

function clamp(node, text) {
  if (text.length <= LONG) return el("div.body", {}, node);
  const more = el("button.more", { type: "button", "aria-expanded": "false", click: () => toggle(body) },
    `show all ${text.length.toLocaleString("en")} characters`);
  const body = el("div.body.clamped", {}, node, more);
  return body;
}

function toggle(body) {
  const open = body.classList.toggle("clamped") === false;
  const more = body.querySelector(".more");
  more.setAttribute("aria-expanded", String(open));
  more.dataset.label ||= more.textContent;
  more.textContent = open ? "show less" : more.dataset.label;
}

function unclamp(body) {
  if (body.classList.contains("clamped")) toggle(body);
}
