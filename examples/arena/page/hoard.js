// The door and the hoard of an arena: two keys of its home region. Their values come as state when a page subscribes, and
// each change is published on the condition that they still are what the visitor saw.
const values = new Map(); // key -> { payload, position } of the event that set it last
const waiting = new Map(); // key -> functions, which the next event with the key calls
let shown = null;

const button = (what) => document.querySelector(`[data-hoard="${what}"]`);
const doorKey = () => `${shown}/door`;
const hoardKey = () => `${shown}/hoard`;
const positionOf = (key) => values.get(key)?.position ?? null;
const isOpen = () => values.get(doorKey())?.payload?.open === true;
const taken = () => (values.get(hoardKey())?.payload?.do === "take" ? values.get(hoardKey()).payload : null);
const nickOf = (payload) => String(payload?.nick ?? "somebody").slice(0, 16);

// `publish(deedOf, about)`: publishes to the home region what a function makes of the visitor's nick.
export function offerHoard(publish) {
  button("door").addEventListener("click", () => attempt(async () => {
    const open = !isOpen();
    await publish(() => ({ do: "door", open }), { key: doorKey(), onlyIf: positionOf(doorKey()) });
    return open ? "You opened the door." : "You shut the door.";
  }));
  button("take").addEventListener("click", () => attempt(async () => {
    if (taken()) return `${nickOf(taken())} was first.`;
    if (!isOpen()) return "The door is shut.";
    const condition = { [doorKey()]: positionOf(doorKey()), [hoardKey()]: positionOf(hoardKey()) };
    await publish((nick) => ({ do: "take", scores: scored(nick) }), { key: hoardKey(), onlyIf: condition });
    return "You have the hoard.";
  }));
}

// The accepted events about the hoard are one chain, so each can carry the scores: none is counted twice, or lost.
function scored(nick) {
  const scores = { ...values.get(hoardKey())?.payload?.scores };
  scores[nick] = (Number(scores[nick]) || 0) + 1;
  return Object.fromEntries(Object.entries(scores).sort(([, a], [, b]) => b - a).slice(0, 8));
}

async function attempt(act) {
  if (!shown) return;
  try {
    tell(await act());
  } catch (error) {
    if (error.code !== "key-conflict") return tell(error.message);
    button("take").dataset.conflicts = Number(button("take").dataset.conflicts ?? 0) + 1;
    await caughtUp(error);
    tell(`${nickOf(values.get(error.key)?.payload)} was first.`);
  }
}

// The event that was first comes like any other, unless it is here already.
async function caughtUp({ key, position }) {
  while (position !== null && positionOf(key) !== position) {
    const isNews = await Promise.race([
      new Promise((resolve) => waiting.set(key, [...(waiting.get(key) ?? []), () => resolve(true)])),
      new Promise((resolve) => setTimeout(resolve, 5000)),
    ]);
    if (!isNews) return;
  }
}

const tell = (text) => { document.getElementById("told").textContent = text; };

export function forgetKeys() {
  values.clear();
  tell("");
}

// Values of a state, or events with a key.
export function hearKeys(state) {
  for (const [key, { payload, position }] of Object.entries(state)) {
    values.set(key, { payload, position });
    for (const resolve of waiting.get(key) ?? []) resolve();
    waiting.delete(key);
  }
}

// Show the hoard of the arena that the visitor is in, and return how to draw it.
export function showHoard(arena, at) {
  shown = arena;
  for (const what of ["door", "take"]) button(what).disabled = !arena;
  if (!arena) return null;
  write(button("door"), isOpen() ? "Shut the door" : "Open the door");
  const hoard = taken() ? `taken by ${nickOf(taken())}` : "full";
  write(document.getElementById("hoard-now"), `The door is ${isOpen() ? "open" : "shut"}, the hoard is ${hoard}.`);
  const scores = Object.entries(values.get(hoardKey())?.payload?.scores ?? {});
  write(document.getElementById("scores"), scores.map(([nick, count]) => `${nick} ${count}`).join(" · ") || "–");
  return { at, isOpen: isOpen(), isFull: !taken() };
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
