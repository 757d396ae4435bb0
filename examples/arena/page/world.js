// One game server's world on a canvas.

// `view`: the square that is shown, all of the world by default. `arena`: things elsewhere are pale. `own`: the name of
// the visitor's figure. `ogre`: { at }. `hoard`: { at, isOpen, isFull }. `shot`: [from, to].
export function drawWorld(canvas, terrain, server, apart, { view = { x: 0, y: 0, size: terrain.size }, arena, own, hoard, ogre, shot } = {}) {
  const width = canvas.clientWidth;
  const dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense)) canvas.width = canvas.height = Math.round(width * dense);
  const pen = canvas.getContext("2d");
  const scale = (width * dense) / view.size;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale);
  const close = view.size < terrain.size;

  const watched = new Set(server.regions);
  for (const [name, [x, y]] of Object.entries(terrain.regions)) {
    disc(pen, x, y, terrain.radius);
    pen.strokeStyle = colour("--line");
    pen.lineWidth = 0.6;
    if (watched.has(name)) {
      pen.fillStyle = colour("--watched");
      pen.globalAlpha = 0.6;
      pen.fill();
      pen.globalAlpha = 1;
    } else {
      pen.setLineDash([1.5, 1.5]);
    }
    pen.stroke();
    pen.setLineDash([]);
    if (close) {
      const inside = (at, from) => Math.min(Math.max(at, from + 9), from + view.size - 9);
      label(pen, name, inside(x, view.x), inside(y, view.y), 2.6, "center", "--soft");
    } else {
      const left = x < terrain.size / 2;
      label(pen, name, left ? 4 : terrain.size - 4, y < terrain.size / 2 ? 8 : terrain.size - 5, 5, left ? "left" : "right", "--soft");
    }
  }

  if (hoard) drawHoard(pen, hoard);
  for (const [name, state] of Object.entries(server.things)) {
    const [x, y] = state;
    pen.globalAlpha = arena && !name.startsWith(arena) ? 0.3 : 1;
    if (isFigure(state)) drawFigure(pen, state, close, name === own);
    else if (isBot(state)) {
      disc(pen, x, y, 1.5 + Math.min(1.6, state[3] / 250));
      pen.fillStyle = colour(`--${name.split("-")[0]}`);
      pen.fill();
    } else {
      pen.beginPath();
      pen.rect(x - 2, y - 1.6, 4, 3.2);
      pen.fillStyle = colour("--chest");
      pen.fill();
    }
    if (apart.has(name)) {
      disc(pen, x, y, 4.2);
      pen.strokeStyle = colour("--bad");
      pen.lineWidth = 0.9;
      pen.stroke();
    }
  }
  pen.globalAlpha = 1;
  if (ogre) {
    disc(pen, ...ogre.at, 3.6);
    pen.fillStyle = colour("--bad");
    pen.fill();
    if (close) label(pen, "ogre", ogre.at[0], ogre.at[1] - 4.6, 2.4, "center", "--ink");
  }
  if (shot) {
    pen.beginPath();
    for (const at of shot) pen.lineTo(...at);
    pen.strokeStyle = colour("--bad");
    pen.lineWidth = 0.7;
    pen.stroke();
  }
}

function drawHoard(pen, { at: [x, y], isOpen, isFull }) {
  pen.strokeStyle = colour("--soft");
  pen.lineWidth = 1.1;
  pen.beginPath(); // walls, with a gap to the south where the door is
  pen.moveTo(x - 1.8, y + 4);
  for (const [across, along] of [[-4, 4], [-4, -4], [4, -4], [4, 4], [1.8, 4]]) pen.lineTo(x + across, y + along);
  pen.stroke();
  pen.strokeStyle = colour("--ink");
  pen.beginPath();
  pen.moveTo(x - 1.8, y + 4);
  pen.lineTo(...(isOpen ? [x - 1.8, y + 7.6] : [x + 1.8, y + 4]));
  pen.stroke();
  pen.beginPath();
  pen.rect(x - 2.4, y - 2, 4.8, 4);
  pen.fillStyle = pen.strokeStyle = colour("--chest");
  pen.lineWidth = 0.5;
  if (isFull) pen.fill();
  pen.stroke();
}

export const isFigure = (state) => state.length === 8;
export const isBot = (state) => state.length === 5;

function drawFigure(pen, [x, y, , , , title, number, isSafe], close, isOwn) {
  const half = close ? 2.4 : 3.2;
  pen.beginPath();
  pen.moveTo(x, y - half);
  pen.lineTo(x + half, y);
  pen.lineTo(x, y + half);
  pen.lineTo(x - half, y);
  pen.closePath();
  pen.fillStyle = colour(`--figure-${number}`);
  pen.fill();
  pen.strokeStyle = colour("--ink");
  pen.lineWidth = isOwn ? 0.8 : 0.4;
  pen.stroke();
  if (isSafe) {
    disc(pen, x, y, half + 1.2);
    pen.setLineDash([1, 1]);
    pen.stroke();
    pen.setLineDash([]);
  }
  if (close) label(pen, title, x, y - 3.6, 2.4, "center", "--ink");
}

function label(pen, text, x, y, size, align, ink) {
  pen.fillStyle = colour(ink);
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

function disc(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
}

// A canvas does not know light-dark(): an element's computed colour does.
const probe = document.createElement("i");
const known = new Map();
let scheme = "";

function colour(name) {
  const now = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (now !== scheme) known.clear();
  scheme = now;
  if (!known.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.hidden = true;
    probe.style.color = `var(${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}
