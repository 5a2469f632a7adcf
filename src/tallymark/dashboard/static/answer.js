// An answer in the shape of a series as lines, bars, a number or a table: what Ask and the boards share.

import { Chart, sparkline } from "./chart.js";
import { h, list, rows, text } from "./dom.js";
import { dayAndClock, dayAndTime, figure, integer, label, labels, moment, plural, zone } from "./format.js";
import { freshness } from "./freshness.js";

export const KINDS = ["line", "bars", "number", "table"];
const ADDITIVE = ["count", "sum", "rate"];
const MOST_LINES = 24;
const MOST_NUMBERS = 12;
const MOST_ROWS = 500;

// Functions that can share an axis: values of the same unit. A count and a sum of money cannot.
const ofTheValue = (fn) => ["min", "max", "avg", "last"].includes(fn) || /^p\d/.test(fn);

export function functions(answer) {
  const point = answer.series.find(({ points }) => points.length)?.points[0] ?? {};
  return Object.keys(point).filter((name) => !["time", "before", "change", "with"].includes(name));
}

// [["count"], ["sum"], ["min", "max", "avg"]]
export function groups(answer) {
  const found = functions(answer), shared = found.filter(ofTheValue);
  return [...found.filter((fn) => !ofTheValue(fn)).map((fn) => [fn]), ...(shared.length ? [shared] : [])];
}

// const view = answerView({ label: "views", height: 16, onZoom }); card.append(view.element); view.show(answer, { kind, fns })
export function answerView({ label: title, id = null, height = 18, onZoom = null, isLatestOnly = false }) {
  const place = h("div", { class: "answer", ...(id ? { id } : {}) }), mark = freshness(), note = h("p", { class: "quiet", role: "status" });
  const element = h("div", {}, place, note, mark.element);
  let chart = null, drawn = "";

  function clear(words = "") {
    chart?.destroy();
    chart = null;
    drawn = "";
    place.replaceChildren();
    place.rowsShown = null;
    place.classList.remove("numbers");
    text(note, words);
    mark.show(null);
  }

  function show(answer, { kind = "line", fns = groups(answer)[0] ?? [] } = {}) {
    if (drawn !== kind) clear();
    drawn = kind;
    const shown = { answer, fns, lines: lines(answer, fns), stepMs: step(answer), through: Date.parse(answer.freshness?.complete_through ?? "") };
    if (!shown.lines.length) clear(empty(answer));
    else if (kind === "number") number(place, shown);
    else if (kind === "table") table(place, shown, { isLatestOnly, title });
    else drawChart(shown, kind);
    if (shown.lines.length) text(note, left(answer, shown, kind));
    mark.show(answer.freshness);
  }

  function drawChart({ answer, lines: all, fns, stepMs, through }, kind) {
    chart ??= new Chart(place, { label: title, kind, height, onZoom });
    const times = all[0].points.map(({ time }) => Date.parse(time));
    const format = (fn) => (value) => figure(value, { fn, decimals: answer.decimals });
    const drawn = all.slice(0, MOST_LINES).map(({ name, points, fn }, colour) => ({ name, colour, values: points.map((point) => point[fn] ?? null), format: format(fn) }));
    chart.show({
      times, stepMs, completeThrough: through || undefined,
      from: Date.parse(answer.range.from), to: Date.parse(answer.range.to),
      lines: kind === "bars" && drawn.length > 1 && fns.every((fn) => ADDITIVE.includes(fn)) ? stacked(drawn) : drawn,
    });
  }

  return { element, show, clear, destroy: () => clear() };
}

// Each on top of those before it; the tallest is drawn first, so that the others cover it.
function stacked(lines) {
  const heights = lines[0].values.map(() => 0);
  return lines.map((line) => ({ ...line, own: line.values, values: line.values.map((value, at) => (value === null ? null : (heights[at] += value))) })).reverse();
}

function empty(answer) {
  return `Nothing was counted for this question between ${dayAndTime(answer.range.from)} and ${dayAndTime(answer.range.to)}. Ask for a longer time, or look at Live events for what arrives now.`;
}

function left(answer, { lines: all }, kind) {
  const parts = [], most = kind === "number" ? MOST_NUMBERS : kind === "table" ? Infinity : MOST_LINES;
  if (all.length > most) parts.push(`The first ${most} of ${integer(all.length)} lines are drawn; the table has them all.`);
  if (answer.left_out) parts.push(`${plural(answer.left_out, "smaller line is", "smaller lines are")} left out by the limit.`);
  for (const [fn, since] of Object.entries(answer.since ?? {})) parts.push(`${fn} has been computed ${since ? `since ${dayAndTime(since)}` : "from a later version on"}.`);
  return parts.join(" ");
}

// One line per series and function.
function lines(answer, fns) {
  return answer.series.filter(({ points }) => points.length).flatMap(({ labels: found, points }) => {
    const name = Object.keys(found).length ? labels(found) : "";
    return fns.map((fn) => ({ fn, labels: found, points, name: fns.length > 1 || !name ? [name, fn].filter(Boolean).join(" · ") : name }));
  });
}

function step(answer) {
  const { points } = answer.series[0] ?? { points: [] };
  return points.length > 1 ? Date.parse(points[1].time) - Date.parse(points[0].time) : 0;
}

// The newest window that is over and complete: one that still grows would look like a fall.
function latest({ answer, stepMs, through }, { points, fn }) {
  const end = stepMs ? through : Infinity;
  const whole = points.filter(({ time }) => Date.parse(time) + stepMs <= end);
  const at = (whole.length ? whole : points).at(-1);
  return { value: at?.[fn] ?? null, time: at?.time ?? null, isWhole: whole.length > 0 || !stepMs, words: figure(at?.[fn], { fn, decimals: answer.decimals }) };
}

function when({ answer, stepMs }, { time, isWhole }) {
  if (!stepMs) return `from ${moment(answer.range.from)} to ${moment(answer.range.to)}`;
  return `${isWhole ? "in the window from" : "so far, in the window from"} ${moment(time)}`;
}

function number(place, shown) {
  list(place, shown.lines.slice(0, MOST_NUMBERS), {
    key: ({ name }) => name,
    make: ({ name }) => h("div", { class: "number" }, h("p", { class: "huge" }), h("p", { class: "number-name" }, name), h("div", {}), h("p", { class: "quiet" })),
    update: (child, line) => {
      const found = latest(shown, line), [big, , spark, small] = child.children;
      text(big, found.words);
      text(small, when(shown, found));
      if (shown.stepMs) rows(spark, [line.points.map((point) => point[line.fn] ?? null)], (values) => sparkline(values));
    },
  });
  place.classList.add("numbers");
}

function table(place, shown, { isLatestOnly, title }) {
  const { answer, fns } = shown, keys = Object.keys(answer.series[0].labels);
  const isLatest = isLatestOnly || !shown.stepMs;
  const long = answer.series.flatMap(({ labels: found, points }) => {
    const each = isLatest ? [points.find(({ time }) => time === latest(shown, { points, fn: fns[0] }).time)].filter(Boolean) : [...points];
    return each.map((point) => ({ labels: found, point }));
  });
  if (isLatest) long.sort((a, b) => (b.point[fns[0]] ?? -Infinity) - (a.point[fns[0]] ?? -Infinity));
  else long.sort((a, b) => Date.parse(b.point.time) - Date.parse(a.point.time));
  const columns = [...(isLatest ? [] : [`time (${zone()})`]), ...keys, ...fns];
  const body = long.slice(0, MOST_ROWS).map(({ labels: found, point }) => [
    ...(isLatest ? [] : [shown.stepMs >= 60_000 ? dayAndTime(point.time) : dayAndClock(point.time)]),
    ...keys.map((key) => label(found[key])), ...fns.map((fn) => figure(point[fn], { fn, decimals: answer.decimals }))]);
  const first = shown.lines[0], under = [isLatest ? when(shown, latest(shown, first)) : "", long.length > MOST_ROWS ? `${MOST_ROWS} of ${integer(long.length)} rows; an export has them all` : ""].filter(Boolean).join("; ");
  rows(place, [{ columns, body, under }], () => h("div", {},
    h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": `${title}: table` }, h("table", { class: "table" }, h("caption", { class: "unseen" }, title),
      h("thead", {}, h("tr", {}, columns.map((name, at) => h("th", { scope: "col", class: at >= columns.length - fns.length ? "value" : null }, name)))),
      h("tbody", {}, body.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: at >= columns.length - fns.length ? "value" : null }, cell))))))),
    under ? h("p", { class: "quiet" }, under) : null));
}
