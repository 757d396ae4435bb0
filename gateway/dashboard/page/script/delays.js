// Small curves side by side: how long each node took to answer, and how long the first frame of each link has waited.
import { byId, draw, make, say } from "./dom.js";
import { clock, count, span, UNKNOWN } from "./format.js";
import { ask } from "./gate.js";

const [WIDTH, HEIGHT] = [200, 30];
const HOUR_MS = 3_600_000;
const GAP_MS = 45_000; // looks are at most 15 s apart: between points further apart, nothing is known
const GROUPS = [
  { part: "answers", one: "node", title: "Time to answer the gateway", least: 5, none: "No node is registered." },
  { part: "waits", one: "link", title: "First waiting frame of each link, its age at least", least: 1000, none: "No region's path has more than one node, so there are no links." },
];
let isSeen = false;
let asked = 0;

new IntersectionObserver((changes) => {
  isSeen = changes.at(-1).isIntersecting;
  if (isSeen) refreshDelays();
}).observe(byId("delays").parentElement);

export async function refreshDelays() {
  if (!isSeen || document.hidden || byId("main").hidden) return;
  const turn = ++asked;
  try {
    const found = await ask("delays");
    if (turn === asked) show(found);
  } catch {
    // The stream tells when the gateway is gone; what is shown stays.
  }
}

function show({ at_ms: times, ...parts }) {
  if (!times.length) return;
  const to = times.at(-1);
  const from = Math.max(to - HOUR_MS, Math.min(times[0], to - 60_000));
  say(byId("delays-note"), `${clock(from)} to ${clock(to)}`);
  const place = byId("delays");
  place.replaceChildren(...GROUPS.map((group) => tableOf(group, parts[group.part], times, { from, to })));
  if (place.scrollHeight > place.clientHeight) place.setAttribute("tabindex", "0");
  else place.removeAttribute("tabindex");
}

function tableOf({ one, title, least, none }, { names, ms, of }, times, window) {
  if (!names.length) return make("p", { class: "note" }, none);
  const top = ms.flat().reduce((most, each) => Math.max(most, each ?? 0), least);
  const rows = names.map((name, place) => {
    const known = ms[place].filter((each) => each !== null);
    const now = ms[place].at(-1);
    return make("tr", {},
      make("th", { scope: "row", title: name }, name),
      make("td", { class: "curve" }, curve(times, ms[place], { ...window, top })),
      make("td", { class: now === null ? "off" : null }, now === null ? "unknown" : figure(now)),
      make("td", {}, known.length ? figure(Math.max(...known)) : UNKNOWN));
  });
  const more = of > names.length ? ` (${names.length} of ${count(of)})` : "";
  const heads = [one, `curve, 0 to ${span(top)}`, "now", "most"];
  return make("table", {}, make("caption", {}, title + more),
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows));
}

const figure = (ms) => (ms === 0 ? "0" : span(ms));

// Known stretches are lines, and unknown ones hatched bands: a gap is not zero.
function curve(times, values, { from, to, top }) {
  const across = (ms) => (((ms - from) / (to - from || 1)) * WIDTH).toFixed(1);
  const lines = [];
  const bands = [];
  let begun = null; // where an unknown stretch began
  let last = null; // the last known point
  times.forEach((ms, place) => {
    if (ms < from) return;
    const value = values[place];
    const isApart = last !== null && ms - last > GAP_MS;
    if (value === null) {
      begun ??= last ?? ms;
      return;
    }
    const point = `${across(ms)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
    if (begun !== null || isApart) bands.push([begun ?? last, ms]);
    lines.push(begun !== null || isApart || last === null ? `M${point}h.1` : `L${point}`);
    [begun, last] = [null, ms];
  });
  if (begun !== null) bands.push([begun, to]);
  const shown = bands.map(([left, right]) => draw("rect", { class: "unknown", x: across(left), width: Math.max(2, across(right) - across(left)), y: 0, height: HEIGHT, fill: "url(#unknown-hatch)" }));
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", width: WIDTH, height: HEIGHT },
    draw("line", { class: "zero", x1: 0, x2: WIDTH, y1: HEIGHT - 1.5, y2: HEIGHT - 1.5 }), ...shown,
    draw("path", { class: "line", d: lines.join("") }));
}
