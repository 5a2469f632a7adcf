// A question in one sentence: query, range and kind of chart are in the URL, so that a link shows the same.

import { isAbort, Problem, query as withParameters } from "../api.js";
import { answerView, groups, KINDS } from "../answer.js";
import { confirm, dialog, field, nameFrom } from "../dialogs.js";
import { command, h, list, text } from "../dom.js";
import { editor } from "../editor.js";
import { duration, moment, plural, zone } from "../format.js";
import { icon } from "../icons.js";
import { inWords, iso, RANGES, readRange } from "../range.js";
import { hasClause, quoted, withoutRange, withRange } from "../sentence.js";
import { MAIN } from "../state.js";
import { curlOfFirstEvent } from "../tenants.js";

const AGAIN_MS = 5000, AGAIN_TIMES = 20;
const MOST_EXAMPLES = 6;
const CLAUSES = [
  ["FROM * SELECT views", "a meter, or a metric; * is everything, FROM web-1, web-2 only these"],
  ["WINDOW 1m", "one point for each minute; without it one number for the whole time"],
  ["COMPUTE count, p99", "these functions; without it all that the meter computes"],
  ["WHERE country = 'KR'", "only these; IN ('KR', 'DE') for several, AND between labels"],
  ["BY country", "a line for each value of the label"],
  ["LIMIT 5", "the largest five lines"],
  ["SINCE 1d UNTIL 1h", "instead of the time above the chart; a date or a moment works, too"],
];

export default {
  title: "Ask",
  show(root, route, context) {
    const page = new AskPage(root, route, context);
    return () => page.leave();
  },
};

class AskPage {
  #context; #field; #view; #choice; #asked = null; #timer = 0; #answer = null; #saved = []; #place = {}; #name;

  constructor(root, route, context) {
    this.#context = context;
    this.#name = route.parameters.get("name");
    this.#field = editor({
      id: "q", label: "Your question", onAsk: () => this.#ask(), onChange: () => this.#showRange(),
      words: (q, at, signal) => context.ask("/v1/query/words", { parameters: { q: q || " ", at: String(at) }, signal }),
    });
    this.#view = answerView({ label: "Answer", id: "answer", onZoom: (from, to) => this.#choose({ from: iso(from), to: iso(to), range: null }) });
    root.append(h("div", { class: "head" }, h("h1", {}, "Ask"), h("p", { class: "quiet" }, "One sentence names where to look, what to read and how to compute it.")),
      this.#question(), this.#result(), this.#savedPart(), this.#examples());
    this.#field.set(route.parameters.get("q") ?? "");
    this.#read(route.parameters);
    if (this.#field.value.trim()) this.#ask({ isFirst: true });
    else this.#field.focus();
    this.#readSaved();
    context.on("status", () => this.#showExamples());
    this.#showExamples();
  }

  leave() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    this.#view.destroy();
  }

  // What is asked

  #read(parameters) {
    const kind = parameters.get("kind");
    this.#choice = { ...readRange(parameters), kind: KINDS.includes(kind) ? kind : "line", fn: parameters.get("fn") };
    this.#showRange();
  }

  #choose(wanted) {
    this.#context.set(wanted);
    this.#read(new URLSearchParams(location.search));
    if ("kind" in wanted || "fn" in wanted) this.#draw();
    else this.#ask();
  }

  get #whole() {
    return withRange(this.#field.value, this.#choice.isLive ? { range: this.#choice.range } : this.#choice);
  }

  async #ask({ isFirst = false, isAgain = false } = {}) {
    const q = this.#field.value.trim();
    clearTimeout(this.#timer);
    this.#asked?.abort();
    if (!q) return this.#field.fail({ message: "Write a question first, or take one of the examples below." });
    const asked = new AbortController(), beganMs = performance.now();
    this.#asked = asked;
    if (!isFirst && !isAgain) this.#context.set({ q: this.#field.value, name: null });
    this.#place.card.classList.toggle("busy", !isAgain);
    try {
      this.#answer = await this.#context.ask("/v1/query", { method: "POST", body: { q: this.#whole }, parameters: { tz: zone() }, signal: asked.signal });
      this.#field.fail(null);
      this.#place.problem.replaceChildren();
      this.#draw();
      this.#exports();
      // A question that is slow to answer is asked less often.
      if (this.#choice.isLive && !hasClause(this.#field.value, "UNTIL")) this.#timer = setTimeout(() => this.#ask({ isAgain: true }), Math.max(AGAIN_MS, AGAIN_TIMES * (performance.now() - beganMs)));
    } catch (error) {
      if (isAbort(error)) return;
      this.#fail(error, isAgain);
    } finally {
      if (this.#asked === asked) this.#place.card.classList.remove("busy");
    }
  }

  #fail(error, isAgain) {
    const isOfTheText = error instanceof Problem && error.status < 500;
    if (isAgain && !isOfTheText) this.#timer = setTimeout(() => this.#ask({ isAgain: true }), AGAIN_MS);
    else if (isOfTheText) {
      this.#field.fail({ message: error.message, position: error.position ?? null });
      this.#place.card.hidden = true;
    } else {
      this.#place.problem.replaceChildren(this.#context.failed(error));
      this.#timer = setTimeout(() => this.#ask({ isAgain: true }), AGAIN_MS);
    }
  }

  // Parts of the page

  #question() {
    this.#place.ranges = this.#segments("Time", RANGES, (range) => this.#choose({ range, from: null, to: null }), inWords);
    this.#place.rangeNote = h("span", { class: "quiet" });
    this.#place.problem = h("div");
    const clauses = h("details", { class: "data" }, h("summary", {}, "The language in a minute"),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Clauses of the language" }, h("table", { class: "table clauses" }, h("caption", { class: "unseen" }, "Clauses"), h("tbody", {}, CLAUSES.map(([words, meaning]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, words)), h("td", {}, meaning)))))));
    return h("section", { class: "card wide", "aria-label": "Question" },
      this.#field.element,
      h("div", { class: "actions" }, h("button", { type: "button", id: "ask", class: "primary", on: { click: () => this.#ask() } }, "Ask"), this.#place.ranges, this.#place.rangeNote),
      clauses, this.#place.problem);
  }

  #segments(label, values, choose, title = (value) => value) {
    return h("div", { class: "segments", role: "group", "aria-label": label }, values.map((value) =>
      h("button", { type: "button", data: { value }, title: title(value), "aria-pressed": "false", on: { click: () => choose(value) } }, value)));
  }

  #showRange() {
    const { range, isLive, from, to } = this.#choice ?? {}, own = hasClause(this.#field.value, "SINCE", "UNTIL");
    for (const button of this.#place.ranges.children) {
      button.disabled = own;
      button.setAttribute("aria-pressed", String(!own && button.dataset.value === range));
    }
    text(this.#place.rangeNote, own ? "The question says its time itself." : isLive ? "" : `from ${moment(from)} to ${moment(to)}`);
  }

  #result() {
    const place = this.#place;
    place.kinds = this.#segments("Shown as", KINDS, (kind) => this.#choose({ kind: kind === "line" ? null : kind }));
    place.fns = h("div", { class: "segments", role: "group", "aria-label": "Functions", hidden: true });
    place.canonical = h("code", { id: "canonical" });
    place.export = h("details", { class: "data export" }, h("summary", {}, "Export"), h("div", { class: "exports" }));
    place.card = h("section", { class: "card wide", id: "result", "aria-label": "Answer", hidden: true },
      h("div", { class: "row" }, h("div", { class: "choose" }, place.kinds, place.fns), h("div", { class: "choose" },
        h("button", { type: "button", id: "share", on: { click: () => this.#share() } }, "Copy link"),
        h("button", { type: "button", id: "save", on: { click: () => this.#save() } }, "Save …"))),
      h("p", { class: "canonical" }, place.canonical), this.#view.element, place.export);
    return place.card;
  }

  #draw() {
    if (!this.#answer) return;
    const { kind } = this.#choice, place = this.#place, found = groups(this.#answer);
    const fns = found.find((each) => each.join() === this.#choice.fn) ?? found[0] ?? [];
    place.card.hidden = false;
    for (const button of place.kinds.children) button.setAttribute("aria-pressed", String(button.dataset.value === kind));
    place.fns.hidden = found.length < 2;
    list(place.fns, found, {
      key: (each) => each.join(), make: (each) => h("button", { type: "button", on: { click: () => this.#choose({ fn: each.join() }) } }, each.join(", ")),
      update: (button, each) => button.setAttribute("aria-pressed", String(each === fns)),
    });
    text(place.canonical, this.#answer.query);
    this.#view.show(this.#answer, { kind, fns });
  }

  #exports() {
    const { tenant } = this.#context, q = this.#answer.query, parameters = { q, tz: zone(), tenant: tenant === MAIN ? null : tenant };
    if (this.#place.exported === q) return;
    this.#place.exported = q;
    const file = (format) => h("a", { class: "button", id: `export-${format}`, href: withParameters("/v1/query", { ...parameters, format }), download: `answer.${format}` }, icon("download"), format.toUpperCase());
    const shell = (words) => `'${words.replaceAll("'", "'\\''")}'`;
    const curl = `curl -G ${shell(`${location.origin}/v1/query`)} \\\n  --data-urlencode ${shell(`q=${q}`)} \\\n  -d ${shell(`tz=${zone()}`)}${tenant === MAIN ? "" : ` -d tenant=${tenant}`} -d format=csv`;
    const python = `from tallymark import Reader\n\nreader = Reader(${JSON.stringify(location.origin)}${tenant === MAIN ? "" : `, tenant=${JSON.stringify(tenant)}`})\nanswer = reader.query(${JSON.stringify(q)}, tz=${JSON.stringify(zone())})\nfor line in answer:\n    for point in line.points:\n        print(line.labels, point.time, point.value)`;
    this.#place.export.lastChild.replaceChildren(h("div", { class: "actions" }, file("csv"), file("json")),
      h("h3", {}, "curl"), command(curl, { id: "export-curl" }), h("h3", {}, "Python"), command(python, { id: "export-python" }));
  }

  async #share() {
    const button = document.getElementById("share");
    await navigator.clipboard.writeText(location.href);
    text(button, "Copied");
    setTimeout(() => text(button, "Copy link"), 2000);
  }

  // Saved queries

  async #readSaved() {
    try {
      this.#saved = (await this.#context.ask("/v1/queries")).queries;
    } catch (error) {
      if (isAbort(error)) return;
      this.#saved = [];
    }
    this.#showSaved();
  }

  #savedPart() {
    const place = this.#place;
    place.saved = h("ul", { class: "plain-list", id: "saved" });
    place.noneSaved = h("p", { class: "quiet" }, "None yet. Ask something with a WINDOW and press Save: its windows are then kept as they complete, and boards can show them.");
    return h("section", { class: "card", "aria-labelledby": "saved-title" }, h("h2", { id: "saved-title" }, "Saved queries"), place.noneSaved, place.saved);
  }

  #showSaved() {
    this.#place.noneSaved.hidden = this.#saved.length > 0;
    list(this.#place.saved, this.#saved, {
      key: ({ name, changed, stored }) => `${name} ${changed} ${stored?.through}`,
      make: (saved) => h("li", {},
        h("div", { class: "row" }, h("a", { href: this.#context.link("/ask", { q: saved.q, name: saved.name }) }, saved.title || saved.name),
          h("button", { type: "button", class: "plain", "aria-label": `Delete ${saved.name}`, title: "Delete", on: { click: () => this.#delete(saved) } }, icon("close"))),
        h("code", {}, saved.q), h("p", { class: "quiet" }, stored(saved)),
        saved.problem ? h("p", { class: "wrong" }, saved.problem) : null),
    });
  }

  async #save() {
    const before = this.#saved.find(({ name }) => name === this.#name), q = withoutRange(this.#field.value);
    const name = h("input", { id: "save-name", value: before?.name ?? "", autocomplete: "off", spellcheck: "false" });
    const title = h("input", { id: "save-title", value: before?.title ?? "", autocomplete: "off", on: { input: () => { if (!name.dataset.own) name.value = nameFrom(title.value); } } });
    name.addEventListener("input", () => { name.dataset.own = "1"; });
    const titleField = field("Title", title), nameField = field("Name", name, { help: "Its address; letters, digits and _ . : -" });
    const other = h("p", { class: "wrong", role: "alert" });
    const saved = await dialog("Save this question", (close) => h("form", { class: "form", on: { submit: async (event) => {
      event.preventDefault();
      for (const each of [titleField, nameField]) each.fail(null);
      text(other, "");
      try {
        close(await this.#context.ask(`/v1/queries/${encodeURIComponent(name.value || " ")}`, { method: "PUT", body: { q, title: title.value, tz: zone() } }));
      } catch (error) {
        const at = { bad_name: nameField, bad_text: titleField }[error.code];
        if (at) at.fail(error.message);
        else text(other, error.message);
      }
    } } }, titleField.element, nameField.element, h("pre", { class: "canonical" }, q),
    hasClause(this.#field.value, "SINCE", "UNTIL") ? h("p", { class: "quiet" }, "Without its SINCE and UNTIL: the time belongs to whoever looks at it.") : null, other,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Save"), h("button", { type: "button", on: { click: () => close() } }, "Cancel"))));
    if (!saved) return;
    this.#name = saved.name;
    this.#context.set({ name: saved.name });
    const note = h("p", { class: "note", role: "status", id: "saved-note" }, `Saved as ${saved.name}. `, h("a", { href: this.#context.link("/boards", { add: saved.name }) }, "Put it on a board"));
    this.#place.problem.replaceChildren(note);
    await this.#readSaved();
  }

  async #delete({ name, title }) {
    const isWanted = await confirm(`Delete ${title || name}?`, { words: [`The windows stored for ${name} are deleted with it. The counts of its meter stay: the question can be asked again, and saved again.`, "Boards that show it will say that it is gone."], action: "Delete the saved query" });
    if (!isWanted) return;
    try {
      await this.#context.ask(`/v1/queries/${encodeURIComponent(name)}`, { method: "DELETE" });
    } catch (error) {
      this.#place.problem.replaceChildren(this.#context.failed(error));
    }
    await this.#readSaved();
  }

  // Examples from the meters that exist

  #examples() {
    this.#place.examples = h("ul", { class: "plain-list", id: "examples" });
    this.#place.first = h("div", { hidden: true }, h("p", {}, "Nothing has been counted yet. Send a first event, then ask about it:"), command(curlOfFirstEvent(this.#context.tenant)));
    return h("section", { class: "card", "aria-labelledby": "examples-title" }, h("h2", { id: "examples-title" }, "Examples from your meters"), this.#place.first, this.#place.examples);
  }

  #showExamples() {
    const { status, tenant } = this.#context;
    if (!status) return;
    const meters = status.meters.filter((meter) => meter.tenant === tenant);
    this.#place.first.hidden = status.accepted > 0;
    list(this.#place.examples, examplesOf(meters), {
      key: ({ q }) => q,
      make: ({ q, kind, words }) => h("li", {}, h("a", { href: this.#context.link("/ask", { q, kind }) }, words), h("code", {}, q)),
    });
  }
}

function stored({ stored: found, behind_ms: behind, window, meter }) {
  const of = `windows of ${window} from the meter ${meter}`;
  if (!found?.windows) return `${of}; none is stored yet`;
  return `${plural(found.windows, "window")} of ${window} stored, through ${moment(found.through)}${behind > 60_000 ? `, ${duration(behind)} behind` : ""}`;
}

// What a newcomer may ask: first something of each meter, those of one's own before the built-in one, then more of them.
export function examplesOf(meters) {
  const own = meters.filter(({ name }) => !["events", "metrics"].includes(name)), all = [...own, ...meters.filter(({ name }) => name === "events")];
  const found = all.map(questions), most = Math.max(0, ...found.map((each) => each.length));
  return Array.from({ length: most }, (_, round) => found.map((each) => each[round])).flat().filter(Boolean).slice(0, MOST_EXAMPLES);
}

function questions({ name, labels: [label], compute }) {
  const meter = quoted(name), percentile = compute.find((fn) => /^p\d/.test(fn)), by = label ? ` BY ${quoted(label)} LIMIT 5` : "", each = label ? ` by ${label}` : "";
  return [
    percentile ? { q: `FROM * SELECT ${meter} WINDOW 1m COMPUTE p50, ${percentile}`, words: `${name}: the middle and the slow end, minute by minute` } : null,
    !percentile && compute.includes("avg") ? { q: `FROM * SELECT ${meter} WINDOW 1m COMPUTE avg, max`, words: `${name}: average and highest, minute by minute` } : null,
    compute.includes("distinct") ? { q: `FROM * SELECT ${meter} WINDOW 1h COMPUTE distinct SINCE 1d`, kind: "bars", words: `${name}: how many different ones, hour by hour` } : null,
    compute.includes("count") ? { q: `FROM * SELECT ${meter} WINDOW 1m COMPUTE count${by}`, words: `${name}: how many${label ? `, the largest five${each}` : ""}` } : null,
    compute.includes("sum") ? { q: `FROM * SELECT ${meter} COMPUTE sum${by} SINCE 1d`, kind: "table", words: `${name}: the sum${each} of the last day` } : null,
    { q: `FROM * SELECT ${meter} COMPUTE rate SINCE 5m`, kind: "number", words: `${name}: events per second in the last five minutes` },
  ].filter(Boolean);
}
