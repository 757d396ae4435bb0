// Where each region is on the map. It depends on the names alone, so a region keeps its place whatever happens to it.
const COORDINATES = /^(.+):(0|-?[1-9]\d{0,6}):(0|-?[1-9]\d{0,6})$/; // neither 01 nor -0: two names could be at one place
const SPARSE_MAX = 20; // a grid with more places for each region is drawn as a list of cells
const SIDE_MAX = 400; // cells of a longer grid would be too thin to be seen; it is drawn as a list of cells
const PANELS_MAX = 24;
const SHARE_MIN = { one: 0.1, all: 0.4 }; // of the map, for a panel with a few regions among thousands, and for all of these
const STRETCH_MAX = 2;
const CELL_MAX = { width: 150, height: 76 };
export const TITLE = 20;
const APART = 12;

// Groups names: regions named NAME:COLUMN:ROW are a grid, others are cells side by side, by what stands before the last ":" or "/".
export function panelsOf(names) {
  const grids = new Map();
  const rest = [];
  names.forEach((name, index) => {
    const [, title, column, row] = COORDINATES.exec(name) ?? [];
    if (title === undefined) rest.push(index);
    else collect(grids, title).push({ index, column: Number(column), row: Number(row) });
  });
  const panels = [];
  for (const [title, cells] of grids) {
    const grid = gridOf(title, cells);
    if (grid) panels.push(grid);
    else rest.push(...cells.map(({ index }) => index));
  }
  const groups = new Map();
  rest.sort((one, other) => one - other).forEach((index) => collect(groups, prefix(names[index])).push(index));
  for (const [title, indexes] of groups) if (title && indexes.length > 1) panels.push({ title, indexes });
  panels.sort((one, other) => other.indexes.length - one.indexes.length);
  const kept = panels.slice(0, PANELS_MAX);
  const placed = new Set(kept.flatMap(({ indexes }) => indexes));
  const others = names.map((_, index) => index).filter((index) => !placed.has(index));
  return others.length ? [...kept, { title: kept.length ? "others" : "", indexes: others }] : kept;
}

function collect(map, key) {
  if (!map.has(key)) map.set(key, []);
  return map.get(key);
}

const prefix = (name) => /^(.+)[:/]/.exec(name)?.[1] ?? "";

function gridOf(title, cells) {
  const [left, right] = extent(cells.map(({ column }) => column));
  const [top, bottom] = extent(cells.map(({ row }) => row));
  const [columns, rows] = [right - left + 1, bottom - top + 1];
  if (cells.length < 2 || columns * rows > SPARSE_MAX * cells.length || Math.max(columns, rows) > SIDE_MAX) return null;
  const places = cells.map(({ column, row }) => (row - top) * columns + column - left);
  return { title, columns, rows, left, top, indexes: cells.map(({ index }) => index), places };
}

function extent(numbers) {
  return numbers.reduce(([least, most], each) => [Math.min(least, each), Math.max(most, each)], [Infinity, -Infinity]);
}

// Squarified treemap (Bruls 2000): rectangles for weights, which must be in descending order.
export function squarify(weights, { x, y, width, height }) {
  const scale = (width * height) / (weights.reduce((sum, each) => sum + each, 0) || 1);
  const areas = weights.map((each) => each * scale);
  const found = [];
  while (found.length < areas.length) {
    const across = width >= height;
    const side = across ? height : width;
    let row = [areas[found.length]];
    for (let next = found.length + 1; next < areas.length; next++) {
      const longer = [...row, areas[next]];
      if (worst(longer, side) > worst(row, side)) break;
      row = longer;
    }
    const depth = row.reduce((sum, each) => sum + each, 0) / side;
    let at = 0;
    for (const area of row) {
      const along = area / depth;
      found.push(across ? { x, y: y + at, width: depth, height: along } : { x: x + at, y, width: along, height: depth });
      at += along;
    }
    if (across) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
  }
  return found;
}

function worst(row, side) {
  const sum = row.reduce((total, each) => total + each, 0);
  return Math.max((side ** 2 * Math.max(...row)) / sum ** 2, sum ** 2 / (side ** 2 * Math.min(...row)));
}

// The map of so many pixels: `box(index)` is a region's cell, `at(x, y)` the region at a point or -1, `step` the next one in a direction.
export function arrange(names, width, height) {
  const groups = panelsOf(names);
  const sizes = groups.map(({ columns, rows, indexes }) => (columns ? columns * rows : indexes.length));
  const least = sizes.reduce((sum, each) => sum + each, 0) * Math.min(SHARE_MIN.one, SHARE_MIN.all / groups.length);
  const order = groups.map((_, place) => place).sort((one, other) => sizes[other] - sizes[one] || one - other);
  const several = groups.length > 1;
  const apart = several ? APART : 0;
  const rectangles = squarify(order.map((place) => Math.max(sizes[place], least)), { x: 0, y: 0, width: width + apart, height: height + apart });
  const panels = order.map((place, rank) => panelIn(groups[place], inner(rectangles[rank], apart, several ? TITLE : 0)));
  const [panelOf, placeOf] = [new Array(names.length), new Int32Array(names.length)];
  for (const panel of panels) {
    panel.indexes.forEach((index, number) => {
      panelOf[index] = panel;
      placeOf[index] = panel.places ? panel.places[number] : number;
    });
    panel.taken = new Int32Array(panel.columns * panel.rows).fill(-1);
    panel.indexes.forEach((index) => (panel.taken[placeOf[index]] = index));
  }
  const used = Math.ceil(Math.max(...panels.map(({ y, rows, cell }) => y + rows * cell.height)));
  const box = (index) => {
    const { x, y, columns, cell } = panelOf[index];
    const [column, row] = [placeOf[index] % columns, Math.floor(placeOf[index] / columns)];
    return { x: x + column * cell.width, y: y + row * cell.height, width: cell.width, height: cell.height };
  };
  const at = (left, top) => {
    for (const { x, y, columns, rows, cell, taken } of panels) {
      const [column, row] = [Math.floor((left - x) / cell.width), Math.floor((top - y) / cell.height)];
      if (column >= 0 && row >= 0 && column < columns && row < rows) return taken[row * columns + column];
    }
    return -1;
  };
  const step = (index, right, down) => {
    const { x, y, width: wide, height: high } = box(index);
    const stride = Math.max(0.5, Math.min(...panels.map(({ cell }) => Math.min(cell.width, cell.height))) / 2);
    let [left, top] = [x + wide / 2, y + high / 2];
    for (let seen = index; ; ) {
      [left, top] = [left + right * stride, top + down * stride];
      if (left < 0 || top < 0 || left > width || top > used) return nearest(index, right, down);
      seen = at(left, top);
      if (seen !== -1 && seen !== index) return seen;
    }
  };
  // Where nothing is straight ahead: the closest region in that direction, so that arrow keys reach all.
  const nearest = (index, right, down) => {
    const [from, best] = [box(index), { index, far: Infinity }];
    for (let other = 0; other < names.length; other++) {
      const to = box(other);
      const [x, y] = [to.x + to.width / 2 - from.x - from.width / 2, to.y + to.height / 2 - from.y - from.height / 2];
      const [ahead, aside] = [x * right + y * down, Math.abs(x * down + y * right)];
      if (ahead < 0.01) continue;
      const far = ahead + 2 * aside;
      if (far < best.far) [best.index, best.far] = [other, far];
    }
    return best.index;
  };
  return { panels, several, box, at, step, width, height: used };
}

function inner({ x, y, width, height }, apart, title) {
  return { x, y: y + title, width: Math.max(4, width - apart), height: Math.max(4, height - apart - title) };
}

function panelIn(group, { x, y, width, height }) {
  const number = group.indexes.length;
  const columns = group.columns ?? Math.min(number, Math.max(1, Math.ceil(Math.sqrt((number * width) / height / 1.6))));
  const rows = group.rows ?? Math.ceil(number / columns);
  const cell = { width: Math.min(CELL_MAX.width, width / columns), height: Math.min(CELL_MAX.height, height / rows) };
  if (group.columns) {
    cell.width = Math.min(cell.width, cell.height * STRETCH_MAX);
    cell.height = Math.min(cell.height, cell.width * STRETCH_MAX);
  }
  return { ...group, x, y, columns, rows, cell };
}
