// Every meter with its last hour and its total; rows ask only while they are in sight.

import { columns, sparkline, withGaps } from "../chart.js";
import { command, h, list, text } from "../dom.js";
import { compact, figure, NONE, plural } from "../format.js";
import { estimate, freshness } from "../freshness.js";
import { icon } from "../icons.js";
import { inASentence } from "../definition.js";
import { MAIN } from "../state.js";

const EVERY_MS = 10_000, AT_ONCE = 3, MANY = 12, MINUTE_MS = 60_000;

export default {
  title: "Meters",
  async show(root, route, context) {
    const { meters } = await context.ask("/v1/meters");
    const found = meters.sort((a, b) => Number(a.built_in) - Number(b.built_in) || a.name.localeCompare(b.name));
    const search = h("input", { id: "search", type: "search", placeholder: "name, event or label", value: route.parameters.get("search") ?? "" });
    const body = h("ul", { class: "meters", id: "meters" }), count = h("p", { class: "quiet", role: "status" }), mark = freshness();
    root.append(
      h("div", { class: "head" }, h("h1", {}, "Meters"), h("a", { class: "button primary", href: context.link("/new-meter") }, icon("plus"), "New meter"),
        h("p", { class: "quiet" }, "A meter says which events to count, under which labels, and what to compute from them.")),
      h("section", { class: "card wide", "aria-label": "Every meter" },
        h("div", { class: "row" }, h("p", { class: "choose", hidden: found.length < MANY }, h("label", { for: "search" }, "find"), search), count, mark.element), body),
      found.some((meter) => !meter.built_in) ? "" : first(context));
    const rows = new Rows(context, mark);
    const show = () => {
      const wanted = search.value.trim().toLowerCase();
      const shown = found.filter((meter) => !wanted || `${meter.name} ${inASentence(meter)}`.toLowerCase().includes(wanted));
      list(body, shown, { key: ({ name }) => name, make: (meter) => rows.make(meter) });
      text(count, wanted ? `${plural(shown.length, "meter")} of ${found.length}` : plural(found.length, "meter"));
    };
    search.addEventListener("input", () => { context.set({ search: search.value.trim() }); show(); });
    show();
    context.on("status", () => rows.refresh());
    return () => rows.leave();
  },
};

function first({ tenant, link }) {
  return h("section", { class: "card empty", "aria-labelledby": "first-title" }, h("h2", { id: "first-title" }, "You have no meter of your own yet"),
    h("p", {}, h("a", { href: link("/new-meter") }, "Make one from the events seen in the last minutes"), ", or from a terminal:"),
    command(`tallymark meters add views --event view --by video,country${tenant === MAIN ? "" : ` --tenant ${tenant}`}`));
}

class Rows {
  #context; #mark; #due = new Map(); #busy = 0; #observer;

  constructor(context, mark) {
    this.#context = context;
    this.#mark = mark;
    this.#observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) target.inSight = isIntersecting;
      this.refresh();
    }, { rootMargin: "200px" });
  }

  leave() {
    this.#observer.disconnect();
  }

  make(meter) {
    const path = this.#context.link(`/meters/${encodeURIComponent(meter.name)}`);
    const row = h("li", {}, h("div", { class: "what" }, h("a", { href: path }, meter.name), meter.built_in ? h("span", { class: "chip" }, "built in") : null,
      meter.broken ? h("span", { class: "pill", data: { state: "bad" }, title: meter.broken }, "broken") : null, h("p", { class: "quiet" }, inASentence(meter))),
    h("div", { class: "spark" }, h("span", { class: "unseen" }, "the last hour as a line")), h("dl", {}, h("div", {}, h("dt", {}, "last hour"), h("dd", { class: "hour" }, NONE)), h("div", {}, h("dt", {}, "total"), h("dd", { class: "total" }, NONE))));
    this.#due.set(row, { meter, atMs: 0 });
    this.#observer.observe(row);
    return row;
  }

  async refresh() {
    for (const [row, due] of this.#due) {
      if (this.#busy >= AT_ONCE) return;
      if (!row.isConnected || !row.inSight || Date.now() - due.atMs < EVERY_MS) continue;
      due.atMs = Date.now();
      this.#busy += 1;
      this.#read(row, due.meter).catch(() => {}).finally(() => { this.#busy -= 1; this.refresh(); });
    }
  }

  async #read(row, meter) {
    const path = `/v1/meters/${encodeURIComponent(meter.name)}`, fn = meter.compute[0];
    const ask = (kind, parameters) => this.#context.ask(`${path}/${kind}`, { parameters: { ...parameters, fn } });
    const [series, hour] = await Promise.all([ask("series", { from: "-1h", step: "1m" }), ask("total", { from: "-1h" })]);
    // After the hour, so that it is never less.
    const total = await ask("total", fn === "rate" ? { from: "-1d" } : {});
    const { times, lines } = columns(series, fn), through = Date.parse(series.freshness.complete_through);
    const whole = times.filter((time) => !(time + MINUTE_MS > through)).length;
    const values = withGaps(times, lines[0]?.values ?? [], { created: meter.created, stepMs: MINUTE_MS });
    const line = sparkline(values.map((value, index) => (index < whole ? value : null))), place = row.querySelector(".spark");
    place.querySelector("svg")?.remove();
    place.append(line);
    for (const [name, answer] of [["hour", hour], ["total", total]]) {
      const cell = row.querySelector(`.${name}`), value = answer.value[fn];
      text(cell, Math.abs(value ?? 0) < 1e7 ? figure(value, { fn, decimals: answer.decimals }) : compact(value));
      cell.title = `${fn}: ${figure(value, { fn, decimals: answer.decimals })}, ${answer.freshness.approximate ? estimate(answer.freshness.error) : "exact"}`;
      cell.previousSibling.textContent = `${name === "hour" ? "last hour" : "total"}${fn === "count" ? "" : `, ${fn}`}`;
    }
    this.#mark.show(total.freshness);
  }
}
