
// The formulas are those of the command `savings`; the tests hold both against each other.
const SIDES = ["before", "after"];

function readNumber(id) {
  const text = document.getElementById(id).value.trim();
  return text === "" ? null : Number(text);
}

const readPair = (name) => SIDES.map((side) => readNumber(name + "-" + side));

function write(id, text) {
  for (const place of document.querySelectorAll(`[data-out="${id}"]`)) place.textContent = text;
}

function fixed(value, digits) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
}

function dollars(value) {
  const amount = Math.round(value * 100) / 100;
  if (amount === 0) return "US$ 0";
  return "US$ " + fixed(amount, Math.abs(amount) >= 1 ? 2 : 4);
}

function plain(value) {
  const size = Math.abs(value);
  return fixed(value, size < 10 ? 3 : size < 100 ? 1 : 0);
}

function compute() {
  const [p, r, latency] = ["precision", "recall", "latency"].map(readPair);
  const [queries, cost, extra] = ["queries", "cost", "extra"].map((name) => readNumber(name) ?? 0);
  const given = readNumber("tokens");
  const shares = [...p, ...r].every((share) => share !== null && share >= 0 && share <= 1) && p[0] > 0 && r[0] > 0;
  const valid = shares && [queries, cost, given ?? 0, ...latency.map((ms) => ms ?? 0)].every((value) => value >= 0);
  document.getElementById("problem").hidden = valid;
  document.getElementById("fell").hidden = !(p[1] < p[0] || r[1] < r[0]);
  document.getElementById("exhausted").hidden = !valid || given !== null || 1 - 0.3 * (p[1] - p[0]) / p[0] > 0;
  if (!valid) return;
  const quality = [0, 1].map((at) => 2 * p[at] * r[at] / (p[at] + r[at] + 1e-6));
  const gain = 100 * (quality[1] - quality[0]) / quality[0];
  const tokens = given ?? Math.max(0, 1 - 0.3 * (p[1] - p[0]) / p[0]);
  const before = queries * cost;
  const after = before * tokens + queries * extra;
  quality.forEach((value, at) => write("quality-" + SIDES[at], fixed(value, 3)));
  write("gain-after", (gain > 0 ? "+" : "") + fixed(gain, 1));
  write("factor-after", fixed(tokens, 3));
  write("monthly-before", dollars(before));
  write("monthly-after", dollars(after));
  write("irrelevant-before", dollars(before * (1 - p[0])));
  write("irrelevant-after", dollars(before * tokens * (1 - p[1])));
  write("saved-after", dollars(before - after));
  write("yearly-after", dollars(12 * (before - after)));
  latency.forEach((ms, at) => write("waiting-" + SIDES[at], ms === null ? "–" : plain(queries * ms / 3600000)));
}

for (const field of document.querySelectorAll(".inputs input")) field.addEventListener("input", compute);
