// Draws what the server says of both games, ten times a second. The counting is done there, from real deliveries.
import { offerBreaking, showBroken } from "./break.js";
import { offerFigure, showFigure } from "./play.js";
import { drawWorld } from "./world.js";

const number = new Intl.NumberFormat("en");
const terrain = await (await fetch("terrain")).json();
const sides = new Map();
const LATER_MIN = 100; // about half a second: another server of the same regions is behind

explain();
offerFigure(terrain);
offerBreaking(terrain.breakable);
connect();

function connect() {
  const live = new EventSource("live");
  const link = document.getElementById("link");
  live.onmessage = ({ data }) => {
    link.textContent = "";
    link.className = "";
    const { sides: both, faults, ogre } = JSON.parse(data);
    both.forEach((side) => show(side, ogre));
    showFigure(both[0], ogre);
    showBroken(faults);
  };
  live.onerror = () => {
    link.textContent = "The arena has closed, or cannot be reached. What you see is its last state; trying again.";
    link.className = "lost";
  };
}

function show(side, ogre) {
  const section = document.getElementById(side.kind);
  if (!sides.has(side.kind)) sides.set(side.kind, furnish(section, side));
  const same = side.differing === 0;
  section.classList.toggle("same", same);
  section.classList.toggle("diverged", !same);
  const set = (selector, text) => {
    const element = section.querySelector(selector);
    if (element.textContent !== text) element.textContent = text;
  };
  const counter = document.querySelector(`#proof [href="#${side.kind}"]`);
  counter.className = section.classList.contains("same") ? "same" : "diverged";
  counter.querySelector(".counter").textContent = number.format(side.differing);
  set(".verdict", same ? "All worlds are the same." : "The worlds have drifted apart.");
  const lost = `${side.kind === "plain" && side.lost ? "at least " : ""}${number.format(side.lost)} events lost`;
  const age = side.age_ms === null ? "" : ` · median age of an event ${Math.round(side.age_ms)} ms`;
  const owners = side.two_owners ? ` · ${side.two_owners} chests with two owners` : "";
  set(
    ".figures",
    `now ${side.apart.length} of ${side.things} things differ · ${number.format(side.compared)} states compared${owners} · ${lost}${age}`,
  );
  const apart = new Set(side.apart);
  side.servers.forEach((server, place) => {
    const { canvas, event, count } = sides.get(side.kind)[place];
    const isHere = side.kind === "gamecast" && server.regions.includes(ogre?.region); // plain Pub/Sub has no ogre
    drawWorld(canvas, terrain, server, apart, { ogre: isHere ? ogre : null });
    const off = Object.keys(server.things).filter((name) => apart.has(name)).length;
    count.textContent = off ? `${off} differ` : "";
    const later = server.later >= LATER_MIN ? `, ${number.format(server.later)} heard since` : "";
    event.textContent = `event ${number.format(server.event)}${later}`;
  });
  if (document.getElementById("loot").open) tabulate(side, apart);
}

function furnish(section, side) {
  return side.servers.map((server) => {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `The world of ${server.name}, which watches ${server.regions.join(", ")}`);
    const caption = document.createElement("figcaption");
    const name = document.createElement("b");
    name.textContent = server.name.replace("server-", "");
    const event = document.createElement("span");
    const count = document.createElement("span");
    count.className = "off";
    caption.append(name, event, count);
    figure.append(canvas, caption);
    section.querySelector(".worlds").append(figure);
    return { canvas, event, count };
  });
}

function tabulate(side, apart) {
  const columns = side.servers.map((server) => server.name.replace("server-", ""));
  const loot = new Map();
  side.servers.forEach(({ things }, place) => {
    for (const [name, state] of Object.entries(things)) {
      if (state.length !== 5) continue;
      if (!loot.has(name)) loot.set(name, columns.map(() => null));
      loot.get(name)[place] = state[3];
    }
  });
  const richest = [...loot].sort((a, b) => Math.max(...b[1]) - Math.max(...a[1])).slice(0, 10);
  const table = document.createElement("table");
  table.createCaption().textContent = side.kind === "plain" ? "plain Redis Pub/Sub" : side.kind;
  const head = table.createTHead().insertRow();
  for (const text of ["bot", ...columns]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [name, values] of richest) {
    const row = body.insertRow();
    row.className = apart.has(name) ? "off" : "";
    for (const value of [name, ...values]) row.insertCell().textContent = value ?? "";
  }
  const tables = document.querySelector("#loot .tables");
  table.id = `loot-${side.kind}`;
  const old = document.getElementById(table.id);
  if (old) old.replaceWith(table);
  else tables.append(table);
}

function explain() {
  const names = terrain.cities.map((name) => name[0].toUpperCase() + name.slice(1));
  document.getElementById("cities").textContent = `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
  const ways = terrain.one_way_ms.flatMap((row, from) => row.filter((_, to) => to !== from));
  document.getElementById("delays").textContent = `${Math.min(...ways)} to ${Math.max(...ways)}`;
}
