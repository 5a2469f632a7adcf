// Charts over time: uPlot with our colours, a reading under the pointer or the arrow keys, and the same data as a table.
// null is a gap, never zero. The classic script vendor/uPlot.iife.min.js has made the global uPlot.

import { h, list, svg, text } from "./dom.js";
import { compact, dayAndClock, dayAndTime, moment, NONE, number, zone } from "./format.js";

const { uPlot } = window;
const COLOURS = 8;
const MOST_READ = 10;
const MOST_ROWS = 500;
// One for all: each call of matchMedia makes another, and a listener is removed only from the one it was added to.
const DARK = matchMedia("(prefers-color-scheme: dark)");

// 24 hours, and the day only where it changes.
const CLOCKS = [
  [86_400 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [86_400 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
export const colour = (index) => css(`--s${(index % COLOURS) + 1}`);

// new Chart(parent, { label, kind: "line" | "bars" | "area", height: 16 (rem), unit, format, onZoom(fromMs, toMs) })
// chart.show({ times: [ms], lines: [{ name, values, colour?: 0…7 | "--name", dashed?, kind?, of?: the line it goes with, own?: what is
//              read instead of values, where those are stacked }],
//              bands?: [{ upper, lower, colour }] (numbers of lines), from?, to?, completeThrough?: ms, stepMs? })
export class Chart {
  #options; #plot = null; #shape = ""; #shown = null; #hidden = new Set(); #place; #tip; #legend; #caption; #data; #said; #frame; #observer; #scheme;

  constructor(parent, options) {
    this.#options = { kind: "line", height: 16, unit: "", format: (value) => compact(value), legend: true, ...options };
    this.#tip = h("div", { class: "tip", hidden: true });
    this.#place = h("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart", "aria-label": options.label,
      on: { keydown: (event) => this.#key(event), blur: () => this.#cursor(null) } });
    this.#legend = h("ul", { class: "legend", "aria-label": `Lines of ${options.label}`, hidden: true });
    this.#caption = h("figcaption", { class: "unseen" });
    this.#said = h("p", { class: "unseen", "aria-live": "polite" });
    this.#data = h("details", { class: "data", on: { toggle: () => this.#table() } }, h("summary", {}, "Data table"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${options.label}: data` }));
    this.#frame = h("figure", { class: "chart", ...(options.id ? { id: options.id } : {}) }, this.#legend, this.#place, this.#caption, this.#said, options.table === false ? null : this.#data);
    parent.append(this.#frame);
    this.#observer = new ResizeObserver(() => this.#plot?.setSize(this.#size()));
    this.#observer.observe(this.#place);
    this.#scheme = () => { this.#plot?.redraw(); if (this.#shown) this.#legendOf(this.#shown.lines); };
    DARK.addEventListener("change", this.#scheme);
    addEventListener("themechange", this.#scheme);
  }

  destroy() {
    this.#observer.disconnect();
    DARK.removeEventListener("change", this.#scheme);
    removeEventListener("themechange", this.#scheme);
    this.#plot?.destroy();
    this.#frame.remove();
  }

  show(shown) {
    this.#shown = { ...shown, lines: shown.lines.map((line, index) => ({ kind: this.#options.kind, colour: index, ...line })) };
    const { lines, bands = [] } = this.#shown;
    const shape = JSON.stringify([lines.map(({ name, kind, dashed, colour: each }) => [name, kind, dashed, each]), bands, zone()]);
    const data = [shown.times.map((ms) => ms / 1000), ...this.#parted(lines)];
    this.#place.dataset.points = String(lines.reduce((sum, { values }) => sum + values.filter((value) => value !== null).length, 0));
    if (shape === this.#shape && this.#plot) this.#plot.setData(data);
    else this.#build(shape, data);
    this.#legendOf(lines);
    const summary = this.#summary();
    text(this.#caption, summary);
    this.#place.setAttribute("aria-label", `${this.#options.label}. ${summary} Arrow keys read it point by point.`);
    this.#table();
  }

  // A bucket that may still grow is drawn apart, dashed: it is no drop. After the lines come as many open ends.
  #parted(lines) {
    const { completeThrough, stepMs, times } = this.#shown, last = times.length - 1;
    const isOpen = completeThrough && stepMs && last > 0 && times[last] + stepMs > completeThrough;
    const open = lines.map((line) => isOpen && hasOpenEnd(line));
    return [
      ...lines.map(({ values }, index) => (open[index] ? [...values.slice(0, last), null] : values)),
      ...lines.map(({ values }, index) => times.map((_, at) => (open[index] && at >= last - 1 ? values[at] : null))),
    ];
  }

  #size() {
    const width = Math.max(120, this.#place.clientWidth), least = this.#options.height * rem();
    // The chart that a page is about grows with a wall.
    return { width, height: Math.round(this.#options.onZoom ? Math.max(least, Math.min(width * 0.26, 32 * rem())) : least) };
  }

  #build(shape, data) {
    this.#plot?.destroy();
    this.#shape = shape;
    const { lines, bands = [] } = this.#shown, size = rem(), font = `${Math.round(size * 0.75)}px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: () => css("--quiet"), font, grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false } };
    this.#plot = new uPlot({
      ...this.#size(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone()),
      legend: { show: false },
      padding: [size * 0.5, size * 1.6, 0, 0],
      scales: {
        x: { range: (_, low, high) => this.#range(low, high) },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0) * 1.08, (high ?? 0) > 0 ? high * 1.08 : 1] },
      },
      axes: [
        { ...axis, grid: { show: false }, gap: size * 0.5, size: size * 2.7, space: size * 4.5, values: CLOCKS },
        { ...axis, size: (_, values) => size * (1.1 + 0.5 * Math.max(4, ...(values ?? []).map((value) => value.length))), space: size * 2.4, values: (_, values) => values.map((value) => this.#options.format(value) + this.#options.unit) },
      ],
      series: [{}, ...lines.map((line) => this.#series(line)), ...lines.map((line) => (hasOpenEnd(line) ? this.#series({ ...line, dashed: true }) : { show: false }))],
      bands: bands.map(({ upper, lower, colour: name }) => ({ series: [upper + 1, lower + 1], fill: () => `${css(name)}38` })),
      cursor: {
        y: false, points: { size: size * 0.5 },
        drag: { x: Boolean(this.#options.onZoom), y: false, setScale: false },
      },
      hooks: {
        setCursor: [(plot) => this.#read(plot)],
        setSelect: [(plot) => this.#zoom(plot)],
        drawClear: [(plot) => this.#shadeWhatIsNotComplete(plot)],
      },
    }, data, this.#place);
    this.#plot.over.append(this.#tip);
  }

  #series(line) {
    const tone = () => (typeof line.colour === "string" ? css(line.colour) : colour(line.colour));
    const shared = { label: "", show: !this.#hidden.has(line.of ?? line.name), stroke: tone, width: 2, points: { filter: (_, at) => lonely(this.#plot?.data[at] ?? []), size: rem() * 0.35 } };
    if (line.dashed) return { ...shared, width: 1.5, dash: [5, 4], alpha: 0.75 };
    if (line.kind === "bars") return { ...shared, width: 0, fill: () => (line.own ? tone() : `${tone()}cc`), paths: uPlot.paths.bars({ size: [0.8, 60], align: 1, radius: 0.12 }), points: { show: false } };
    if (line.kind === "area") return { ...shared, fill: () => `${tone()}24` };
    return shared;
  }

  #range(low, high) {
    const { from, to, stepMs = 0, times } = this.#shown;
    const first = from ?? times[0] ?? low * 1000, last = to ?? (times.length ? times[times.length - 1] + stepMs : high * 1000);
    return first < last ? [first / 1000, last / 1000] : [first / 1000 - 30, first / 1000 + 30];
  }

  // What lies right of it may still grow.
  #shadeWhatIsNotComplete(plot) {
    const { completeThrough } = this.#shown;
    if (!completeThrough) return;
    const { left, top, width, height } = plot.bbox, from = Math.max(left, plot.valToPos(completeThrough / 1000, "x", true));
    if (from >= left + width) return;
    plot.ctx.save();
    plot.ctx.fillStyle = css("--open");
    plot.ctx.fillRect(from, top, left + width - from, height);
    plot.ctx.restore();
  }

  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < 6) return;
    const [from, to] = [left, left + width].map((position) => Math.round(plot.posToVal(position, "x") * 1000));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.#options.onZoom?.(from, to);
  }

  #read(plot) {
    const { idx, left } = plot.cursor;
    const is = idx !== null && idx !== undefined && left >= 0 && this.#shown.times[idx] !== undefined;
    this.#tip.hidden = !is;
    if (!is) return;
    const found = this.#readings(idx);
    this.#tip.replaceChildren(h("b", {}, this.#when(idx)), ...found.slice(0, MOST_READ).map(({ line, value }) =>
      h("span", { class: "reading" }, swatch(line), h("span", { class: "name" }, line.name), h("b", {}, this.#value(value, line)))),
    found.length > MOST_READ ? h("span", { class: "quiet" }, `and ${found.length - MOST_READ} more`) : "");
    const right = left > plot.over.clientWidth / 2, gap = rem() * 0.8;
    this.#tip.style.left = right ? "auto" : `${left + gap}px`;
    this.#tip.style.right = right ? `${plot.over.clientWidth - left + gap}px` : "auto";
  }

  #readings(idx) {
    const found = this.#shown.lines.filter((line) => !this.#hidden.has(line.of ?? line.name)).map((line) => ({ line, value: read(line)[idx] ?? null }));
    return this.#shown.bands?.length ? found : found.sort((a, b) => Number(a.line.dashed ?? false) - Number(b.line.dashed ?? false) || (b.value ?? -Infinity) - (a.value ?? -Infinity));
  }

  #when(idx) {
    const at = this.#shown.times[idx];
    return this.#shown.stepMs >= 60_000 ? dayAndTime(at) : dayAndClock(at);
  }

  #value = (value, line = {}) => (value === null ? "no data" : (line.format ?? this.#options.reading ?? number)(value) + this.#options.unit);

  #key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.#cursor(null);
    if (!(event.key in moves) || !this.#plot || !this.#shown.times.length) return;
    event.preventDefault();
    const last = this.#shown.times.length - 1, now = this.#plot.cursor.idx ?? (moves[event.key] < 0 ? last + 1 : -1);
    this.#cursor(Math.max(0, Math.min(last, now + moves[event.key])));
  }

  #cursor(idx) {
    if (!this.#plot) return;
    this.#plot.setCursor(idx === null ? { left: -10, top: -10 } : { left: this.#plot.valToPos(this.#shown.times[idx] / 1000, "x"), top: 10 });
    if (idx !== null) text(this.#said, `${this.#when(idx)}: ${this.#readings(idx).slice(0, MOST_READ).map(({ line, value }) => `${line.name} ${this.#value(value, line)}`).join(", ")}`);
  }

  #legendOf(lines) {
    const named = lines.filter((line) => !line.of);
    this.#legend.hidden = !this.#options.legend || named.length < 2;
    if (this.#legend.hidden) return;
    list(this.#legend, named, {
      key: (line) => JSON.stringify([line.name, line.colour, line.dashed, document.documentElement.dataset.theme]),
      make: (line) => h("li", {}, h("button", { type: "button", "aria-pressed": "true", title: line.name, on: { click: () => this.#toggle(line.name) } }, swatch(line), h("span", { class: "name" }, line.name))),
      update: (item, line) => item.firstChild.setAttribute("aria-pressed", String(!this.#hidden.has(line.name))),
    });
  }

  #toggle(name) {
    if (!this.#hidden.delete(name)) this.#hidden.add(name);
    const { lines } = this.#shown;
    lines.forEach((line, index) => {
      if ((line.of ?? line.name) !== name) return;
      this.#plot.setSeries(index + 1, { show: !this.#hidden.has(name) });
      if (hasOpenEnd(line)) this.#plot.setSeries(index + 1 + lines.length, { show: !this.#hidden.has(name) });
    });
    this.#legendOf(this.#shown.lines);
  }

  #summary() {
    const { times, lines } = this.#shown;
    const filled = lines.filter(({ values }) => values.some((value) => value !== null));
    if (!times.length || !filled.length) return "No data in this time.";
    const parts = filled.slice(0, 5).map((line) => {
      const known = read(line).map((value, index) => [value, index]).filter(([value]) => value !== null);
      const [high, at] = known.reduce((best, each) => (each[0] > best[0] ? each : best));
      return `${line.name}: highest ${this.#value(high, line)} at ${this.#when(at)}, latest ${this.#value(known.at(-1)[0], line)}.`;
    });
    const gaps = filled[0].values.filter((value) => value === null).length;
    return `${times.length} points from ${moment(times[0])} to ${moment(times.at(-1))}${gaps ? `, ${gaps} without data` : ""}. ${parts.join(" ")}`;
  }

  #table() {
    if (!this.#data.open || !this.#shown) return;
    const { times, lines } = this.#shown, first = Math.max(0, times.length - MOST_ROWS);
    const head = h("tr", {}, h("th", { scope: "col" }, `time (${zone()})`), ...lines.map((line) => h("th", { scope: "col" }, line.name)));
    const body = times.slice(first).map((_, at) => h("tr", {}, h("th", { scope: "row" }, this.#when(first + at)), ...lines.map((line) => h("td", {}, read(line)[first + at] === null ? NONE : this.#value(read(line)[first + at], line)))));
    this.#data.lastChild.replaceChildren(h("table", { class: "table" }, h("caption", { class: "unseen" }, this.#options.label), h("thead", {}, head), h("tbody", {}, body.reverse())));
  }
}

const read = (line) => line.own ?? line.values;
const hasOpenEnd = ({ kind, dashed }) => !dashed && (kind === "line" || kind === "area");

// Before a meter existed nothing was counted: that is no zero, unless events of that time came later.
export function withGaps(times, values, { created, stepMs, shiftMs = 0 }) {
  const begin = Date.parse(created ?? "");
  if (Number.isNaN(begin)) return values;
  const first = values.findIndex((value) => value !== null && value !== 0);
  return values.map((value, index) => (value === 0 && (first === -1 || index < first) && times[index] - shiftMs + stepMs <= begin ? null : value));
}

// Values between two gaps, which no line would show.
function lonely(values) {
  const is = (value) => value !== null && value !== undefined;
  return values.flatMap((value, index) => (is(value) && !is(values[index - 1]) && !is(values[index + 1]) ? [index] : []));
}

function swatch(line) {
  const mark = h("i", { class: line.dashed ? "swatch dashed" : "swatch" });
  mark.style.color = typeof line.colour === "string" ? css(line.colour) : colour(line.colour);
  return mark;
}

// A small line without axes, for a row of a list; the words beside it carry the numbers.
export function sparkline(values, { width = 120, height = 32 } = {}) {
  const known = values.filter((value) => value !== null);
  const high = Math.max(...known, 0), low = Math.min(...known, 0), span = high - low || 1;
  const x = (index) => (index / Math.max(1, values.length - 1)) * width;
  const y = (value) => height - 2 - ((value - low) / span) * (height - 4);
  const runs = [];
  values.forEach((value, index) => {
    if (value === null) return;
    if (values[index - 1] === null || index === 0 || !runs.length) runs.push([]);
    runs.at(-1).push(`${x(index).toFixed(1)} ${y(value).toFixed(1)}`);
  });
  const base = y(0).toFixed(1), start = (run) => run[0].split(" ")[0], end = (run) => run.at(-1).split(" ")[0];
  return svg("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "fill", d: runs.map((run) => `M${start(run)} ${base}L${run.join("L")}L${end(run)} ${base}Z`).join("") }),
    svg("path", { class: "line", d: runs.map((run) => `M${run.join("L")}${run.length === 1 ? "h1" : ""}`).join("") }));
}

// Points of an answer of `series` as columns for a chart: one line per series and function.
export function columns(answer, fn) {
  const times = (answer.series[0]?.points ?? []).map((point) => Date.parse(point.time));
  return { times, lines: answer.series.map(({ labels, points }) => ({ labels, values: points.map((point) => point[fn] ?? null), before: points.map((point) => point.before?.[fn] ?? null) })) };
}
