// Shots: events of both regions of an arena. Whom they hit is what the game servers computed.
const SHOWN_MS = 500;
let last = { key: "", ms: 0 };
let heard = 0;
let isJoint = true;

export function offerShooting(shoot) {
  document.getElementById("shoot").addEventListener("click", shoot);
}

// Who follows both regions gets a shot once.
export function hearShot({ payload, regions }) {
  if (payload?.do !== "shoot") return;
  heard++;
  isJoint &&= regions?.length === 2;
}

// Say what the last shot of an arena hit, and return the line to draw for a moment.
export function showShot(arena, { shots, things }, bows) {
  document.getElementById("shoot").disabled = !bows.includes(arena);
  const shot = shots[arena];
  if (!shot) return null;
  const key = `${arena} ${shot.number}`;
  if (key !== last.key) last = { key, ms: performance.now() };
  const nick = (name) => things[name]?.[5] ?? name.replace(/^.*~.*$/, "somebody");
  const hit = shot.hit === shot.by ? "the air" : nick(shot.hit);
  const element = document.getElementById("shot");
  const text = `${nick(shot.by)} hit ${hit}`;
  if (element.textContent !== text) element.textContent = text;
  element.dataset.heard = heard;
  element.dataset.joint = isJoint;
  return performance.now() - last.ms < SHOWN_MS ? [shot.begin, shot.end] : null;
}
