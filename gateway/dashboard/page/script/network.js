// The sequencing network as a picture, and as tables for those who rather read, or cannot see, it.
import { layout, Graph } from "../vendor/dagre.js";
import { byId, draw, make, say, table } from "./dom.js";
import { bytes, count, counted, rate, since, span, trouble, UNKNOWN } from "./format.js";

const DRAWN_MAX = 36;
const SCALE_MIN = 0.62;
const BOX = { width: 158, height: 74 };

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
  const key = JSON.stringify([nodes.map(({ name }) => name).sort(), links.map((link) => `${link.from}>${link.to}`).sort()]);
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
    for (const [name, part] of parts) part.group.classList.toggle("onpath", marked.has(name));
  }
}

function arrange(nodes, links) {
  const place = byId("graph");
  if (!nodes.length) {
    place.replaceChildren(make("p", { class: "empty" }, "No node is registered. `gamecast node --help` tells how to run one."));
    return { nodes: new Map(), links: new Map() };
  }
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 26, ranksep: 46, marginx: 20, marginy: 20 });
  graph.setDefaultEdgeLabel(() => ({}));
  nodes.map(({ name }) => name).sort(naturally).forEach((name) => graph.setNode(name, { ...BOX }));
  links.forEach((link) => graph.setEdge(link.from, link.to, { width: 82, height: 16, labelpos: "c" }));
  layout(graph);
  const alone = nodes.filter(({ name }) => !links.some((link) => link.from === name || link.to === name));
  if (alone.length > 1) spread(graph, alone.map(({ name }) => name).sort(naturally));
  const { width, height } = extent(graph);
  const parts = { nodes: new Map(), links: new Map() };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(nodes, links) });
  for (const edge of graph.edges()) {
    const part = drawLink(graph.edge(edge));
    parts.links.set(`${edge.v}>${edge.w}`, part);
    svg.append(part.group);
  }
  for (const name of graph.nodes()) {
    const part = drawNode(name, graph.node(name));
    parts.nodes.set(name, part);
    svg.append(part.group);
  }
  // As large as there is room, as small as can be read; what is larger then scrolls.
  svg.style.width = "100%";
  svg.style.maxWidth = `${width}px`;
  svg.style.minWidth = `${Math.round(width * SCALE_MIN)}px`;
  place.replaceChildren(svg);
  if (place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight) place.setAttribute("tabindex", "0");
  else place.removeAttribute("tabindex");
  return parts;
}

// Nodes without links come out of the layout as one tall column: better a grid below the rest.
function spread(graph, names) {
  const rest = graph.nodes().filter((name) => !names.includes(name)).map((name) => graph.node(name));
  const top = rest.length ? Math.max(...rest.map(({ y }) => y)) + BOX.height + 30 : BOX.height / 2 + 20;
  const columns = Math.max(3, Math.floor(byId("graph").clientWidth / (BOX.width + 26)) || 4);
  if (rest.length) {
    const shift = Math.min(...rest.map(({ y }) => y)) - BOX.height / 2 - 20;
    rest.forEach((node) => { node.y -= shift; });
    graph.edges().forEach((edge) => graph.edge(edge).points.forEach((point) => { point.y -= shift; }));
    graph.edges().forEach((edge) => { graph.edge(edge).y -= shift; });
    names.forEach((name, place) => Object.assign(graph.node(name), cell(place, columns, top - shift)));
  } else {
    names.forEach((name, place) => Object.assign(graph.node(name), cell(place, columns, top)));
  }
}

const cell = (place, columns, top) => ({
  x: 20 + BOX.width / 2 + (place % columns) * (BOX.width + 26),
  y: top + Math.floor(place / columns) * (BOX.height + 22),
});

function extent(graph) {
  const all = graph.nodes().map((name) => graph.node(name));
  return {
    width: Math.ceil(Math.max(...all.map(({ x }) => x)) + BOX.width / 2 + 20),
    height: Math.ceil(Math.max(...all.map(({ y }) => y)) + BOX.height / 2 + 20),
  };
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

function fillNode(part, node, nodes) {
  const busiest = Math.max(1, ...nodes.map(({ events_per_s }) => events_per_s));
  part.group.classList.toggle("down", node.condition === "stuck");
  part.group.classList.toggle("behind", node.condition === "behind");
  part.rate.setAttribute("class", node.answers ? "" : "bad");
  say(part.rate, node.answers ? `${rate(node.events_per_s)} /s` : "no answer");
  say(part.more, node.answers ? `${counted(node.regions, "region")}, ${counted(node.atoms, "atom")}` : since(node.since_ms).trim() || UNKNOWN);
  part.load.setAttribute("width", ((BOX.width - 24) * node.events_per_s) / busiest);
  say(part.title, node.answers
    ? `${node.name} at ${node.where}: ${rate(node.events_per_s)} events a second; ingress of ${count(node.ingress_of)}, egress of ${counted(node.egress_of, "region")}${node.lacking ? `; it has lost ${counted(node.lacking, "region")}` : ""}`
    : `${node.name} at ${node.where}: ${node.trouble}`);
}

function drawLink({ points, x, y }) {
  const path = points.map((point, place) => `${place ? "L" : "M"}${point.x} ${point.y}`).join(" ");
  const [before, end] = points.slice(-2);
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  const part = {
    title: draw("title"),
    line: draw("path", { class: "flow", d: path }),
    text: draw("text", { x, y: y + 4, "text-anchor": "middle", class: "soft" }),
  };
  const tip = draw("path", { class: "tip", d: "M0 0 L-9 -4.5 L-9 4.5 Z", transform: `translate(${end.x} ${end.y}) rotate(${angle})` });
  const plate = draw("rect", { class: "plate", x: x - 39, y: y - 9, width: 78, height: 18, rx: 4 });
  part.group = draw("g", {}, part.title, part.line, tip, plate, part.text);
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
