// Puts the parts together: one state every other second, shown by each of them.
import { boxesOf, showAlerts, showNotes } from "./story.js";
import { showCharts } from "./charts.js";
import { byId, make, say } from "./dom.js";
import { clock, count, counted, rate, span } from "./format.js";
import { follow, token } from "./gate.js";
import { regionList, subscriberList } from "./lists.js";
import { showNetwork } from "./network.js";
import { refreshRegion, reopenFeed } from "./region.js";
import * as theme from "./theme.js";

const regions = regionList();
const subscribers = subscriberList();
let newest = null;
let asking = false;

theme.start();
theme.onTheme(() => newest && showCharts(newest, { anew: true }));
addEventListener("resize", () => newest && showCharts(newest, { anew: true }));
document.addEventListener("gamecast-token-wanted", async () => {
  await askForToken("");
  state(newest);
  reopenFeed();
});
follow({ state, link });

function state(shown) {
  newest = shown;
  if (asking) return;
  byId("main").hidden = false;
  byId("ask").hidden = true;
  const { network, trouble } = shown;
  const banner = byId("banner");
  banner.hidden = !trouble;
  if (trouble) say(banner, trouble + (network ? ` What is shown is from ${clock(network.at_ms)}.` : ""));
  byId("main").classList.toggle("stale", Boolean(trouble));
  showNotes(shown.notes);
  if (!network) return;
  say(byId("where"), network.url);
  say(byId("plan"), planned(network));
  showTotals(network);
  showNetwork(network);
  showAlerts(network);
  showCharts(shown);
  regions.refresh();
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
  shown.dataset.state = is;
  byId("main").classList.toggle("stale", is === "lost");
  say(shown, is === "live" ? "Live" : `Disconnected: ${why}. Trying again${wait > 1000 ? ` in ${span(wait)}` : ""} …`);
  return undefined;
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
  const led = leader.token ? "" : ", no leader";
  return `plan ${plan.epoch}.${plan.version}${way} · ${plan.ordering} order${led}`;
}

function showTotals({ totals, alerts, alerts_total }) {
  const { boxes, total } = boxesOf({ alerts, alerts_total });
  const problems = boxes.filter(({ level }) => level === "problem").length;
  const down = totals.nodes - totals.nodes_answering;
  const rows = [
    [rate(totals.events_per_s), "events a second"],
    [count(totals.regions), `regions, ${count(totals.busy_regions)} busy`],
    [count(totals.subscribers_alive), `subscribers${gone(totals)}`],
    [count(totals.nodes_answering), down ? `nodes, ${count(down)} down` : "nodes", down && "bad"],
    [count(totals.atoms), "atoms"],
    [String(totals.path_nodes), "nodes a path"],
    [count(totals.behind), "events on the way"],
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

function gone({ subscribers: known, subscribers_alive: alive }) {
  return known > alive ? `, ${count(known - alive)} gone` : "";
}
