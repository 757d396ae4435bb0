// The sequencing network as a picture, and as tables for those who rather read, or cannot see, it.
import { byId, draw, make, say, table } from "./dom.js";
import { bytes, count, counted, rate, since, span, trouble, UNKNOWN } from "./format.js";

const DRAWN_MAX = 36;
const SCALE_MIN = 0.85;
const BOX = { width: 158, height: 74 };
const APART = { x: 66, y: 36 }; // room for a link's label
const EDGE = 18;
const PLATE = { width: 62, height: 18 };
const STEPS = 60;
const GUTTER = 12; // how far from a box a link passes it by
const LANES = [0, 3, -3, 5, -6]; // by how much more or less, one link after the other
const CORNER = 12;

let newest = null;
let chosen = [];
let hinted = null;
let marked = new Set();
let drawn = { key: "", parts: null };

export function showNetwork(network) {
  newest = network;
  const nodes = network.nodes.slice(0, DRAWN_MAX);
  const names = new Set(nodes.map(({ name }) => name));
  const links = network.links.filter((link) => names.has(link.from) && names.has(link.to));
  const { totals } = network;
  const drawnOf = nodes.length < totals.nodes ? `${nodes.length} of ${counted(totals.nodes, "node")}` : counted(totals.nodes, "node");
  say(byId("network-note"), `${drawnOf}, ${counted(totals.links, "link")}, ${counted(totals.atoms, "atom")}${silent(totals)}`);
  const key = JSON.stringify([roomFor(byId("graph")), nodes.map(({ name }) => name).sort(), links.map((link) => `${link.from}>${link.to}`).sort()]);
  if (key !== drawn.key) {
    drawn = { key, parts: arrange(nodes, links) };
    mark();
  }
  nodes.forEach((node) => fillNode(drawn.parts.nodes.get(node.name), node, nodes));
  links.forEach((link) => fillLink(drawn.parts.links.get(`${link.from}>${link.to}`), link));
  tabulate(network);
}

function silent({ nodes_silent: names, silent_since_ms: ms }) {
  return names.length ? `; ${names.join(", ")} silent${since(ms)}` : "";
}

// The path of the region that was chosen, so that one sees where its frames go.
export function markPath(nodes) {
  chosen = nodes;
  trace();
}

// While something points at a region, its path stands in for the chosen one; null ends that.
export function hintPath(nodes) {
  if (hinted === nodes) return;
  hinted = nodes;
  trace();
}

function trace() {
  const nodes = hinted ?? chosen;
  marked = new Set(nodes.flatMap((name, place) => (place ? [name, `${nodes[place - 1]}>${name}`] : [name])));
  mark();
}

function mark() {
  for (const parts of [drawn.parts?.nodes ?? [], drawn.parts?.links ?? []]) {
    for (const [name, part] of parts) {
      for (const drawn of [part.group, part.label]) drawn?.classList.toggle("onpath", marked.has(name));
    }
  }
}

function arrange(nodes, links) {
  const place = byId("graph");
  if (!nodes.length) {
    place.replaceChildren(make("p", { class: "empty" }, "No node is registered. `gamecast node --help` tells how to run one."));
    return { nodes: new Map(), links: new Map() };
  }
  const { boxes, width, height } = standing(nodes.map(({ name }) => name).sort(naturally), roomFor(place));
  const parts = { nodes: new Map(), links: new Map() };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(nodes, links) });
  const labels = [];
  let far = 0;
  for (const { from, to } of links) {
    const ends = [boxes.get(from), boxes.get(to)];
    const isNext = areNext(...ends);
    const points = isNext ? straight(...ends) : around(...ends, LANES[far++ % LANES.length]);
    const at = isNext && ends[0].y === ends[1].y ? above(points) : free(points, [...boxes.values()], labels);
    labels.push(at);
    const part = drawLink(points, at);
    parts.links.set(`${from}>${to}`, part);
    svg.append(part.group);
  }
  for (const [name, at] of boxes) {
    const part = drawNode(name, at);
    parts.nodes.set(name, part);
    svg.append(part.group);
  }
  for (const { label } of parts.links.values()) svg.append(label); // above the boxes, where there is no room beside them
  svg.style.width = "100%";
  svg.style.maxWidth = `${width}px`;
  svg.style.minWidth = `${Math.round(width * SCALE_MIN)}px`;
  place.replaceChildren(svg);
  if (place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight) place.setAttribute("tabindex", "0");
  else place.removeAttribute("tabindex");
  return parts;
}

const roomFor = (place) => Math.max(1, Math.floor((place.clientWidth - 2 * EDGE + APART.x) / (BOX.width + APART.x)));

// Rows of about as many nodes each, in natural order: a node stands where it stood, whatever the links are.
function standing(names, room) {
  const rows = Math.ceil(names.length / room);
  const columns = Math.ceil(names.length / rows);
  const at = (place) => ({
    x: EDGE + BOX.width / 2 + (place % columns) * (BOX.width + APART.x),
    y: EDGE + BOX.height / 2 + Math.floor(place / columns) * (BOX.height + APART.y),
  });
  return {
    boxes: new Map(names.map((name, place) => [name, at(place)])),
    width: 2 * EDGE + columns * (BOX.width + APART.x) - APART.x,
    height: 2 * EDGE + rows * (BOX.height + APART.y) - APART.y,
  };
}

function areNext(from, to) {
  return Math.abs(to.x - from.x) < 1.5 * (BOX.width + APART.x) && Math.abs(to.y - from.y) < 1.5 * (BOX.height + APART.y);
}

function straight(from, to) {
  const at = (t) => ({ x: from.x + (to.x - from.x) * t, y: from.y + (to.y - from.y) * t });
  return between(from, to, Array.from({ length: STEPS + 1 }, (_, step) => at(step / STEPS)));
}

// Along the rows and columns of boxes, so that what stands between the two is not crossed. In a row, links to the right
// pass above it, others below.
function around(from, to, lane) {
  const apart = GUTTER + lane;
  const side = Math.sign(to.y - from.y) || (to.x > from.x ? -1 : 1);
  const leaves = from.y + side * (BOX.height / 2 + apart);
  const [starts, ends] = [from.x + 3 * lane, to.x + 3 * lane];
  const corners = [{ x: starts, y: from.y }, { x: starts, y: leaves }];
  if (Math.abs(to.y - from.y) > 1.5 * (BOX.height + APART.y)) {
    const beside = to.x + (to.x > from.x ? -1 : 1) * (BOX.width / 2 + apart);
    const enters = to.y - side * (BOX.height / 2 + apart);
    corners.push({ x: beside, y: leaves }, { x: beside, y: enters }, { x: ends, y: enters });
  } else {
    corners.push({ x: ends, y: leaves });
  }
  return between(from, to, rounded([...corners, { x: ends, y: to.y }]));
}

// Points along a line with corners, a few units apart.
function rounded(corners) {
  const points = [];
  corners.slice(1).forEach((corner, place) => {
    const [before, after] = [corners[place], corners[place + 2] ?? corner];
    const [come, go] = [Math.hypot(corner.x - before.x, corner.y - before.y), Math.hypot(after.x - corner.x, after.y - corner.y)];
    const toward = (other, length, most) => ({ x: corner.x + ((other.x - corner.x) * most) / (length || 1), y: corner.y + ((other.y - corner.y) * most) / (length || 1) });
    const first = points.at(-1) ?? before;
    const bend = Math.min(CORNER, come / 2, go / 2);
    const [turn, turned] = [toward(before, come, bend), toward(after, go, bend)];
    const steps = Math.max(1, Math.round(Math.hypot(turn.x - first.x, turn.y - first.y) / 6));
    for (let step = 1; step <= steps; step++) points.push({ x: first.x + ((turn.x - first.x) * step) / steps, y: first.y + ((turn.y - first.y) * step) / steps });
    for (const t of [0.25, 0.5, 0.75, 1]) points.push({ x: (1 - t) ** 2 * turn.x + 2 * t * (1 - t) * corner.x + t ** 2 * turned.x, y: (1 - t) ** 2 * turn.y + 2 * t * (1 - t) * corner.y + t ** 2 * turned.y });
  });
  return points;
}

// What of a line is outside of the boxes at its ends.
function between(from, to, points) {
  const first = points.findIndex((point) => !covers(from, point, 0));
  const last = points.findLastIndex((point) => !covers(to, point, 3));
  return points.slice(Math.max(0, first - 1), Math.max(first + 1, last + 1));
}

const covers = (box, { x, y }, more) => Math.abs(x - box.x) < BOX.width / 2 + more && Math.abs(y - box.y) < BOX.height / 2 + more;

// Between neighbours there is no room for a label on the line.
function above(points) {
  const { x, y } = points[Math.floor(points.length / 2)];
  return { x, y: y - 13 };
}

// The point for a label: outside of boxes if it can be, and as far from other labels as there is room.
function free(points, boxes, labels) {
  const middle = (points.length - 1) / 2;
  let best = null;
  points.forEach((point, place) => {
    const hidden = boxes.filter((box) => Math.abs(point.x - box.x) < BOX.width / 2 + PLATE.width / 2 && Math.abs(point.y - box.y) < BOX.height / 2 + PLATE.height / 2).length;
    const near = labels.filter((other) => Math.abs(point.x - other.x) < PLATE.width && Math.abs(point.y - other.y) < PLATE.height + 2).length;
    const cost = 4 * near + 3 * hidden + Math.abs(place - middle) / points.length;
    if (!best || cost < best.cost) best = { cost, x: point.x, y: point.y };
  });
  return best;
}

function drawNode(name, { x, y }) {
  const at = `translate(${x - BOX.width / 2} ${y - BOX.height / 2})`;
  const part = {
    title: draw("title"),
    load: draw("rect", { class: "load", x: 12, y: 60, height: 4, width: 0, rx: 2 }),
    rate: draw("text", { x: BOX.width - 12, y: 23, "text-anchor": "end" }),
    more: draw("text", { x: 12, y: 46, class: "soft" }),
  };
  part.group = draw("g", { class: "node", transform: at }, part.title,
    draw("rect", { class: "body", width: BOX.width, height: BOX.height, rx: 9 }),
    draw("text", { class: "name", x: 12, y: 23 }, shortened(name, 12)), part.rate, part.more,
    draw("rect", { class: "track", x: 12, y: 60, height: 4, width: BOX.width - 24, rx: 2 }), part.load);
  return part;
}

// How full a node's Redis is: of what it may hold, if there is a limit.
function filled({ memory_bytes: used, memory_bytes_max: most }) {
  return most && used !== null ? `${Math.round((100 * used) / most)}% full` : bytes(used);
}

function fillNode(part, node, nodes) {
  const busiest = Math.max(1, ...nodes.map(({ events_per_s }) => events_per_s));
  part.group.classList.toggle("down", node.condition === "stuck");
  part.group.classList.toggle("behind", node.condition === "behind");
  part.rate.setAttribute("class", node.answers ? "" : "bad");
  say(part.rate, node.answers ? `${rate(node.events_per_s)} /s` : "no answer");
  say(part.more, node.answers ? `${counted(node.regions, "region")}, ${filled(node)}` : since(node.since_ms).trim() || UNKNOWN);
  part.load.setAttribute("width", ((BOX.width - 24) * node.events_per_s) / busiest);
  say(part.title, node.answers
    ? `${node.name} at ${node.where}: ${rate(node.events_per_s)} events a second; ${counted(node.atoms, "atom")}, ingress of ${count(node.ingress_of)}, egress of ${counted(node.egress_of, "region")}${node.lacking ? `; it has lost ${counted(node.lacking, "region")}` : ""}`
    : `${node.name} at ${node.where}: ${node.trouble}`);
}

function drawLink(points, { x, y }) {
  const path = points.map((point, place) => `${place ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join(" ");
  const [before, end] = points.slice(-2);
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  const part = {
    title: draw("title"),
    line: draw("path", { class: "flow", d: path }),
    text: draw("text", { x, y: y + 4, "text-anchor": "middle", class: "soft" }),
  };
  const tip = draw("path", { class: "tip", d: "M0 0 L-9 -4.5 L-9 4.5 Z", transform: `translate(${end.x} ${end.y}) rotate(${angle})` });
  const plate = draw("rect", { class: "plate", x: x - PLATE.width / 2, y: y - PLATE.height / 2, ...PLATE, rx: 4 });
  part.group = draw("g", {}, part.title, part.line, tip);
  part.label = draw("g", {}, plate, part.text);
  return part;
}

function fillLink(part, link) {
  const kind = link.condition === "stuck" ? " stuck" : link.condition === "behind" ? " waiting" : "";
  part.line.setAttribute("class", (link.events_per_s > 0 ? "flow busy" : "flow") + kind);
  part.line.setAttribute("stroke-width", 1.5 + Math.min(4, Math.log10(1 + link.events_per_s)));
  say(part.text, link.condition === "stuck" ? `${link.waiting_frames ? `${count(link.waiting_frames)} ` : ""}stuck` : `${rate(link.events_per_s)} /s`);
  part.text.setAttribute("class", link.condition === "stuck" ? "bad" : "soft");
  say(part.title, `${link.from} → ${link.to}: ${counted(link.regions, "region")}, ${rate(link.events_per_s)} events a second, ${counted(link.waiting_frames, "frame")} waiting${link.condition ? `; ${trouble(link)}` : ""}`);
}

function describe(nodes, links) {
  const flows = links.map(({ from, to }) => `${from} to ${to}`).join(", ");
  return `${counted(nodes.length, "sequencing node")}${flows ? `; frames flow from ${flows}` : ", without links between them"}. The tables below have the figures.`;
}

function tabulate({ nodes, links, totals }) {
  const place = byId("network-tables");
  if (!place.parentElement.open) return;
  const of = (shown, all) => (shown.length < all ? `, ${shown.length} of ${count(all)}` : "");
  place.replaceChildren(
    table(`Nodes${of(nodes, totals.nodes)}`, [
      { title: "node", value: ({ name }) => name },
      { title: "at", value: ({ where }) => where, text: true },
      { title: "events a second", value: (node) => rate(node.events_per_s) },
      { title: "regions", value: (node) => count(node.regions) },
      { title: "ingress of", value: (node) => count(node.ingress_of) },
      { title: "egress of", value: (node) => count(node.egress_of) },
      { title: "atoms", value: (node) => count(node.atoms) },
      { title: "memory", value: (node) => bytes(node.memory_bytes) + (node.memory_bytes_max ? ` of ${bytes(node.memory_bytes_max)}` : "") },
      { title: "round trip", value: (node) => (node.round_trip_ms ? span(node.round_trip_ms) : UNKNOWN) },
      { title: "answers", value: (node) => (node.answers ? node.condition ?? "yes" : `no${since(node.since_ms)}: ${node.trouble}`), text: true, mark: (node) => (node.answers ? "" : "off") },
    ], nodes),
    links.length
      ? table(`Links${of(links, totals.links)}`, [
          { title: "from", value: ({ from }) => from },
          { title: "to", value: ({ to }) => to, text: true },
          { title: "regions", value: (each) => count(each.regions) },
          { title: "events a second", value: (each) => rate(each.events_per_s) },
          { title: "frames waiting", value: (each) => count(each.waiting_frames), mark: markOf },
          { title: "state", value: (each) => trouble(each) || "ok", text: true, mark: markOf },
        ], links)
      : make("p", { class: "note" }, "No region's path has more than one node, so there are no links."),
  );
}

const markOf = ({ condition }) => ({ stuck: "off", behind: "warn" })[condition] ?? "";

const naturally = (one, other) => one.localeCompare(other, "en", { numeric: true });

const shortened = (name, letters) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);

byId("network-tables").parentElement.addEventListener("toggle", () => newest && tabulate(newest));
