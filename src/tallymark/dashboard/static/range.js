// The time that is looked at: relative to now, and then live, or between two moments; and the step that suits it.

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

export const RANGES = ["15m", "1h", "6h", "1d", "7d", "30d"];
const STEPS = ["1s", "10s", "1m", "5m", "15m", "1h", "6h", "1d"];
const WANTED_POINTS = 150, MOST_POINTS = 1500;

export function lengthMs(words) {
  const found = /^(\d+)([smhdw])$/.exec(words ?? "");
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

// From the parameters of a page: { range: "1h", isLive, from, to, lengthMs } ; from and to are what the API is asked.
export function readRange(parameters, otherwise = "1h") {
  const from = Date.parse(parameters.get("from") ?? ""), to = Date.parse(parameters.get("to") ?? "");
  if (from < to) return { range: null, isLive: false, from: iso(from), to: iso(to), fromMs: from, toMs: to, lengthMs: to - from };
  const range = lengthMs(parameters.get("range")) ? parameters.get("range") : otherwise;
  return { range, isLive: true, from: `-${range}`, to: null, lengthMs: lengthMs(range) };
}

export const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");

// The steps that make sense for a length, not finer than the meter's grain.
export function stepsFor(length, grain = "1m") {
  const fits = STEPS.filter((step) => lengthMs(step) >= lengthMs(grain) && length / lengthMs(step) <= MOST_POINTS && lengthMs(step) <= length);
  return fits.length ? fits : [grain];
}

export function bestStep(length, grain = "1m") {
  const fits = stepsFor(length, grain);
  return fits.find((step) => length / lengthMs(step) <= WANTED_POINTS) ?? fits.at(-1);
}

// Words for people: "15 minutes".
export function inWords(range) {
  const found = /^(\d+)([smhdw])$/.exec(range);
  const word = { s: "second", m: "minute", h: "hour", d: "day", w: "week" }[found[2]];
  return found[1] === "1" ? `the last ${word}` : `the last ${found[1]} ${word}s`;
}
