// Numbers with their units, as people read them.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (number) => (number === null || number === undefined ? UNKNOWN : whole.format(number));

export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return UNKNOWN;
  return perSecond >= 1000 ? whole.format(perSecond) : short.format(perSecond);
}

/** A number that is a lower bound where some nodes did not answer. */
export const atLeast = (text, isPartial) => (isPartial && text !== UNKNOWN ? `≥ ${text}` : text);

export function bytes(size) {
  if (size === null || size === undefined) return UNKNOWN;
  if (size >= 1e9) return `${short.format(size / 1e9)} GB`;
  if (size >= 1e6) return `${short.format(size / 1e6)} MB`;
  return `${short.format(size / 1e3)} kB`;
}

export function span(ms) {
  if (ms === null || ms === undefined) return "never";
  if (ms < 1) return `${short.format(ms * 1000)} µs`;
  if (ms < 1000) return `${short.format(ms)} ms`;
  if (ms < 120_000) return `${short.format(ms / 1000)} s`;
  if (ms < 7_200_000) return `${short.format(ms / 60_000)} min`;
  return `${short.format(ms / 3_600_000)} h`;
}

/** Where a row is stuck, for what it is held, or that it is behind, in words; empty if it is none of these. */
export function trouble({ condition, stuck_at: at, held_by: by, held_for: readers, held_regions: regions, regions: all }) {
  if (!condition) return "";
  if (condition === "held") {
    const whose = readers ? `held in ${counted(readers, "subscriber")}` : `${count(regions)} of ${counted(all, "region")} held`;
    return `${whose}: ordered with ${by.join(", ")}${at.length ? `, stuck at ${at.join(", ")}` : ""}`;
  }
  return condition === "stuck" && at.length ? `stuck at ${at.join(", ")}` : condition;
}

export const since = (ms) => (ms === null || ms === undefined ? "" : ` since ${clock(ms)}`);

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
