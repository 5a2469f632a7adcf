// One meter: over time, its total, its largest keys, and its definition. Every choice is in the URL.

import { Problem } from "../api.js";
import { Chart, columns, withGaps } from "../chart.js";
import { inASentence } from "../definition.js";
import { command, h, large, list, options, text } from "../dom.js";
import { dayAndTime, figure, integer, label, labels, NONE, percent, plural, zone } from "../format.js";
import { freshness } from "../freshness.js";
import { icon } from "../icons.js";
import { askToDelete, definitionPart } from "../meter-definition.js";
import { bestStep, inWords, iso, lengthMs, RANGES, readRange, stepsFor } from "../range.js";
import { curl, ledgerOf } from "../tenants.js";
import { topTable } from "../top.js";

const MOST_LINES = 8, MOST_COLOURS = 200;
const PERCENTILES = "percentiles", BANDS = ["p99", "p90", "p50"];
const LABEL = "label.";

export default {
  title: (route) => route.name,
  async show(root, route, context) {
    let meter;
    try {
      meter = await context.ask(`/v1/meters/${encodeURIComponent(route.name)}`);
    } catch (error) {
      if (error.code !== "unknown_meter") throw error;
      root.append(missing(error, context));
      return null;
    }
    return new MeterPage(root, meter, route, context).leave;
  },
};

function missing(error, { link }) {
  return h("section", { class: "card empty" }, h("h1", {}, "There is no such meter"), h("p", {}, error.message),
    h("p", {}, h("a", { href: link("/meters") }, "Every meter"), " or ", h("a", { href: link("/new-meter") }, "make a new one")));
}

class MeterPage {
  #context; #meter; #path; #choice; #colours = new Map(); #coloured = 0; #asked = null; #askedMs = 0; #counted = -1; #chart; #place = {};

  constructor(root, meter, route, context) {
    this.#context = context;
    this.#meter = meter;
    this.#path = `/v1/meters/${encodeURIComponent(meter.name)}`;
    this.#read(route.parameters);
    root.append(this.#head(), this.#controls(), this.#totals(), this.#over(), ...(meter.labels.length ? [this.#topOf()] : []), definitionPart(meter, context));
    this.#refresh();
    context.on("status", (status) => this.#tick(status));
    this.leave = () => { this.#asked?.abort(); this.#chart.destroy(); };
  }

  // Choices

  #read(parameters) {
    const { labels: known, compute, grain = "1m" } = this.#meter, range = readRange(parameters);
    const where = Object.fromEntries(known.map((key) => [key, parameters.getAll(LABEL + key)]).filter(([, values]) => values.length));
    const functions = [...compute, ...(compute.includes("rate") ? [] : ["rate"]), ...(hasPercentiles(compute) ? [PERCENTILES] : [])];
    const steps = stepsFor(range.lengthMs, grain);
    this.#choice = {
      ...range, where, functions, steps,
      fn: functions.includes(parameters.get("fn")) ? parameters.get("fn") : hasPercentiles(compute) && !parameters.has("by") ? PERCENTILES : compute[0],
      by: known.includes(parameters.get("by")) ? parameters.get("by") : "",
      step: steps.includes(parameters.get("step")) ? parameters.get("step") : bestStep(range.lengthMs, grain),
      compare: parameters.get("compare") === "previous",
    };
  }

  #choose(wanted) {
    this.#context.set(wanted);
    this.#read(new URLSearchParams(location.search));
    this.#showControls();
    this.#refresh();
  }

  get #asking() {
    const { from, to, where } = this.#choice;
    return { from, to, tz: zone(), ...Object.fromEntries(Object.entries(where).map(([key, values]) => [LABEL + key, values])) };
  }

  // Parts of the page

  #head() {
    const { name, built_in: isBuiltIn, broken, version, missed, created } = this.#meter;
    return h("div", { class: "head" },
      h("h1", {}, name, " ", isBuiltIn ? h("span", { class: "chip" }, "built in") : null),
      isBuiltIn ? null : h("div", { class: "actions" }, h("a", { class: "button", href: "#definition-part" }, "Edit"), h("button", { type: "button", class: "danger", on: { click: () => askToDelete(this.#meter, this.#context) } }, "Delete")),
      h("p", { class: "quiet" }, `${inASentence(this.#meter)} · version ${version}${created ? `, since ${dayAndTime(created)}` : ""}${this.#meter.series === undefined ? "" : ` · ${plural(this.#meter.series, "series", "series")}`}`),
      broken ? h("div", { class: "problem", role: "alert" }, icon("warning"), h("div", {}, h("p", {}, `This meter is broken and does not count: ${broken}`), h("p", {}, `It missed ${plural(missed, "event")}. Once its definition is right, let it count again:`), command(curl(this.#context.tenant, `${this.#path}/resume`, "POST")))) : null);
  }

  #controls() {
    const place = this.#place;
    place.ranges = h("div", { class: "segments", role: "group", "aria-label": "Time" }, ...RANGES.map((range) =>
      h("button", { type: "button", data: { range }, title: inWords(range), on: { click: () => this.#choose({ range, from: null, to: null, step: null }) } }, range)));
    place.live = h("button", { type: "button", id: "live", class: "live", on: { click: () => this.#toggleLive() } }, h("span"));
    place.by = h("select", { id: "by", on: { change: () => this.#choose({ by: place.by.value || null, fn: this.#choice.fn === PERCENTILES && place.by.value ? BANDS[0] : this.#choice.fn }) } });
    place.fn = h("select", { id: "function", on: { change: () => this.#choose({ fn: place.fn.value, ...(place.fn.value === PERCENTILES ? { by: null } : {}) }) } });
    place.step = h("select", { id: "step", on: { change: () => this.#choose({ step: place.step.value }) } });
    place.compare = h("input", { id: "compare", type: "checkbox", on: { change: () => this.#choose({ compare: place.compare.checked ? "previous" : null }) } });
    place.from = h("input", { id: "from", type: "datetime-local", on: { change: () => this.#between() } });
    place.to = h("input", { id: "to", type: "datetime-local", on: { change: () => this.#between() } });
    place.filters = h("ul", { class: "chips", "aria-label": "Filters" });
    const field = (words, control) => h("span", {}, h("label", { for: control.id }, words), " ", control);
    const element = h("form", { class: "controls wide", "aria-label": "What is shown", on: { submit: (event) => event.preventDefault() } },
      h("div", { class: "choose" }, place.ranges, place.live, h("details", { class: "between" }, h("summary", {}, "from … to …"), h("div", { class: "choose" }, field("from", place.from), field("to", place.to)))),
      h("div", { class: "choose" }, field("show", place.fn), this.#meter.labels.length ? field("by", place.by) : null, field("step", place.step), h("span", {}, place.compare, " ", h("label", { for: "compare" }, "previous period"))),
      place.filters);
    this.#showControls();
    return element;
  }

  #showControls() {
    const { range, isLive, fn, by, step, steps, functions, compare, where, from, to } = this.#choice, place = this.#place;
    for (const button of place.ranges.children) button.setAttribute("aria-pressed", String(button.dataset.range === range));
    place.live.setAttribute("aria-pressed", String(isLive));
    text(place.live.lastChild, isLive ? "Live" : "Back to live");
    options(place.by, ["", ...this.#meter.labels], { label: (name) => name || "(nothing)" });
    options(place.fn, functions);
    options(place.step, steps);
    Object.assign(place.by, { value: by });
    Object.assign(place.fn, { value: fn });
    Object.assign(place.step, { value: step });
    place.compare.checked = compare;
    place.from.value = isLive ? "" : local(from);
    place.to.value = isLive ? "" : local(to);
    const chips = Object.entries(where).flatMap(([key, values]) => values.map((value) => ({ key, value })));
    place.filters.hidden = !chips.length;
    list(place.filters, chips, {
      key: ({ key, value }) => JSON.stringify([key, value]),
      make: ({ key, value }) => h("li", { class: "chip" }, `${key} = ${label(value)}`, h("button", { type: "button", class: "plain", "aria-label": `Without the filter ${key} = ${label(value)}`, on: { click: () => this.#filter(key, value) } }, icon("close"))),
    });
  }

  #filter(key, value) {
    const now = this.#choice.where[key] ?? [];
    this.#choose({ [LABEL + key]: now.includes(value) ? now.filter((each) => each !== value) : [...now, value] });
  }

  #toggleLive() {
    if (!this.#choice.isLive) return this.#choose({ from: null, to: null });
    const now = Date.now();
    return this.#choose({ from: iso(now - this.#choice.lengthMs), to: iso(now) });
  }

  #between() {
    const from = utc(this.#place.from.value), to = utc(this.#place.to.value);
    if (from < to) this.#choose({ from: iso(from), to: iso(to), range: null, step: null });
  }

  #totals() {
    const place = this.#place;
    Object.assign(place, { total: h("p", { class: "huge", id: "total" }, NONE), change: h("p", { class: "change", id: "change", hidden: true }), others: h("dl", { class: "others" }), span: h("p", { class: "quiet" }), totalMark: freshness(), totalTitle: h("h2") });
    return h("section", { class: "card wide total-card", "aria-label": "Total" }, h("div", { class: "fit" }, place.totalTitle, place.total, place.change, place.span), h("div", {}, place.others, place.totalMark.element));
  }

  #over() {
    const part = h("section", { class: "card wide over-card", "aria-labelledby": "over-title" });
    Object.assign(this.#place, { overTitle: h("h2", { id: "over-title" }), overNote: h("p", { class: "quiet", role: "status" }), overMark: freshness(), overFailed: h("div") });
    part.append(h("div", { class: "row" }, this.#place.overTitle, h("p", { class: "quiet hint" }, "Drag over the chart to zoom.")), this.#place.overFailed);
    this.#chart = new Chart(part, {
      id: "over", label: `${this.#meter.name} over time`, height: 19,
      onZoom: (from, to) => this.#zoom(from, to),
      reading: (value) => figure(value, { fn: this.#function, decimals: this.#meter.decimals }),
    });
    part.append(this.#place.overNote, this.#place.overMark.element);
    return part;
  }

  get #function() {
    return this.#choice.fn === PERCENTILES ? BANDS[0] : this.#choice.fn;
  }

  // At least two steps of the meter's grain, or there would be nothing to see.
  #zoom(from, to) {
    const grain = lengthMs(this.#meter.grain ?? "1m"), first = Math.floor(from / grain) * grain;
    this.#choose({ from: iso(first), to: iso(Math.max(first + 2 * grain, Math.ceil(to / grain) * grain)), step: null });
  }

  #topOf() {
    const place = this.#place;
    place.top = topTable({ id: "top", caption: `The largest series of ${this.#meter.name}`, onKey: (name) => this.#filter(place.topBy.value, name) });
    place.topBy = h("select", { id: "top-by", on: { change: () => this.#refresh() } });
    options(place.topBy, this.#meter.labels);
    if (this.#choice.by) place.topBy.value = this.#choice.by;
    place.topMark = freshness();
    return h("section", { class: "card wide", "aria-labelledby": "top-title" }, h("div", { class: "row" }, h("h2", { id: "top-title" }, "Top keys"), h("p", { class: "choose" }, h("label", { for: "top-by" }, "by"), place.topBy)), place.top.note, place.top.element, place.topMark.element);
  }

  // Asking

  // The status says whether anything was counted; without a change the time still moves on.
  #tick(status) {
    if (!this.#choice.isLive) return;
    const { counted } = ledgerOf(this.#context.tenant, status) ?? status;
    const pause = this.#choice.lengthMs > 6 * 3_600_000 ? 10_000 : 1000;
    const due = counted === this.#counted ? Math.max(pause, 10_000) : pause;
    if (this.#asked || Date.now() - this.#askedMs < due - 50) return;
    this.#counted = counted;
    this.#refresh({ quietly: true });
  }

  async #refresh({ quietly = false } = {}) {
    this.#asked?.abort();
    const asked = new AbortController(), { fn, by, step, compare } = this.#choice, place = this.#place;
    this.#asked = asked;
    this.#askedMs = Date.now();
    const ask = (kind, parameters) => this.#context.ask(`${this.#path}/${kind}`, { parameters: { ...this.#asking, ...(compare ? { compare: "previous" } : {}), ...parameters }, signal: asked.signal });
    const functions = fn === PERCENTILES ? BANDS : [fn];
    try {
      const [series, total, top] = await Promise.all([
        ask("series", { step, fn: functions, by: by || null, limit: by ? MOST_LINES : null }),
        ask("total", { fn: [...new Set([...functions, ...this.#meter.compute])] }),
        place.top ? ask("top", { by: place.topBy.value, fn: this.#function, k: 10 }) : null,
      ]);
      if (asked !== this.#asked) return;
      place.overFailed.replaceChildren();
      this.#showSeries(series);
      this.#showTotal(total);
      if (top) {
        place.top.show(top, { key: place.topBy.value, fn: this.#function, broken: this.#meter.broken });
        place.topMark.show(top.freshness);
      }
    } catch (error) {
      if (asked !== this.#asked || asked.signal.aborted) return;
      if (!quietly || error instanceof Problem) place.overFailed.replaceChildren(this.#context.failed(error));
    } finally {
      if (asked === this.#asked) this.#asked = null;
    }
  }

  #showSeries(answer) {
    const { fn, by, step, compare, range, from, to } = this.#choice, place = this.#place;
    const shared = { stepMs: lengthMs(step), from: Date.parse(answer.range.from), to: Date.parse(answer.range.to), completeThrough: Date.parse(answer.freshness.complete_through) };
    const { times, lines } = fn === PERCENTILES ? bands(answer) : this.#lines(answer, fn, { by, compare });
    const shown = lines.map((line) => ({ ...line, values: withGaps(times, line.values, { created: this.#meter.created, stepMs: lengthMs(step), shiftMs: line.dashed ? this.#choice.lengthMs : 0 }) }));
    this.#chart.show({ ...shared, times, lines: shown, bands: fn === PERCENTILES ? [{ upper: 0, lower: 1, colour: "--s1" }, { upper: 1, lower: 2, colour: "--s1" }] : [] });
    text(place.overTitle, `${fn === PERCENTILES ? "p50, p90 and p99" : fn}${by ? ` by ${by}` : ""}, ${range ? inWords(range) : `${dayAndTime(from)} to ${dayAndTime(to)}`}`);
    const nothing = shown.every(({ values }) => values.every((value) => value === null || value === 0));
    text(place.overNote, [
      nothing ? "Nothing was counted in this time." : "",
      answer.left_out ? `The ${MOST_LINES} largest of ${integer(answer.left_out + answer.series.length)}.` : "",
      answer.compare && !nothing ? `Dashed: ${dayAndTime(answer.compare.from)} to ${dayAndTime(answer.compare.to)}.` : "",
    ].filter(Boolean).join(" "));
    place.overMark.show(answer.freshness);
  }

  #lines(answer, fn, { by, compare }) {
    const found = columns(answer, fn);
    const lines = found.lines.map(({ labels: each, values }) => ({ name: by ? labels(each) : fn, colour: this.#colour(by ? labels(each) : ""), values, kind: by || fn !== "count" ? "line" : "area" }));
    const before = found.lines.map(({ labels: each, before: values }, index) => ({ name: `${by ? labels(each) : fn}, before`, of: lines[index].name, colour: lines[index].colour, values, dashed: true }));
    return { times: found.times, lines: compare ? [...lines, ...before] : lines };
  }

  // A key keeps its colour also when the order changes; those of keys that were not shown for long are forgotten.
  #colour(name) {
    const found = this.#colours.get(name) ?? this.#coloured++;
    this.#colours.delete(name); // so that it is the last one now
    this.#colours.set(name, found);
    if (this.#colours.size > MOST_COLOURS) this.#colours.delete(this.#colours.keys().next().value);
    return found;
  }

  #showTotal(answer) {
    const place = this.#place, fn = this.#function, { decimals } = answer, change = answer.change?.[fn];
    text(place.totalTitle, `${fn}, ${this.#choice.range ? inWords(this.#choice.range) : "this time"}`);
    large(place.total, figure(answer.value[fn], { fn, decimals }));
    place.change.hidden = !answer.change;
    if (answer.change) {
      place.change.dataset.direction = (change?.percent ?? 0) > 0 ? "up" : (change?.percent ?? 0) < 0 ? "down" : "same";
      const is = change?.percent === null || change?.percent === undefined ? "nothing to compare with" : percent(change.percent);
      text(place.change, `${is} · before: ${figure(answer.before[fn], { fn, decimals })}`);
    }
    const others = Object.keys(answer.value).filter((each) => each !== fn);
    list(place.others, others, { key: (each) => each, make: (each) => h("div", {}, h("dt", {}, each), h("dd")), update: (item, each) => text(item.lastChild, figure(answer.value[each], { fn: each, decimals })) });
    const where = Object.entries(answer.where).map(([key, values]) => `${key} = ${values.map(label).join(" or ")}`).join(", ");
    text(place.span, where ? `only ${where}` : "");
    place.totalMark.show(answer.freshness);
  }
}

const hasPercentiles = (compute) => compute.some((fn) => /^p\d/.test(fn));

function bands(answer) {
  const lines = BANDS.map((fn) => ({ name: fn, colour: fn === "p50" ? "--s1" : fn === "p90" ? "--s7" : "--s4", values: columns(answer, fn).lines[0]?.values ?? [] }));
  return { times: columns(answer, BANDS[0]).times, lines };
}

// A moment as <input type=datetime-local> wants it, in the chosen zone, and back.
function local(when) {
  const parts = Object.fromEntries(new Intl.DateTimeFormat("en-CA", { timeZone: zone(), hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" }).formatToParts(new Date(when)).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day}T${parts.hour}:${parts.minute}`;
}

function utc(words) {
  if (!words) return NaN;
  const guess = Date.parse(`${words}Z`);
  // Twice, because the zone's distance from UTC may change between the guess and the moment.
  return [0, 1].reduce((ms) => ms + (guess - Date.parse(`${local(ms)}Z`)), guess);
}
