// Curves and histograms, with what they say in words beside them.
import { byId, make, say } from "./dom.js";
import { clock, count, counted, rate, span } from "./format.js";
import { colour } from "./theme.js";

const HEIGHT = 160;
const plots = new Map();

export function showCharts({ history, durations, network }, { redraw = false } = {}) {
  const missing = left(network?.totals);
  if (redraw) {
    plots.forEach(({ plot }) => plot.destroy());
    plots.clear();
  }
  showRate(history, network?.totals.nodes_silent.length);
  showDurations("latency", durations?.latency, "No session of this gateway was delivered an event lately. Open a region's events below, and there is one.", missing);
  showDurations("hold", durations?.hold, "No session of this gateway received a frame lately.", missing);
}

// Durations are of what arrived: those look well exactly when the rest is stuck.
function left(totals) {
  return totals?.stuck_regions ? `, without what is stuck in ${counted(totals.stuck_regions, "region")}` : "";
}

function showRate({ at_ms: times, events_per_s: rates }, silent) {
  if (times.length < 2) {
    empty("rate", "The curve begins with the third look at the network.");
    say(byId("rate-note"), "");
    return;
  }
  const known = rates.filter((each) => each !== null);
  const most = known.length ? Math.max(...known) : null;
  const now = silent ? `at least ${rate(rates.at(-1))} /s now, ${counted(silent, "node")} unknown` : `${rate(rates.at(-1))} /s now`;
  say(byId("rate-note"), `${now}, ${rate(most)} /s at most in ${span(times.at(-1) - times[0])}`);
  const data = [times.map((ms) => ms / 1000), rates];
  const drawn = plots.get("rate");
  if (drawn) return void drawn.plot.setData(data);
  place("rate", {
    series: [{}, { label: "events/s", stroke: colour("--accent"), width: 2, fill: colour("--accent-soft"), points: { show: false } }],
    scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      axis({ size: 28, space: 90, values: (_, ticks) => ticks.map((seconds) => clock(seconds * 1000)) }),
      axis({ size: 52, values: (_, ticks) => ticks.map(rate) }),
    ],
  }, data);
}

// Buckets: upper bounds in ms (the last has none) and how many were at most so long, and longer than the one before.
function showDurations(name, durations, nothing, missing) {
  const total = durations?.counts.reduce((sum, each) => sum + each, 0) ?? 0;
  if (!total) {
    empty(name, nothing);
    say(byId(`${name}-note`), "");
    return;
  }
  const { up_to_ms: bounds, counts } = durations;
  const half = quantile(bounds, counts, 0.5);
  const most = quantile(bounds, counts, 0.99);
  say(byId(`${name}-note`), `half ${half}, 99% ${most} · ${counted(total, durations.of)}${missing}`);
  const data = [counts.map((_, index) => index), counts];
  const key = bounds.length;
  const known = plots.get(name);
  if (known?.key === key) return void known.plot.setData(data);
  const labels = [...bounds.map((bound) => (bound ? span(bound) : "none")), "more"];
  const step = byId(name).clientWidth < 360 ? 3 : 2;
  place(name, {
    scales: { x: { time: false, range: [-0.6, counts.length - 0.4] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.08)] } },
    series: [
      { label: "at most", value: (_, index) => (index === null ? "–" : labels[index]) },
      { label: "count", stroke: colour("--accent"), fill: colour("--accent-soft"), width: 1.5, paths: uPlot.paths.bars({ size: [0.86, 60] }), points: { show: false } },
    ],
    axes: [
      axis({ size: 28, font: "11px system-ui, sans-serif", splits: () => counts.map((_, index) => index).filter((index) => index % step === 0), values: (_, ticks) => ticks.map((index) => labels[index]) }),
      axis({ size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? count(tick) : "")) }),
    ],
  }, data, key);
}

function quantile(bounds, counts, share) {
  const wanted = share * counts.reduce((sum, each) => sum + each, 0);
  let seen = 0;
  const index = counts.findIndex((each) => (seen += each) >= wanted);
  if (index >= bounds.length) return `over ${span(bounds.at(-1))}`;
  return bounds[index] ? `within ${span(bounds[index])}` : "at once";
}

function axis(more) {
  const grid = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--soft"), grid, ticks: { ...grid, size: 4 }, font: "12px system-ui, sans-serif", ...more };
}

function place(name, options, data, key = 0) {
  const box = byId(name);
  box.replaceChildren();
  const plot = new uPlot({ width: box.clientWidth, height: HEIGHT, cursor: { drag: { x: false, y: false } }, legend: { show: false }, ...options }, data, box);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-labelledby", `${name}-title ${name}-note`);
  plots.set(name, { plot, key });
}

function empty(name, text) {
  plots.get(name)?.plot.destroy();
  plots.delete(name);
  const box = byId(name);
  if (box.textContent !== text) box.replaceChildren(make("p", { class: "empty" }, text));
}
