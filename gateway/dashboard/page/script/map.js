// The map of all regions: a bitmap that changes with the figures, and an overlay for what is pointed at.
import { byId, make, say } from "./dom.js";
import { count, counted, rate, trouble } from "./format.js";
import { ask } from "./gate.js";
import { arrange } from "./maplayout.js";
import { HEATS, paint, paintOverlay, stepsFor } from "./mappaint.js";
import { hintPath } from "./network.js";
import { chosenName, showRegion } from "./region.js";
import { onTheme } from "./theme.js";

const CONDITIONS = [null, "behind", "stuck", null, "held"];
const BY = { events_per_s: { least: 0.1, unit: "events a second" }, behind: { least: 1, unit: "events on the way" } };
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const field = byId("map-field");
const tip = byId("map-tip");
const [ground, overlay] = field.querySelectorAll("canvas");
let held = null; // { version, names, paths, path }
let figures = null;
let layout = null;
let by = "events_per_s";
const steps = {};
let pointed = -1;
let focused = null; // a name, because places move when regions come
let touched = null;
let asked = 0;
let isSeen = true;
let coming = 0;

new IntersectionObserver((changes) => {
  isSeen = changes.at(-1).isIntersecting;
  if (isSeen) refresh();
}).observe(field.parentElement);
new ResizeObserver(() => layout?.width !== field.parentElement.clientWidth && relayout()).observe(field.parentElement);
onTheme(() => repaint());
document.addEventListener("visibilitychange", () => refresh());
for (const choice of byId("map-by").querySelectorAll("input")) {
  choice.addEventListener("change", () => {
    by = choice.value;
    repaint();
  });
}

export function showMap({ totals }) {
  const none = totals.regions === 0;
  byId("map").classList.toggle("none", none || !layout);
  if (!none) return void refresh();
  [held, figures, layout] = [null, null, null];
  field.hidden = true;
  say(byId("map-note"), "");
  byId("map-empty").hidden = false;
  say(byId("map-empty"), "There is no region yet. The first subscription or publish makes one.");
}

async function refresh() {
  if (!isSeen || document.hidden || byId("main").hidden) return;
  const turn = ++asked;
  try {
    const found = await ask("map", held ? { layout: held.version } : {});
    if (turn !== asked || !found) return;
    figures = found;
    if (found.layout) {
      held = { version: found.version, ...found.layout };
      relayout();
    } else repaint();
    summarize();
  } catch {
    // The stream tells when the gateway is gone; what is shown stays.
  }
}

function relayout() {
  if (!held?.names.length) return;
  byId("map-empty").hidden = true;
  byId("map").classList.remove("none");
  field.hidden = false;
  const width = field.parentElement.clientWidth;
  const number = held.names.length;
  const height = number <= 12 ? 150 : number <= 60 ? 300 : Math.min(430, Math.max(360, width));
  layout = arrange(held.names, width, height);
  field.style.height = `${layout.height}px`;
  pointed = -1;
  repaint();
}

function repaint() {
  if (!layout || !figures || figures.version !== held.version) return;
  steps[by] = stepsFor(figures[by], { least: BY[by].least, before: steps[by] });
  paint(ground, layout, { names: held.names, figures: figures[by], states: figures.states, bounds: steps[by].bounds });
  showLegend();
  drawOver();
}

function showLegend() {
  const { bounds } = steps[by];
  byId("map-scale").style.setProperty("--steps", HEATS);
  const labels = ["0", ...bounds.map((bound) => `≤ ${rate(bound)}`)];
  const shown = labels.map((text, heat) => make("li", {}, make("i", { class: `heat-${heat}` }), text));
  if (byId("map-scale").textContent !== labels.join("")) byId("map-scale").replaceChildren(...shown);
  say(byId("map-unit"), BY[by].unit);
}

function summarize() {
  const number = (digit) => figures.states.split(digit).length - 1;
  const [behind, stuck, unknown, waits] = [number("1"), number("2"), number("3"), number("4")];
  const parts = [stuck && `${count(stuck)} stuck`, waits && `${count(waits)} held`, behind && `${count(behind)} behind`, unknown && `${count(unknown)} unknown`].filter(Boolean);
  const rest = figures.more_stuck ? `, ${count(figures.more_stuck)} of them stuck` : "";
  const more = figures.more ? ` … and ${count(figures.more)} more in the list${rest}` : "";
  say(byId("map-note"), `${counted(held.names.length, "region")}${parts.length ? `: ${parts.join(", ")}` : ""}${more}`);
  byId("map-note").classList.toggle("bad", stuck + waits + figures.more_stuck > 0);
}

function described(index) {
  const condition = CONDITIONS[Number(figures.states[index])];
  const at = figures.places[figures.stuck_at[index] ?? 0];
  return {
    name: held.names[index],
    state: (condition === "held" ? `held: ordered with what is stuck at ${at.join(", ")}` : trouble({ condition, stuck_at: at })) || (figures.states[index] === "3" ? "some figures are unknown" : ""),
    kind: condition ?? "",
    figures: `${rate(figures.events_per_s[index])} events/s, ${count(figures.behind[index])} on the way`,
    path: held.paths[held.path[index]],
  };
}

// At most once a frame, however often the pointer moves.
function drawOver() {
  coming ||= requestAnimationFrame(() => {
    coming = 0;
    if (!layout || !figures || figures.version !== held.version) return;
    const chosen = held.names.indexOf(chosenName("region"));
    const keyed = document.activeElement === field && focused !== null ? held.names.indexOf(focused) : -1;
    const shown = pointed !== -1 ? pointed : keyed;
    paintOverlay(overlay, layout, [...new Set([chosen, keyed, pointed])].filter((index) => index !== -1));
    hintPath(shown === -1 ? null : held.paths[held.path[shown]]);
    showTip(shown);
  });
}

function showTip(index) {
  tip.hidden = index === -1;
  if (index === -1) return;
  const { name, state, kind, figures: said, path } = described(index);
  tip.replaceChildren(
    make("strong", {}, name),
    ...(state ? [make("span", { class: kind }, state)] : []),
    make("span", {}, said), make("span", { class: "note" }, path.join(" → ")),
    ...(touched === index ? [make("span", { class: "note" }, "Tap again to open")] : []));
  const { x, y, width, height } = layout.box(index);
  const left = Math.min(Math.max(0, x + width / 2 - tip.offsetWidth / 2), Math.max(0, layout.width - tip.offsetWidth));
  const above = y - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above >= -40 ? above : y + height + 8}px`;
}

function point(event) {
  const bounds = field.getBoundingClientRect();
  const index = layout ? layout.at(event.clientX - bounds.left, event.clientY - bounds.top) : -1;
  if (index === pointed) return;
  pointed = index;
  drawOver();
}

function leave() {
  pointed = -1;
  touched = null;
  drawOver();
}

function open(index) {
  touched = null;
  focused = held.names[index];
  showRegion(focused);
  byId("region-title").focus({ preventScroll: true });
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("region-title").closest(".card").scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
  drawOver();
}

field.addEventListener("pointermove", point);
// A finger leaves before its click; what it tapped stays until it taps elsewhere.
field.addEventListener("pointerleave", ({ pointerType }) => pointerType !== "touch" && leave());
addEventListener("pointerdown", ({ target }) => touched !== null && !field.contains(target) && leave());
field.addEventListener("click", (event) => {
  point(event);
  if (pointed === -1) return;
  if (event.pointerType === "touch" && touched !== pointed) {
    touched = pointed;
    drawOver();
  } else open(pointed);
});
field.addEventListener("focus", () => {
  if (!layout || !field.matches(":focus-visible")) return;
  go(Math.max(0, held.names.indexOf(focused)));
});
field.addEventListener("blur", () => drawOver());
field.addEventListener("keydown", (event) => {
  if (!layout || event.ctrlKey || event.altKey || event.metaKey) return;
  const from = Math.max(0, held.names.indexOf(focused));
  const last = held.names.length - 1;
  if (STEPS[event.key]) go(layout.step(from, ...STEPS[event.key]));
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(last);
  else if (event.key === "s" || event.key === "S") go(nextStuck(from));
  else if (event.key === "Enter" || event.key === " ") open(from);
  else return;
  event.preventDefault();
});

function nextStuck(from) {
  const next = figures.states.indexOf("2", from + 1);
  const first = next === -1 ? figures.states.indexOf("2") : next;
  return first === -1 ? from : first;
}

function go(index) {
  focused = held.names[index];
  pointed = -1;
  const { name, state, figures: said, path } = described(index);
  say(byId("map-said"), [name, state, said, `path ${path.join(" to ")}`].filter(Boolean).join(", "));
  drawOver();
}
