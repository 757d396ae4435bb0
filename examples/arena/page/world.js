// One game server's world on a canvas.

export function drawWorld(canvas, terrain, server, apart) {
  const width = canvas.clientWidth;
  const dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense)) canvas.width = canvas.height = Math.round(width * dense);
  const pen = canvas.getContext("2d");
  const scale = (width * dense) / terrain.size;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, terrain.size, terrain.size);

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
    pen.fillStyle = colour("--soft");
    pen.font = "5px system-ui, sans-serif";
    pen.textAlign = x < terrain.size / 2 ? "left" : "right";
    pen.fillText(name, x < terrain.size / 2 ? 4 : terrain.size - 4, y < terrain.size / 2 ? 8 : terrain.size - 5);
  }

  for (const [name, state] of Object.entries(server.things)) {
    const [x, y] = state;
    const isBot = state.length === 5;
    if (isBot) {
      disc(pen, x, y, 1.5 + Math.min(1.6, state[3] / 250));
      pen.fillStyle = colour(`--${name.split("-")[0]}`);
    } else {
      pen.beginPath();
      pen.rect(x - 2, y - 1.6, 4, 3.2);
      pen.fillStyle = colour("--chest");
    }
    pen.fill();
    if (apart.has(name)) {
      disc(pen, x, y, 4.2);
      pen.strokeStyle = colour("--bad");
      pen.lineWidth = 0.9;
      pen.stroke();
    }
  }
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
