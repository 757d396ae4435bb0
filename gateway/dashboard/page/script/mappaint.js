// Paints the map's bitmap: once for new figures, and never for the pointer.
import { count, rate } from "./format.js";
import { TITLE } from "./maplayout.js";
import { colour, onTheme } from "./theme.js";

export const HEATS = 7; // none, and six steps
const [BEHIND, STUCK, UNKNOWN, HELD] = ["1", "2", "3", "4"];
const MARK_MIN = 8; // pixels of a marked cell among thousands, as long as few are marked: many would hide the others
const MARKED_MAX = 0.02;
const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif";

// The steps' upper bounds: 1, 3, 10 … up to the largest figure. They move only when that is far off, so that colours keep still.
export function stepsFor(figures, { least, before }) {
  const most = figures.reduce((top, each) => Math.max(top, each ?? 0), 0);
  let end = HEATS - 2;
  while (bound(end, least) < most) end++;
  if (before !== undefined && end < before.end && end >= before.end - 1) end = before.end;
  return { end, bounds: Array.from({ length: HEATS - 1 }, (_, place) => bound(end - HEATS + 2 + place, least)) };
}

const bound = (place, least) => Number((least * 10 ** Math.floor(place / 2) * (place % 2 ? 3 : 1)).toPrecision(1));

export function heatOf(figure, bounds) {
  if (!figure) return 0;
  const place = bounds.findIndex((each) => figure <= each);
  return place === -1 ? HEATS - 1 : place + 1;
}

export function paint(canvas, layout, { names, figures, states, bounds }) {
  const ratio = devicePixelRatio || 1;
  fit(canvas, layout, ratio);
  const context = canvas.getContext("2d", { alpha: true });
  context.clearRect(0, 0, canvas.width, canvas.height);
  const colours = { ...palette() };
  const classes = Array.from({ length: HEATS }, () => []);
  const special = { [BEHIND]: [], [STUCK]: [], [UNKNOWN]: [], [HELD]: [] };
  for (let index = 0; index < names.length; index++) {
    special[states[index]]?.push(index);
    if (states[index] !== STUCK && states[index] !== UNKNOWN) classes[heatOf(figures[index], bounds)].push(index);
  }
  const pixels = (index, least = 0) => snapped(layout.box(index), ratio, least);
  classes.forEach((indexes, heat) => {
    context.fillStyle = colours.heats[heat];
    for (const index of indexes) context.fillRect(...pixels(index));
  });
  const isFew = (special[BEHIND].length + special[STUCK].length + special[HELD].length) <= MARKED_MAX * names.length;
  const marks = { context, ratio, colours, pixels, least: isFew ? MARK_MIN : 0 };
  special[UNKNOWN].forEach((index) => markUnknown(marks, index));
  special[BEHIND].forEach((index) => markBehind(marks, index));
  special[HELD].forEach((index) => markHeld(marks, index));
  special[STUCK].forEach((index) => markStuck(marks, index));
  label(context, layout, ratio, { names, figures, states, bounds, colours });
}

export function fit(canvas, { width, height }, ratio) {
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

let colours = null; // read from the style sheet once a theme
onTheme(() => (colours = null));

function palette() {
  return (colours ??= {
    heats: Array.from({ length: HEATS }, (_, heat) => colour(`--heat-${heat}`)),
    ink: colour("--ink"), inverse: colour("--heat-inverse"), soft: colour("--soft"), edge: colour("--edge"), card: colour("--card"),
    bad: colour("--bad"), badSoft: colour("--bad-soft"), warn: colour("--warn"),
  });
}

// Edges at whole device pixels, with a gap where there is room for one; a mark is at least so large, around the same centre.
function snapped({ x, y, width, height }, ratio, least) {
  const size = Math.min(width, height);
  if (least && size < least) {
    const [wide, high] = [Math.max(width, least), Math.max(height, least)];
    return [x + (width - wide) / 2, y + (height - high) / 2, wide, high].map((each) => Math.round(each * ratio));
  }
  const gap = size >= 24 ? 3 : size >= 8 ? 2 : size >= 4 ? 1 : 0;
  const [left, top] = [Math.round(x * ratio), Math.round(y * ratio)];
  return [left, top, Math.max(1, Math.round((x + width) * ratio) - left - gap), Math.max(1, Math.round((y + height) * ratio) - top - gap)];
}

function markStuck({ context, ratio, colours, pixels, least }, index) {
  const [x, y, width, height] = pixels(index, least);
  context.fillStyle = colours.badSoft;
  context.fillRect(x, y, width, height);
  context.fillStyle = colours.stripes ??= hatch(context, ratio, colours.bad, 7, 2.4);
  context.fillRect(x, y, width, height);
  outline(context, [x, y, width, height], Math.round((Math.min(width, height) >= 8 * ratio ? 2 : 1) * ratio), colours.bad);
}

function markBehind({ context, ratio, colours, pixels, least }, index) {
  const [x, y, width, height] = pixels(index, least);
  outline(context, [x, y, width, height], Math.round((Math.min(width, height) >= 8 * ratio ? 2 : 1) * ratio), colours.warn);
  const side = Math.min(12 * ratio, width * 0.7, height * 0.7);
  context.fillStyle = colours.warn;
  context.beginPath();
  context.moveTo(x + width, y);
  context.lineTo(x + width, y + side);
  context.lineTo(x + width - side, y);
  context.fill();
}

// The sign of a pause: its path is well, and some of its subscribers wait nevertheless.
function markHeld({ context, ratio, colours, pixels, least }, index) {
  const [x, y, width, height] = pixels(index, least);
  outline(context, [x, y, width, height], Math.round((Math.min(width, height) >= 8 * ratio ? 2 : 1) * ratio), colours.bad);
  const high = Math.min(13 * ratio, height * 0.6);
  const wide = high / 3.2;
  context.fillStyle = colours.badSoft;
  context.fillRect(x + width - 4.2 * wide, y + 2 * ratio, 3.8 * wide, high + wide);
  context.fillStyle = colours.bad;
  for (const from of [3.6, 1.8]) context.fillRect(x + width - from * wide, y + 2 * ratio + wide / 2, wide, high);
}

function markUnknown({ context, ratio, colours, pixels }, index) {
  const [x, y, width, height] = pixels(index);
  context.fillStyle = colours.dots ??= dotted(context, ratio, colours.edge);
  context.fillRect(x, y, width, height);
  if (Math.min(width, height) >= 6 * ratio) outline(context, [x, y, width, height], Math.max(1, Math.round(ratio)), colours.edge);
}

function outline(context, [x, y, width, height], thick, stroke) {
  context.strokeStyle = stroke;
  context.lineWidth = thick;
  context.strokeRect(x + thick / 2, y + thick / 2, width - thick, height - thick);
}

function hatch(context, ratio, stroke, apart, thick) {
  const side = Math.round(apart * ratio);
  const tile = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const drawn = tile.getContext("2d");
  drawn.strokeStyle = stroke;
  drawn.lineWidth = (thick * ratio) / 1.4;
  for (const shift of [-side, 0, side]) {
    drawn.beginPath();
    drawn.moveTo(shift - 1, side + 1);
    drawn.lineTo(shift + side + 1, -1);
    drawn.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function dotted(context, ratio, fill) {
  const side = Math.max(3, Math.round(5 * ratio));
  const tile = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const drawn = tile.getContext("2d");
  drawn.fillStyle = fill;
  drawn.fillRect(0, 0, Math.ceil(1.2 * ratio), Math.ceil(1.2 * ratio));
  return context.createPattern(tile, "repeat");
}

function label(context, layout, ratio, { names, figures, states, bounds, colours }) {
  context.textBaseline = "top";
  for (const panel of layout.panels) {
    const { x, y, cell, title, columns, indexes } = panel;
    if (layout.several) {
      context.fillStyle = colours.soft;
      context.font = `600 ${12 * ratio}px ${FONT}`;
      const said = columns && panel.places ? `${title}, ${columns} × ${panel.rows}` : `${title}, ${count(indexes.length)}`;
      context.fillText(shortened(context, said, Math.max(cell.width * columns, 30) * ratio), x * ratio, (y - TITLE + 3) * ratio);
    }
    if (cell.width < 52 || cell.height < 22) continue;
    const room = (cell.width - 14) * ratio;
    for (const index of indexes) {
      const box = layout.box(index);
      const isMarked = states[index] === STUCK || states[index] === UNKNOWN;
      const [left, top] = [(box.x + 6) * ratio, (box.y + 5) * ratio];
      const shown = panel.places ? names[index].slice(title.length + 1) : names[index];
      const lines = [[shown, 600]];
      if (cell.height >= 38) lines.push([{ [STUCK]: "stuck", [HELD]: `${rate(figures[index])} held` }[states[index]] ?? rate(figures[index]), 400]);
      lines.forEach(([text, weight], line) => {
        context.font = `${weight} ${11.5 * ratio}px ${FONT}`;
        const cut = shortened(context, text, room);
        const down = top + line * 15 * ratio;
        if (isMarked) {
          context.fillStyle = states[index] === STUCK ? colours.badSoft : colours.card;
          context.fillRect(left - 2 * ratio, down - 1.5 * ratio, context.measureText(cut).width + 4 * ratio, 15 * ratio);
        }
        const isStrong = !isMarked && heatOf(figures[index], bounds) >= 4;
        context.fillStyle = states[index] === STUCK ? colours.bad : isStrong ? colours.inverse : colours.ink;
        context.fillText(cut, left, down);
      });
    }
  }
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let letters = text.length;
  while (letters > 1 && context.measureText(`${text.slice(0, letters)}…`).width > room) letters--;
  return `${text.slice(0, letters)}…`;
}

export function paintOverlay(canvas, layout, rings) {
  const ratio = devicePixelRatio || 1;
  fit(canvas, layout, ratio);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  const { ink, card } = palette();
  for (const index of rings) {
    const [x, y, width, height] = snapped(layout.box(index), ratio, MARK_MIN);
    const thick = Math.round(2 * ratio);
    outline(context, [x - thick, y - thick, width + 2 * thick, height + 2 * thick], thick, card);
    outline(context, [x, y, width, height], thick, ink);
  }
}
