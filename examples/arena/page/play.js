// The visitor's own figure: its moves and acts are events that the gamecast client publishes through a gateway.
import { connect } from "../client/gamecast.js";
import { drawWorld, isFigure } from "./world.js";

const STEP_MS = 100;
const UNANSWERED_MAX = 10;
const WAYS = {
  ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  KeyW: [0, -1], KeyS: [0, 1], KeyA: [-1, 0], KeyD: [1, 0],
};
const NAMES = ["Ada", "Bo", "Cleo", "Dara", "Eno", "Fay", "Gus", "Hana"];

const canvas = document.getElementById("arena");
const form = document.getElementById("enter");
const held = new Set();
const here = new Map();
let terrain;
let client = null;
let figure = null; // { arena, title, colour }, as published
let world = null; // of a game server that computes the figure's arena
let goal = null;
let unanswered = 0;
let heard = 0;
let opened = 0;

export function offerFigure(land) {
  terrain = land;
  for (const name of Object.keys(terrain.arenas)) form.elements.arena.add(new Option(name));
  for (let number = 0; number < terrain.colours; number++) {
    const radio = Object.assign(document.createElement("input"), { type: "radio", name: "colour", value: number });
    radio.setAttribute("aria-label", `colour ${number + 1}`);
    radio.style.setProperty("--mine", `var(--figure-${number})`);
    form.querySelector("fieldset").append(radio);
  }
  const lot = Math.floor(Math.random() * NAMES.length);
  form.elements.title.maxLength = terrain.title_length_max;
  form.elements.title.value = NAMES[lot];
  form.elements.colour.value = String(lot % terrain.colours);
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    enter({
      arena: form.elements.arena.value,
      title: form.elements.title.value.trim() || NAMES[lot],
      colour: Number(form.elements.colour.value),
    }).catch(report);
    document.activeElement.blur(); // the keys are the figure's now
    form.querySelector("button").textContent = "Change";
  });
  listen();
  setInterval(step, STEP_MS);
  window.addEventListener("pagehide", () => figure && publish({ do: "leave" }));
}

// Called with each state of the servers' worlds.
export function showFigure(side) {
  const arena = figure?.arena ?? form.elements.arena.value;
  world = side.servers.find((server) => terrain.arenas[arena].every((region) => server.regions.includes(region)));
  const [x, y] = middle(arena);
  const size = 2 * terrain.room + 12;
  const name = ownName();
  const view = { x: x - size / 2, y: y - size / 2, size };
  drawWorld(canvas, terrain, world, new Set(side.apart), { view, arena, own: name });
  const mine = world.things[name];
  listHere();
  write("mine", mine ? `${mine[3]} · health ${mine[2]} · felled ${mine[4]} times` : "–");
  canvas.setAttribute("aria-label", mine ? `The ${arena}: ${figure.title} stands at ${mine[0]}, ${mine[1]}` : `The ${arena}`);
  canvas.dataset.figures = Object.values(world.things).filter(isFigure).map((state) => state[5]).join(" ");
  canvas.dataset.at = mine ? `${mine[0]},${mine[1]}` : "";
}

async function enter(next) {
  if (!client) await open();
  const before = figure;
  if (before && before.arena !== next.arena) await publish({ do: "leave" });
  const regions = terrain.arenas[next.arena];
  if (before?.arena !== next.arena) {
    here.clear();
    const old = (before ? terrain.arenas[before.arena] : []).filter((region) => !regions.includes(region));
    if (old.length) await client.unsubscribe(old);
    figure = next;
    await client.subscribe(regions, { state: true });
  }
  figure = next;
  goal = null;
  await publish({ do: "enter", title: next.title, colour: next.colour });
}

async function open() {
  const { visitor, token } = await (await fetch("token", { method: "POST" })).json();
  client = connect(terrain.gateways.map((url) => url.replace("http", "ws")), { token, name: visitor });
  client.on("status", (status, reason) => {
    if (status === "open") opened++;
    showStatus(status, reason);
  });
  client.on("error", report);
  client.on("state", ({ state }) => Object.values(state).forEach(hear));
  client.on("event", (event) => {
    heard++;
    if (event.sender.startsWith("~")) hear(event);
    count();
  });
  client.on("gap", ({ gap }) => report(new Error(`missed events: ${gap.reason}`)));
}

function showStatus(status, reason) {
  const again = opened > 1 ? `, again after ${opened - 1} interruption${opened > 2 ? "s" : ""}` : "";
  const text = { open: `Connected${again}`, waiting: "Waiting, and trying the other gateway", closed: "Closed" }[status];
  write("status", reason && status !== "open" ? `${text}: ${reason.message}` : text);
  document.getElementById("status").className = status === "open" ? "" : "waiting";
}

// Who has entered: by the events, and before this page did, by the state of the regions' keys.
function hear({ sender, payload }) {
  if (payload?.do === "enter" && payload.arena === figure.arena) here.set(`${payload.arena}/${sender}`, payload);
  if (payload?.do === "leave") here.delete(`${payload.arena}/${sender}`);
}

function listHere() {
  const list = document.getElementById("here");
  const there = [...here].filter(([name]) => name in world.things);
  const told = JSON.stringify(there);
  if (list.dataset.told === told) return;
  list.dataset.told = told;
  const items = there.map(([, { title, colour }]) => {
    const item = document.createElement("span");
    const mark = document.createElement("i");
    mark.style.background = `var(--figure-${colour % terrain.colours})`;
    item.append(mark, String(title).slice(0, terrain.title_length_max));
    return item;
  });
  list.replaceChildren(...(items.length ? items : ["–"]));
}

let lastMs = null;

function count() {
  const back = lastMs === null ? "" : ` · yours was safe after ${Math.round(lastMs)} ms`;
  write("heard", `${heard.toLocaleString("en")} heard${back}`);
}

// Figures act in the region whose middle is nearer, as bots do. Who enters and leaves is also the state of a key.
async function publish(deed) {
  const mine = world?.things[ownName()] ?? middle(figure.arena);
  const key = deed.do === "enter" || deed.do === "leave" ? `figure/${client.name}` : null;
  const distance = (region) => Math.hypot(...terrain.regions[region].map((at, axis) => at - mine[axis]));
  const [one, other] = terrain.arenas[figure.arena];
  const region = key || distance(one) <= distance(other) ? one : other;
  const began = performance.now();
  unanswered++;
  try {
    await client.publish(region, { ...deed, arena: figure.arena }, { key });
    lastMs = performance.now() - began;
    if (client.status === "open") showStatus("open");
  } finally {
    unanswered--;
  }
}

function step() {
  if (!figure || unanswered >= UNANSWERED_MAX) return;
  const mine = world?.things[ownName()];
  let [x, y] = [0, 0];
  for (const way of held) [x, y] = [x + WAYS[way][0], y + WAYS[way][1]];
  if (x || y) goal = null;
  else if (goal && mine) {
    [x, y] = goal.map((at, axis) => (Math.abs(at - mine[axis]) < 1.5 ? 0 : at - mine[axis]));
    if (!x && !y) goal = null;
  }
  if (!x && !y) return;
  const stride = (way) => Math.sign(way) * Math.min(terrain.stride, goal ? Math.round(Math.abs(way)) : 2);
  publish({ do: "walk", by: [stride(x), stride(y)] }).catch(report);
}

const act = () => figure && publish({ do: "act" }).catch(report);

function listen() {
  const isTyping = (target) => target.closest("input, select, button, summary");
  document.addEventListener("keydown", (event) => {
    if (!figure || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.code in WAYS) held.add(event.code);
    else if (event.code === "Space") event.repeat || act();
    else return;
    event.preventDefault();
  });
  document.addEventListener("keyup", (event) => held.delete(event.code));
  window.addEventListener("blur", () => held.clear());
  for (const button of document.querySelectorAll(".pad [data-way]")) {
    const code = Object.keys(WAYS).find((each) => WAYS[each].join() === button.dataset.way);
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      held.add(code);
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(end, () => held.delete(code));
    button.addEventListener("click", (event) => {
      if (event.detail === 0) hop(code); // by keyboard
    });
  }
  document.querySelector(".pad [data-act]").addEventListener("click", act);
  canvas.addEventListener("pointerdown", ({ offsetX, offsetY }) => {
    const mine = world?.things[ownName()];
    if (!mine) return;
    const [x, y] = middle(figure.arena);
    const size = 2 * terrain.room + 12;
    const at = [x - size / 2 + (offsetX / canvas.clientWidth) * size, y - size / 2 + (offsetY / canvas.clientHeight) * size];
    if (Math.max(Math.abs(at[0] - mine[0]), Math.abs(at[1] - mine[1])) <= terrain.reach) act();
    else goal = at;
  });
}

function hop(code) {
  held.add(code);
  setTimeout(() => held.delete(code), 1.5 * STEP_MS);
}

const ownName = () => (figure && client ? `${figure.arena}/${client.name}` : "");
const middle = (arena) => [0, 1].map((axis) => terrain.arenas[arena].reduce((sum, region) => sum + terrain.regions[region][axis], 0) / 2);

function write(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
}

function report(error) {
  const element = document.getElementById("status");
  element.className = "waiting";
  element.textContent = error.message;
}
