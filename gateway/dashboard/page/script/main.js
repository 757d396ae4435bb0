// Puts the parts together: one state every other second, shown by each of them.
import { boxesOf, showAlerts, showNotes } from "./story.js";
import { showCharts } from "./charts.js";
import { refreshDelays } from "./delays.js";
import { byId, make, say } from "./dom.js";
import { atLeast, clock, count, counted, rate, since, span } from "./format.js";
import { follow, token } from "./gate.js";
import { laggingList, regionList, subscriberList } from "./lists.js";
import { showMap } from "./map.js";
import { showNetwork } from "./network.js";
import { refreshRegion, reopenFeed } from "./region.js";
import * as theme from "./theme.js";

const STALE_MS = 8000;
const TREND_MS = 8000;
const TREND_LEAST = 5;
const regions = regionList();
const lagging = laggingList();
const subscribers = subscriberList();
let newest = null;
let asking = false;
let heardAt = 0; // when the newest state came, by the browser's own clock
let connection = { is: "connecting" };

theme.start();
theme.onTheme(() => newest && showCharts(newest, { redraw: true }));
addEventListener("resize", () => {
  if (!newest) return;
  showCharts(newest, { redraw: true });
  if (newest.network) showNetwork(newest.network);
});
document.addEventListener("gamecast-token-wanted", async () => {
  await askForToken("");
  state(newest);
  reopenFeed();
});
follow({ state, link });
setInterval(showFreshness, 1000);

function state(shown) {
  newest = shown;
  heardAt = performance.now();
  if (asking) return;
  byId("main").hidden = false;
  byId("ask").hidden = true;
  const { network } = shown;
  showFreshness();
  showNotes(shown.notes);
  if (!network) return;
  say(byId("where"), network.url);
  say(byId("plan"), planned(network));
  showTotals(network, shown.history);
  showMap(network);
  showNetwork(network);
  refreshDelays();
  showAlerts(network);
  showCharts(shown);
  regions.refresh();
  lagging.refresh();
  subscribers.refresh();
  refreshRegion();
  const looked = `Looked at ${clock(network.at_ms)}, which took ${span(network.took_ms)}; again every ${shown.interval_s} s.`;
  say(byId("foot"), `${looked} Gateway ${shown.gateway.id}.`);
}

function link({ is, why, wait }) {
  const shown = byId("link");
  if (is === "refused") {
    shown.dataset.state = "lost";
    say(shown, "Not let in");
    return askForToken(why);
  }
  connection = { is, text: is === "live" ? "Live" : `Disconnected: ${why}. Trying again${wait > 1000 ? ` in ${span(wait)}` : ""} …` };
  showFreshness();
  return undefined;
}

// Judged by the page's own clock once a second: a gateway that hangs cannot say that it does.
function showFreshness() {
  if (asking || connection.is === "connecting") return;
  const lost = connection.is === "lost";
  const old = isOld();
  const from = newest?.network ? clock(newest.network.at_ms) : null;
  const link = byId("link");
  link.dataset.state = lost || old ? "lost" : connection.is;
  say(link, old && !lost ? `Stale since ${from}` : connection.text);
  const banner = byId("banner");
  const texts = [newest?.trouble, (old || (lost && from)) && `Stale since ${from}: ${reason(lost)}`].filter(Boolean);
  if (newest?.trouble && from && texts.length === 1) texts.push(`What is shown is from ${from}.`);
  banner.hidden = !texts.length;
  say(banner, texts.join(" "));
  byId("main").classList.toggle("stale", texts.length > 0);
}

function reason(lost) {
  if (lost) return "the page is not connected to the gateway.";
  return newest.trouble ? "no survey of the network has succeeded." : "the gateway has sent no new figures.";
}

function isOld() {
  if (!newest?.network) return false;
  const { network, now_ms: now, interval_s: interval } = newest;
  const age = Math.max(0, now - network.at_ms) + performance.now() - heardAt;
  return age > Math.max(STALE_MS, interval * 1000 + network.took_ms + STALE_MS / 2);
}

function askForToken(why) {
  const form = byId("ask");
  asking = true;
  form.hidden = false;
  byId("main").hidden = true;
  say(byId("refused"), token.get() ? `Not with this one: ${why}` : "");
  token.forget();
  byId("token").focus();
  return new Promise((resolve) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        token.set(byId("token").value.trim());
        byId("token").value = "";
        asking = false;
        resolve();
      },
      { once: true },
    );
  });
}

function planned({ plan, transition, leader }) {
  if (!plan) return "no plan yet: the first subscription or publish makes it";
  const way = transition ? `, on the way to ${transition.epoch}.${transition.version}` : "";
  const led = leader.where ? `, led by ${leader.where}` : leader.token ? "" : ", no leader";
  return `plan ${plan.epoch}.${plan.version}${way} · ${plan.ordering} order${led}`;
}

function showTotals({ totals, alerts, alerts_total }, history) {
  const { boxes, total } = boxesOf({ alerts, alerts_total });
  const problems = boxes.filter(({ level }) => level === "problem").length;
  const down = totals.nodes - totals.nodes_answering;
  const unknown = down ? `${counted(down, "node")} unknown${since(totals.silent_since_ms)}` : "";
  const rows = [
    [atLeast(rate(totals.events_per_s), totals.rates_unknown), `events a second${partly(totals.rates_unknown, unknown)}`],
    [count(totals.regions), `regions, ${hurt(totals) || `${count(totals.busy_regions)} busy`}`, totals.stuck_regions && "bad"],
    [count(totals.subscribers_alive), `subscribers${totals.held_subscribers ? `, ${atLeast(count(totals.held_subscribers), totals.held_unknown)} held` : ""}${gone(totals)}`, totals.held_subscribers && "bad"],
    [count(totals.nodes_answering), down ? `nodes, ${count(down)} down` : "nodes", down && "bad"],
    [count(totals.atoms), "atoms"],
    [String(totals.path_nodes), "nodes a path"],
    [atLeast(count(totals.behind), totals.behind_unknown), `events on the way${trend(history)}${totals.behind_unknown && totals.behind !== null ? `: at least ${count(totals.behind)}` : ""}${partly(totals.behind_unknown, unknown)}`, totals.stuck_regions && "bad"],
    [count(total), problems ? `alerts, ${counted(problems, "problem")}` : "alerts", problems ? "bad" : total ? "warn" : ""],
  ];
  const list = byId("totals");
  if (list.children.length !== rows.length) {
    list.replaceChildren(...rows.map(() => make("div", {}, make("dt"), make("dd"))));
  }
  rows.forEach(([value, name, mark], place) => {
    const box = list.children[place];
    box.className = mark || "";
    say(box.querySelector("dd"), value);
    say(box.querySelector("dt"), name);
  });
}

// Whether it gets better: what is on its way now, beside what was some looks ago.
function trend({ at_ms: times, behind }) {
  const then = times.findLastIndex((ms) => times.at(-1) - ms >= TREND_MS);
  const [before, now] = [behind[then], behind.at(-1)];
  if (then < 0 || before === null || now === null || Math.max(before, now) < TREND_LEAST) return "";
  if (Math.abs(now - before) < 0.1 * Math.max(before, now)) return ", steady";
  return now > before ? ", growing" : ", shrinking";
}

// What a total lacks: a node that does not answer, or else regions that were not read twice yet.
function partly(regions, nodes) {
  if (!regions) return "";
  return `, ${nodes || `${counted(regions, "region")} unknown`}`;
}

function hurt({ stuck_regions: stuck, held_regions: held }) {
  return [stuck && `${count(stuck)} stuck`, held && `${count(held)} held`].filter(Boolean).join(", ");
}

function gone({ subscribers: known, subscribers_alive: alive }) {
  return known > alive ? `, ${count(known - alive)} gone` : "";
}
