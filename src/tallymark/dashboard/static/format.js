// Numbers, times and sizes as people read them. Times are in the chosen zone, which `zone()` holds.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const significant = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });

export const NONE = "–"; // nobody can tell, or there is none

let chosenZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const styles = new Map();

export const zone = () => chosenZone;

export function setZone(name) {
  chosenZone = name;
  styles.clear();
}

export const integer = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const number = (value) => (value === null || value === undefined ? NONE : precise.format(value));
export const compact = (value) => (value === null || value === undefined ? NONE : Math.abs(value) < 10_000 ? significant.format(value) : short.format(value));
export const rate = (value) => (value === null || value === undefined ? NONE : (value < 10 ? tenths : whole).format(value));
export const percent = (value) => (value === null || value === undefined ? NONE : `${value > 0 ? "+" : ""}${tenths.format(value)} %`);

// The functions whose values are estimates; the answer has how far off they may be in `freshness.error`.
export const isEstimate = (fn) => fn === "distinct" || /^p\d/.test(fn);

// The value of a function as text; an estimate says so, and an exact decimal keeps its places.
export function figure(value, { fn = "", decimals = null } = {}) {
  if (value === null || value === undefined) return NONE;
  const isMoney = decimals !== null && decimals !== undefined && ["sum", "min", "max", "last"].includes(fn);
  const exact = isMoney ? { minimumFractionDigits: decimals, maximumFractionDigits: decimals } : null;
  const words = exact ? new Intl.NumberFormat(undefined, exact).format(value) : isEstimate(fn) ? significant.format(value) : fn === "rate" || fn === "avg" ? (Math.abs(value) < 1000 ? significant : tenths).format(value) : precise.format(value);
  return isEstimate(fn) ? `≈ ${words}` : words;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${(ms / 60_000).toFixed(1)} min`;
  return ms < 86_400_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}

export function bytes(size) {
  if (size === null || size === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, size < 1 ? 0 : Math.floor(Math.log10(size) / 3));
  return `${tenths.format(size / 1000 ** step)} ${units[step]}`;
}

function style(name, fields) {
  if (!styles.has(name)) styles.set(name, new Intl.DateTimeFormat(undefined, { timeZone: chosenZone, hourCycle: "h23", ...fields }));
  return styles.get(name);
}

const TIME = { hour: "2-digit", minute: "2-digit" };
const DAY = { year: "numeric", month: "short", day: "numeric" };

// Each takes milliseconds, an RFC 3339 text or a Date.
export const clock = (moment) => style("clock", { ...TIME, second: "2-digit" }).format(new Date(moment));
export const dayAndTime = (moment) => style("dayAndTime", { ...DAY, ...TIME }).format(new Date(moment));
export const dayAndClock = (moment) => style("dayAndClock", { ...DAY, ...TIME, second: "2-digit" }).format(new Date(moment));
export const day = (moment) => style("day", DAY).format(new Date(moment));

// As short as a reader needs: today only the time.
export function moment(when, nowMs = Date.now()) {
  return day(when) === day(nowMs) ? clock(when) : dayAndClock(when);
}

export const label = (value) => (value === "" || value === null || value === undefined ? "(empty)" : String(value));
// The labels of one line of a chart or a table.
export const labels = (found) => Object.values(found ?? {}).map(label).join(" · ") || "all";

export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;
