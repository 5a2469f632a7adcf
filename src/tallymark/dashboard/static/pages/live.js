// Events as they pass: a fair sample of them, filtered, and never more rows than a browser bears.

import { isAbort, Problem, request } from "../api.js";
import { dialog, field } from "../dialogs.js";
import { command, h, list, text } from "../dom.js";
import { clock, integer, number, plural } from "../format.js";
import { icon } from "../icons.js";
import { MAIN } from "../state.js";
import { curlOfFirstEvent, pythonOfFirstEvent } from "../tenants.js";

const MOST_ROWS = 500;
const MOST_PROPS = 8;
const RATES = ["5", "20", "50", "200"];
const WAIT_MS = 400;
const SEEN_EVERY_MS = 15_000;

export default {
  title: "Live events",
  show(root, route, context) {
    const page = new LivePage(root, route, context);
    return () => page.leave();
  },
};

class LivePage {
  #context; #place = {}; #choice; #close = () => {}; #asked = null; #timer = 0; #seenTimer = 0; #isPaused = false; #sums = { passed: 0, matched: 0, shown: 0, isSampled: false, since: 0 }; #rows = []; #count = 0;

  constructor(root, route, context) {
    this.#context = context;
    root.append(this.#head(), this.#filters(), this.#empty(), this.#table());
    this.#choice = { event: route.parameters.get("event") ?? "", where: route.parameters.get("where") ?? "", rate: RATES.includes(route.parameters.get("rate")) ? route.parameters.get("rate") : "20" };
    for (const [name, value] of Object.entries(this.#choice)) this.#place[name].input.value = value;
    this.#listen();
    this.#readSeen();
  }

  leave() {
    clearTimeout(this.#timer);
    clearTimeout(this.#seenTimer);
    this.#asked?.abort();
    this.#close();
  }

  // Parts of the page

  #head() {
    const place = this.#place;
    place.state = h("p", { class: "pill", id: "tail-state", role: "status", data: { state: "unknown" } }, "connecting …");
    return h("div", { class: "head" }, h("h1", {}, "Live events"), place.state,
      h("p", { class: "quiet" }, "What arrives now, a sample if it is much; the counts on the other pages have every event. In a terminal: ", h("code", {}, "tallymark tail"), "."));
  }

  #filters() {
    const place = this.#place, later = () => { clearTimeout(this.#timer); this.#timer = setTimeout(() => this.#choose(), WAIT_MS); };
    place.names = h("datalist", { id: "names" });
    place.event = field("Event", h("input", { id: "event", list: "names", autocomplete: "off", spellcheck: "false", placeholder: "any", on: { input: later } }));
    place.where = field("Where", h("input", { id: "where", autocomplete: "off", spellcheck: "false", placeholder: "country = 'KR' and ms > 250", on: { input: later } }));
    place.rate = field("At most", h("select", { id: "rate", on: { change: () => this.#choose() } }, RATES.map((rate) => h("option", { value: rate }, `${rate} a second`))));
    place.pause = h("button", { type: "button", id: "pause", "aria-pressed": "false", on: { click: () => this.#pause(!this.#isPaused) } }, "Pause");
    place.clear = h("button", { type: "button", id: "clear", on: { click: () => this.#clear() } }, "Clear");
    place.problem = h("div");
    return h("section", { class: "card wide", "aria-label": "Filters" }, h("form", { class: "filters", on: { submit: (event) => { event.preventDefault(); this.#choose(); } } },
      place.event.element, place.where.element, place.rate.element, h("div", { class: "actions" }, place.pause, place.clear), place.names), place.problem);
  }

  #empty() {
    const { tenant } = this.#context;
    this.#place.empty = h("section", { class: "card empty", id: "nothing", hidden: true }, h("h2", {}, "Nothing has passed yet"),
      h("p", {}, "This page shows events from the moment you open it. Send one from a terminal:"), command(curlOfFirstEvent(tenant)), h("p", {}, "or from Python:"), command(pythonOfFirstEvent(tenant)));
    return this.#place.empty;
  }

  #table() {
    const place = this.#place;
    place.count = h("p", { class: "quiet", id: "passed" });
    place.body = h("tbody");
    place.card = h("section", { class: "card wide", "aria-label": "Events", hidden: true }, place.count,
      h("div", { class: "scroll tail", tabindex: 0, role: "region", "aria-label": "Events, newest first" }, h("table", { class: "table", id: "events" }, h("caption", { class: "unseen" }, "Events, newest first"),
        h("thead", {}, h("tr", {}, ["received", "event", "value", "props"].map((words) => h("th", { scope: "col", class: words === "value" ? "value" : null }, words)))), place.body)));
    return place.card;
  }

  // Filters

  #choose() {
    const { event, where, rate } = this.#place;
    this.#choice = { event: event.input.value.trim(), where: where.input.value.trim(), rate: rate.input.value };
    this.#context.set({ event: this.#choice.event || null, where: this.#choice.where || null, rate: this.#choice.rate === "20" ? null : this.#choice.rate });
    this.#listen();
  }

  // An EventSource cannot say why it was refused, so the question is asked once before.
  async #listen() {
    this.#close();
    this.#asked?.abort();
    clearTimeout(this.#timer);
    for (const name of ["event", "where", "rate"]) this.#place[name].fail(null);
    const asked = new AbortController(), { tenant } = this.#context, parameters = { ...this.#choice };
    this.#asked = asked;
    try {
      await request("/v1/tail", { parameters, tenant: tenant === MAIN ? null : tenant, signal: asked.signal });
      asked.abort();
    } catch (error) {
      if (isAbort(error)) return;
      this.#state("bad", "not listening");
      if (error instanceof Problem && this.#place[error.parameter]?.fail) this.#place[error.parameter].fail(error.excerpt ? `${error.message}\n${error.excerpt}` : error.message);
      else this.#place.problem.replaceChildren(this.#context.failed(error));
      if (!(error instanceof Problem) || error.status >= 500) this.#timer = setTimeout(() => this.#listen(), 3000);
      return;
    }
    this.#place.problem.replaceChildren();
    this.#sums = { passed: 0, matched: 0, shown: 0, isSampled: false, since: Date.now() };
    this.#show();
    this.#close = this.#context.stream("/v1/tail", {
      parameters, on: { start: () => this.#listening(), events: (news) => this.#hear(news), end: () => this.#state("warn", "waiting …") },
      state: (state) => { if (state === "waiting") this.#state("bad", "no connection, trying again …"); },
    });
  }

  #listening() {
    if (this.#isPaused) this.#state("warn", "paused");
    else this.#state("good", "listening");
    this.#show();
  }

  #state(state, words) {
    this.#place.state.dataset.state = state;
    text(this.#place.state, words);
  }

  #pause(isPaused) {
    this.#isPaused = isPaused;
    this.#place.pause.setAttribute("aria-pressed", String(isPaused));
    text(this.#place.pause, isPaused ? "Go on" : "Pause");
    this.#listening();
  }

  #clear() {
    this.#rows = [];
    this.#sums = { passed: 0, matched: 0, shown: 0, isSampled: false, since: Date.now() };
    this.#show();
  }

  // Events

  #hear({ events, passed, matched, sampled = false }) {
    const sums = this.#sums;
    sums.passed += passed;
    sums.matched += matched;
    sums.isSampled ||= sampled;
    if (!this.#isPaused) {
      sums.shown += events.length;
      this.#rows = [...events.map((event) => ({ ...event, key: ++this.#count })).reverse(), ...this.#rows].slice(0, MOST_ROWS);
    }
    if (this.#place.state.dataset.state === "bad") this.#listening();
    this.#show();
  }

  #show() {
    const { passed, matched, shown, isSampled, since } = this.#sums, place = this.#place, about = isSampled ? "about " : "";
    place.empty.hidden = passed > 0 || this.#rows.length > 0;
    place.card.hidden = !place.empty.hidden;
    const isFiltered = this.#choice?.event || this.#choice?.where;
    text(place.count, `Since ${clock(since)}: ${about}${integer(passed)} passed, ${isFiltered ? `${about}${integer(matched)} matched, ` : ""}${integer(shown)} shown${this.#rows.length === MOST_ROWS ? `, of which the newest ${MOST_ROWS} are below` : ""}.${this.#isPaused ? " Paused: nothing is added." : ""}`);
    list(place.body, this.#rows, { key: ({ key }) => key, make: (event) => this.#row(event) });
  }

  #row(event) {
    const props = Object.entries(event.props ?? {}), more = Object.keys(event.values ?? {}).length;
    return h("tr", { on: { click: () => this.#open(event) } },
      h("td", {}, h("button", { type: "button", class: "link", "aria-label": `Open ${event.event} of ${clock(event.received)}`, on: { click: (click) => { click.stopPropagation(); this.#open(event); } } }, clock(event.received))),
      h("td", { class: "event" }, event.event), h("td", { class: "value" }, event.value === undefined ? "" : number(event.value)),
      h("td", {}, h("span", { class: "props" }, props.slice(0, MOST_PROPS).map(([name, value]) => h("span", { class: "prop" }, h("span", { class: "quiet" }, name), " ", h("b", {}, shown(value)))),
        more ? h("span", { class: "quiet" }, plural(more, "named number")) : null, props.length > MOST_PROPS ? h("span", { class: "quiet" }, `and ${props.length - MOST_PROPS} more`) : null)));
  }

  #open(event) {
    const { key: _, ...whole } = event;
    dialog(event.event, (close) => [h("p", { class: "quiet" }, `received ${clock(event.received)}, happened ${clock(event.time)}`),
      h("pre", { class: "raw", tabindex: 0, role: "region", "aria-label": "The whole event" }, JSON.stringify(whole, null, 2)),
      h("div", { class: "actions" }, h("button", { type: "button", autofocus: true, on: { click: () => close() } }, icon("close"), "Close"))]);
  }

  // Names to choose from
  async #readSeen() {
    try {
      const { events } = await this.#context.ask("/v1/events/seen");
      list(this.#place.names, events.slice(0, 200), { key: ({ event }) => event, make: ({ event }) => h("option", { value: event }) });
    } catch (error) {
      if (isAbort(error)) return;
    }
    this.#seenTimer = setTimeout(() => this.#readSeen(), SEEN_EVERY_MS);
  }
}

const shown = (value) => (value === null ? "null" : typeof value === "string" ? value || "(empty)" : typeof value === "number" ? number(value) : String(value));
