// One region or subscriber: what it is, who is there, and the region's events as they come.
import { byId, draw, make, say } from "./dom.js";
import { clock, count, counted, rate, span, trouble, UNKNOWN } from "./format.js";
import { ask } from "./gate.js";
import { Feed } from "./feed.js";
import { markPath } from "./network.js";

const NAMED_MAX = 6;
const MINUTES = 60;
let chosen = null; // { one, name }
let feed = null;
let parts = null;

export const chosenName = (one) => (chosen?.one === one ? chosen.name : null);

export function showRegion(name) {
  choose("region", name);
  parts = furnish("region", name, ["events/s", "on the way", "kept frames", "last number"]);
  const place = make("ol", { class: "feed", tabindex: "0", "aria-label": `Events of ${name}` });
  parts.body.append(
    make("h3", {}, "The last hour"), (parts.hour = make("div", { class: "hour" })),
    make("h3", {}, "Path, ingress to egress"), (parts.way = make("ol", { class: "way" })),
    (parts.atomsTitle = make("h3")), (parts.atoms = make("ul", { class: "names" })),
    (parts.peopleTitle = make("h3")), (parts.people = make("ul", { class: "names" })),
  );
  feed = new Feed(name, place);
  parts.body.append(feed.head, place);
  refreshRegion();
}

export function showSubscriber(name) {
  choose("subscriber", name);
  parts = furnish("subscriber", name, ["delivered/s", "held frames", "queued events", "last heard"]);
  parts.body.append((parts.peopleTitle = make("h3")), (parts.people = make("ul", { class: "names" })));
  refreshRegion();
}

export function reopenFeed() {
  if (chosen?.one === "region") showRegion(chosen.name);
}

export async function refreshRegion() {
  if (!chosen) return;
  const { one, name } = chosen;
  let row;
  try {
    row = await ask(one, { name });
  } catch (error) {
    if (error.status === 404 && chosen.name === name) say(parts.lost, `There is no ${one} of this name any more.`);
    return;
  }
  if (chosen.name !== name || chosen.one !== one) return;
  if (one === "region") fillRegion(row);
  else fillSubscriber(row);
}

function choose(one, name) {
  feed?.close();
  feed = null;
  chosen = { one, name };
  markPath([]);
}

function furnish(one, name, titles) {
  const figures = titles.map((title) => {
    const value = make("dd", {}, "…");
    return { value, box: make("div", {}, make("dt", {}, title), value) };
  });
  const lost = make("p", { class: "note", role: "status" });
  const body = make("div");
  byId("region").replaceChildren(
    make("p", { class: "title" }, name), lost,
    make("dl", { class: "figures" }, ...figures.map(({ box }) => box)), body);
  say(byId("region-title"), one === "region" ? "One region" : "One subscriber");
  if (matchMedia("(max-width: 980px)").matches) byId("region-title").focus();
  return { body, lost, figures: figures.map(({ value }) => value) };
}

function fillRegion(row) {
  const last = row.last === null ? UNKNOWN : row.last ? count(row.last) : "none";
  say(parts.lost, row.condition ? `This region is ${trouble(row)}.` : "");
  fill([rate(row.events_per_s), count(row.behind), count(row.kept), last]);
  markPath(row.path);
  fillHour(row.hour);
  relist(parts.way, row.path.flatMap((node, place) => (place ? [["arrow", "→"], ["", node]] : [["", node]])));
  say(parts.atomsTitle, row.atoms ? `${counted(row.atoms, "atom")}: ordered with` : "No atoms: what this region is ordered with ends at the same node");
  relist(parts.atoms, row.atoms_list.map((atom) => ["", `${named(atom.with)} (${atom.node})`]));
  say(parts.peopleTitle, counted(row.subscribers, "subscriber"));
  relist(parts.people, row.subscribers_list.map(({ name, waiting, held }) => [waiting || held ? "waiting" : "", waiting ? `${name} (not granted yet)` : held ? `${name} (held)` : name]));
}

function fillSubscriber(row) {
  say(parts.lost, row.condition ? `${capital(trouble(row))}.` : "");
  fill([rate(row.delivered_per_s), count(row.held), count(row.queued), row.heard_ms_ago === null ? "never" : `${span(row.heard_ms_ago)} ago`]);
  const more = row.regions > row.regions_list.length ? `, the first ${count(row.regions_list.length)}` : "";
  say(parts.peopleTitle, `${counted(row.regions, "region")}${more}`);
  relist(parts.people, row.regions_list.map(({ name, waiting, condition }) => [waiting || condition ? "waiting" : "", waiting ? `${name} (not granted yet)` : condition ? `${name} (${condition})` : name]));
}

// A bar a minute: events a second, and in red where events were on their way; unknown minutes are hatched.
function fillHour({ at_ms: times, events_per_s: rates, behind }) {
  const known = rates.filter((each) => each !== null);
  if (!known.length) return void parts.hour.replaceChildren(make("p", { class: "note" }, "The first bar comes with the second minute."));
  const most = Math.max(...known);
  const late = Math.max(0, ...behind);
  const said = `At most ${rate(most)} events/s; ${late ? `at most ${count(late)} on the way` : "none on the way at a full minute"}, since ${clock(times[0])}.`;
  const svg = draw("svg", { viewBox: `0 0 ${MINUTES * 5} 40`, role: "img", "aria-label": said, preserveAspectRatio: "none" });
  times.forEach((_, place) => {
    const x = (MINUTES - times.length + place) * 5;
    if (rates[place] === null) return void svg.append(draw("rect", { x, y: 0, width: 4, height: 40, fill: "url(#unknown-hatch)" }));
    const high = most ? Math.max(1, (38 * rates[place]) / most) : 1;
    return void svg.append(draw("rect", { x, y: 40 - high, width: 4, height: high, class: behind[place] ? "late" : "bar" }));
  });
  parts.hour.replaceChildren(svg, make("p", { class: "note" }, said));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const named = (names) => (names.length > NAMED_MAX ? `${names.slice(0, NAMED_MAX).join(", ")} and ${names.length - NAMED_MAX} more` : names.join(", "));

const fill = (texts) => texts.forEach((text, place) => say(parts.figures[place], text));

function relist(list, items) {
  const key = JSON.stringify(items);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...items.map(([mark, text]) => make("li", { class: mark || null, "aria-hidden": mark === "arrow" ? "true" : null }, text)));
  if (list.scrollHeight > list.clientHeight) list.setAttribute("tabindex", "0");
}

byId("region").replaceChildren(
  make("p", { class: "empty" }, "Choose a region on the map or in the list, to see its path, atoms and subscribers, and its events as they come."));
