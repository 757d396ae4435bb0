// The door and the hoard of an arena: two keys of its home region. Their values come as state when a page subscribes, and
// each change is published on the condition that they still are what the visitor saw.
const values = new Map(); // key -> { payload, position } of the event that set it last
let shown = null;

const button = (what) => document.querySelector(`[data-hoard="${what}"]`);
const doorKey = () => `${shown}/door`;
const hoardKey = () => `${shown}/hoard`;
const positionOf = (key) => values.get(key)?.position ?? null;
const isOpen = () => values.get(doorKey())?.payload?.open === true;
const taken = () => (values.get(hoardKey())?.payload?.do === "take" ? values.get(hoardKey()).payload : null);
const nickOf = (payload) => String(payload?.nick ?? "somebody").slice(0, 16);

// `publish(deedOf, about)`: publishes to the home region what a function makes of the visitor's nick.
export function offerHoard(publish, report) {
  // Who was first is in the state, which all pages show alike.
  const offer = (what, act) => button(what).addEventListener("click", () => act().catch((error) => {
    if (error.code !== "key-conflict") return report(error);
    button(what).dataset.conflicts = Number(button(what).dataset.conflicts ?? 0) + 1;
  }));
  offer("door", () => publish(() => ({ do: "door", open: !isOpen() }), { key: doorKey(), onlyIf: positionOf(doorKey()) }));
  offer("take", () => {
    const onlyIf = { [doorKey()]: positionOf(doorKey()), [hoardKey()]: positionOf(hoardKey()) };
    return publish((nick) => ({ do: "take", scores: scored(nick) }), { key: hoardKey(), onlyIf });
  });
}

// The accepted events about the hoard are one chain, so each can carry the scores: none is counted twice, or lost.
function scored(nick) {
  const scores = { ...values.get(hoardKey())?.payload?.scores };
  scores[nick] = (Number(scores[nick]) || 0) + 1;
  return Object.fromEntries(Object.entries(scores).sort(([, a], [, b]) => b - a).slice(0, 8));
}

export function forgetKeys() {
  values.clear();
}

// Values of a state, or events with a key.
export function hearKeys(state) {
  for (const [key, { payload, position }] of Object.entries(state)) {
    values.set(key, { payload, position });
  }
}

// Show the hoard of the arena that the visitor is in, and return how to draw it.
export function showHoard(arena, at) {
  shown = arena;
  button("door").disabled = !arena;
  button("take").disabled = !arena || !isOpen() || taken() !== null;
  if (!arena) return null;
  write(button("door"), isOpen() ? "Shut the door" : "Open the door");
  const last = values.get(hoardKey())?.payload;
  const hoard = taken() ? `${nickOf(last)} was first, and has the hoard` : `the hoard is full${last ? ` again: ${nickOf(last)} had it last` : ""}`;
  write(document.getElementById("hoard-now"), `The door is ${isOpen() ? "open" : "shut"}, ${hoard}.`);
  const scores = Object.entries(values.get(hoardKey())?.payload?.scores ?? {});
  write(document.getElementById("scores"), scores.map(([nick, count]) => `${nick} ${count}`).join(" · ") || "–");
  return { at, isOpen: isOpen(), isFull: !taken() };
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
