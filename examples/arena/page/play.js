// The visitor's own figure. The gamecast client connects it through a gateway: it is there by presence, it moves by
// updates, and acts by events.
import { connect } from "../client/gamecast.js";
import { offerHoard, showHoard, hearKeys, forgetKeys } from "./hoard.js";
import { Moves } from "./moves.js";
import { offerShooting, showShot, hearShot } from "./shots.js";
import { drawWorld, isFigure } from "./world.js";

const STEP_MS = 50;
const STRIDE = 1;
const STAND_MS = 500; // so often, and where it stops, an event says where a moving figure is
const UNANSWERED_MAX = 10;
const WAYS = {
  ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  KeyW: [0, -1], KeyS: [0, 1], KeyA: [-1, 0], KeyD: [1, 0],
};
const NAMES = ["Ada", "Bo", "Cleo", "Dara", "Eno", "Fay", "Gus", "Hana"];

const canvas = document.getElementById("arena");
const form = document.getElementById("enter");
const held = new Set();
const moves = new Moves();
let terrain;
let client = null;
let figure = null; // { arena, nick, colour }, as others see it
let world = null; // of a game server that computes the figure's arena
let side = null; // gamecast's, as the page's server last said
let ogre = null; // where it is, and who moved it
let goal = null;
let isMoving = false;
let stoodMs = 0;
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
  form.elements.title.placeholder = NAMES[lot]; // no value: a visitor may be typing
  form.elements.colour.value = String(lot % terrain.colours);
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    enter({
      arena: form.elements.arena.value,
      nick: form.elements.title.value.trim() || NAMES[lot],
      colour: Number(form.elements.colour.value),
    }).catch(report);
    document.activeElement.blur(); // the keys are the figure's now
    form.querySelector("button").textContent = "Change";
  });
  form.querySelector("button").disabled = false;
  listen();
  offerHoard(pickUp, report);
  offerShooting(shoot);
  setInterval(step, STEP_MS);
  window.addEventListener("pagehide", () => client?.close());
  window.addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
}

// Called with each state of the servers' worlds.
export function showFigure(said, monster) {
  side = said;
  ogre = monster;
  write("ogre", ogre ? `in the ${ogre.region}, moved by ${ogre.by}` : "–");
  world = side.servers.find((server) => terrain.arenas[arenaShown()].every((region) => server.regions.includes(region)));
  moves.settle(world.things);
  draw();
  const mine = world.things[ownName()];
  write("mine", mine ? `${mine[3]} · health ${mine[2]} · felled ${mine[4]} times` : "–");
  write("safe", mine ? (mine[7] ? "You cannot be hit for some seconds, unless you hit first." : "Bots leave you alone while you stand still.") : "–");
  canvas.dataset.figures = Object.values(world.things).filter(isFigure).map((state) => state[5]).join(" ");
  canvas.dataset.at = mine ? `${mine[0]},${mine[1]}` : "";
}

function draw() {
  const arena = arenaShown();
  const [x, y] = middle(arena);
  const size = 2 * terrain.room + 12;
  const things = moves.applied(world.things);
  const view = { x: x - size / 2, y: y - size / 2, size };
  const hoard = showHoard(figure && arena, [x, y]);
  drawWorld(canvas, terrain, { ...world, things }, new Set(side.apart), { view, arena, own: ownName(), hoard, ogre, shot: showShot(figure?.arena, world, terrain.bows) });
  const mine = things[ownName()];
  canvas.setAttribute("aria-label", mine ? `The ${arena}: ${mine[5]} stands at ${Math.round(mine[0])}, ${Math.round(mine[1])}` : `The ${arena}`);
  const drawn = Object.values(things).filter(isFigure).map((state) => [state[5], state.slice(0, 2)]);
  canvas.dataset.drawn = JSON.stringify(Object.fromEntries(drawn));
}

async function enter(next) {
  if (!client) await open();
  if (figure) await client.unsubscribe(terrain.arenas[figure.arena]);
  forgetKeys();
  figure = next;
  goal = null;
  await client.subscribe(terrain.arenas[next.arena], { presence: next });
}

async function open() {
  const { visitor, token } = await (await fetch("token", { method: "POST" })).json();
  client = connect(terrain.gateways.map((url) => url.replace("http", "ws")), { token, name: visitor });
  client.on("status", (status, reason) => {
    if (status === "open") opened++;
    showStatus(status, reason);
  });
  client.on("error", report);
  client.on("state", ({ state }) => {
    hearKeys(state);
    listHere();
  });
  client.on("presence", listHere);
  client.on("event", (event) => {
    heard++;
    if (event.key) hearKeys({ [event.key]: event });
    hearShot(event);
    count();
  });
  client.on("update", ({ sender, payload }) => {
    if (!figure) return;
    moves.note(`${figure.arena}/${sender}`, payload, sender in present(), world?.things);
    write("updates", `${moves.heard.toLocaleString("en")} heard, ${moves.early} before their figure`);
    requestDraw();
  });
  client.on("gap", ({ gap }) => report(new Error(`missed events: ${gap.reason}`)));
}

let isDrawing = false;

function requestDraw() {
  if (isDrawing || !world) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    draw();
  });
}

// The players of the arena, as of the events that this page has handled.
const present = () => (figure ? client.present(home()) : {});

function listHere() {
  const players = Object.entries(present()).filter(([, { arena }]) => arena === figure.arena);
  moves.keep(new Set(players.map(([name]) => `${figure.arena}/${name}`)));
  const items = players.map(([, { nick, colour }]) => {
    const item = document.createElement("span");
    const mark = document.createElement("i");
    mark.style.background = `var(--figure-${Number(colour) % terrain.colours})`;
    item.append(mark, String(nick).slice(0, terrain.title_length_max));
    return item;
  });
  document.getElementById("here").replaceChildren(...(items.length ? items : ["–"]));
}

function showStatus(status, reason) {
  const again = opened > 1 ? `, again after ${opened - 1} interruption${opened > 2 ? "s" : ""}` : "";
  const text = { open: `Connected${again}`, waiting: "Waiting, and trying the other gateway", closed: "Closed" }[status];
  write("status", reason && status !== "open" ? `${text}: ${reason.message}` : text);
  document.getElementById("status").className = status === "open" ? "" : "waiting";
}

let lastMs = null;

function count() {
  const back = lastMs === null ? "" : ` · yours was safe after ${Math.round(lastMs)} ms`;
  write("heard", `${heard.toLocaleString("en")} heard${back}`);
}

// Figures act in the region whose middle is nearer, as bots do. Keys are in the arena's home region.
async function publish(deed, about) {
  const at = place() ?? middle(figure.arena);
  const distance = (region) => Math.hypot(...terrain.regions[region].map((along, axis) => along - at[axis]));
  const [one, other] = terrain.arenas[figure.arena];
  const nearer = about || distance(one) <= distance(other) ? one : other;
  const began = performance.now();
  unanswered++;
  try {
    await client.publish(deed.do === "shoot" ? [one, other] : nearer, { ...deed, arena: figure.arena, at: at.map(Math.round) }, about);
    lastMs = performance.now() - began;
    if (client.status === "open") showStatus("open");
  } finally {
    unanswered--;
  }
}

const pickUp = (deedOf, about) => publish({ ...deedOf(figure.nick), nick: figure.nick }, about);

function step() {
  const at = place();
  if (!at) return;
  let [x, y] = [0, 0];
  for (const way of held) [x, y] = [x + WAYS[way][0] * STRIDE, y + WAYS[way][1] * STRIDE];
  if (x || y) goal = null;
  else if (goal) {
    [x, y] = goal.map((to, axis) => Math.min(STRIDE, Math.max(-STRIDE, to - at[axis])));
    if (Math.hypot(x, y) < 0.1) [goal, x, y] = [null, 0, 0];
  }
  const walks = x !== 0 || y !== 0;
  if (walks) move(at[0] + x, at[1] + y);
  if ((isMoving && !walks) || (walks && performance.now() - stoodMs > STAND_MS)) {
    if (unanswered < UNANSWERED_MAX) publish({ do: "stand" }).catch(report);
    stoodMs = performance.now();
  }
  isMoving = walks;
}

function move(...to) {
  const [x, y] = middle(figure.arena).map((from, axis) => Math.min(from + terrain.room, Math.max(from - terrain.room, to[axis])));
  moves.note(ownName(), { x, y }, true, world.things);
  client.update(home(), "figure", { x, y });
  requestDraw();
}

// One event of both regions, with one place in the order of both.
const shoot = () => figure && terrain.bows.includes(figure.arena) && publish({ do: "shoot" }).catch(report);
const act = () => figure && publish({ do: "act" }).catch(report);

function listen() {
  const isTyping = (target) => target.closest("input, select, summary");
  const isPressing = (target) => target.closest("button");
  document.addEventListener("keydown", (event) => {
    if (!figure || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.code in WAYS) held.add(event.code);
    else if (event.code === "Space" && !isPressing(event.target)) event.repeat || act();
    else if (event.code === "KeyF") event.repeat || shoot();
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
    const mine = place();
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

const arenaShown = () => figure?.arena ?? form.elements.arena.value;
const home = () => terrain.arenas[figure.arena][0];
const place = () => figure && world && moves.place(ownName(), world.things);
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
