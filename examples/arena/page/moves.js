// Where figures are: by updates while they move, and otherwise where the events have put them.
const FRESH_MS = 700; // for so long after an update, the events are behind it

export class Moves {
  heard = 0;
  early = 0; // updates of a figure that was not introduced yet: gamecast promises none
  #moved = new Map(); // name -> { x, y, ms, base: where the events had it meanwhile }
  #known = new Set();

  note(name, { x, y }, isPresent, things = {}) {
    this.heard++;
    if (!isPresent) {
      if (!this.#known.has(name)) this.early++;
      return; // an update of one that has left may be late
    }
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    this.#moved.set(name, { x, y, ms: performance.now(), base: baseOf(things[name]) });
  }

  // Keep only those that are present.
  keep(names) {
    for (const name of names) this.#known.add(name);
    for (const name of this.#moved.keys()) if (!names.has(name)) this.#moved.delete(name);
  }

  // Once a figure stands, what the events do to it counts: it is pushed, or begins again.
  settle(things) {
    for (const [name, move] of this.#moved) {
      const base = baseOf(things[name]);
      const hasFallen = base[2] > move.base[2];
      if (hasFallen || (performance.now() - move.ms > FRESH_MS && `${base}` !== `${move.base}`)) this.#moved.delete(name);
      else move.base = base;
    }
  }

  place(name, things) {
    const move = things[name] && this.#moved.get(name);
    return move ? [move.x, move.y] : things[name]?.slice(0, 2);
  }

  // The things, with moving figures where their updates have them.
  applied(things) {
    const moved = { ...things };
    for (const name of this.#moved.keys()) if (moved[name]) moved[name] = [...this.place(name, things), ...moved[name].slice(2)];
    return moved;
  }
}

// Where the events have a figure, and how often it was felled.
const baseOf = (state) => (state ? [state[0], state[1], state[4]] : [0, 0, Infinity]);
