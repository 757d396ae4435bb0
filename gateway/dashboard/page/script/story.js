// Alerts, and what has happened, in words.
import { byId, make, say } from "./dom.js";
import { clock, count, counted } from "./format.js";

const KINDS = { epoch: "epoch", plan: "plan", node: "node", leader: "leader", subscriber: "subscribers", gap: "gap", alert: "alert" };
const NAMED_MAX = 3;
let shownAlerts = "";
let shownNotes = "";

export function showAlerts({ alerts, alerts_total: total, checks_fine: fine }) {
  say(byId("alerts-note"), total ? `${counted(fine, "other check")} found nothing` : "");
  const key = JSON.stringify([alerts, total]);
  if (key === shownAlerts) return;
  shownAlerts = key;
  const shown = boxesOf({ alerts, alerts_total: total }).boxes.map(({ level, subject, seen, advice }) =>
    level === "problem"
      ? make("article", { class: "alert problem" },
          make("h3", {}, `Problem: ${withoutLane(subject)}`), make("p", {}, sentence(seen)), toDo(advice))
      : make("details", { class: "alert" },
          make("summary", {}, make("b", {}, `Warning: ${fewOf(withoutLane(subject))}`), ` ${seen}`), toDo(advice)));
  if (total > alerts.length) shown.push(make("p", { class: "note" }, `and ${count(total - alerts.length)} more: gamecast doctor lists all`));
  if (!shown.length) shown.push(make("p", { class: "fine" }, `All is well: ${counted(fine, "check")} found nothing.`));
  byId("alerts").replaceChildren(...shown);
  if (byId("alerts").scrollHeight > byId("alerts").clientHeight) byId("alerts").setAttribute("tabindex", "0");
}

const toDo = (advice) => (advice ? make("p", { class: "do" }, make("b", {}, "Do: "), sentence(advice)) : null);

function fewOf(subjects) {
  const names = subjects.split(", ");
  return names.length > NAMED_MAX ? `${names[0]} and ${names.length - 1} more` : subjects;
}

export function showNotes(notes) {
  const key = JSON.stringify(notes[0] ?? null) + notes.length;
  if (key === shownNotes) return;
  shownNotes = key;
  say(byId("notes-note"), notes.length ? `the last ${count(notes.length)}` : "");
  const shown = notes.map(({ at_ms, kind, text, bad }) =>
    make("li", { class: bad ? "bad" : null },
      make("time", { datetime: new Date(at_ms).toISOString() }, clock(at_ms)),
      make("span", { class: "kind" }, KINDS[kind] ?? kind),
      make("span", { class: "what" }, withoutLane(text))));
  if (!shown.length) shown.push(make("li", { class: "nothing" }, "Nothing since this gateway began to watch."));
  byId("notes").replaceChildren(...shown);
}

/** The boxes for alerts, and how many there are with those that the gateway left out. */
export function boxesOf({ alerts, alerts_total: total }) {
  const boxes = together(alerts);
  return { boxes, total: boxes.length + total - alerts.length };
}

// What is the same with several nodes is said once.
function together(alerts) {
  const found = new Map();
  for (const alert of alerts) {
    const key = JSON.stringify([alert.level, alert.seen, alert.advice]);
    const same = found.get(key);
    if (same) same.subject += `, ${alert.subject}`;
    else found.set(key, { ...alert });
  }
  return [...found.values()];
}

// Links are named with the lane that they belong to, which says nothing to people.
const withoutLane = (text) => text.replace(/#[0-9a-f]{40}\b/g, "");

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
