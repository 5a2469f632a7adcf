// One table: its rows, searched; the history of one; new rows from a file; and its end.

import { isAbort } from "../api.js";
import { confirm, dialog, missing } from "../dialogs.js";
import { command, h, list, text } from "../dom.js";
import { dayAndTime, integer, moment, NONE, number, plural } from "../format.js";
import { curl } from "../tenants.js";
import { uploadForm } from "../upload.js";

const PAGE = 100, MOST_ROWS = 2000, WAIT_MS = 250;

export default {
  title: (route) => route.name,
  async show(root, route, context) {
    let table;
    try {
      table = await context.ask(`/v1/tables/${encodeURIComponent(route.name)}`);
    } catch (error) {
      if (error.code !== "unknown_table") throw error;
      root.append(missing("table", error, context, "/tables"));
      return null;
    }
    const page = new TablePage(root, table, route, context);
    return () => page.leave();
  },
};

class TablePage {
  #context; #table; #address; #place = {}; #rows = []; #next = null; #asked = null; #timer = 0; #search;

  constructor(root, table, route, context) {
    this.#context = context;
    this.#table = table;
    this.#address = `/v1/tables/${encodeURIComponent(table.name)}`;
    this.#search = route.parameters.get("search") ?? "";
    root.append(this.#head(), this.#list(), this.#use(), this.#upload());
    this.#read();
  }

  leave() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
  }

  #head() {
    this.#place.facts = h("p", { class: "quiet" });
    this.#facts();
    return h("div", { class: "head" }, h("h1", {}, this.#table.name), h("button", { type: "button", class: "danger", id: "delete", on: { click: () => this.#delete() } }, "Delete …"), this.#place.facts);
  }

  #facts() {
    const { key, columns, rows, changed } = this.#table;
    text(this.#place.facts, `${plural(rows, "row")} by ${key}; columns ${Object.entries(columns).map(([name, type]) => `${name} (${type})`).join(", ") || NONE}. Changed ${moment(changed)}.`);
  }

  #list() {
    const place = this.#place, { key, columns } = this.#table;
    place.search = h("input", { id: "search", type: "search", value: this.#search, autocomplete: "off", on: { input: () => { clearTimeout(this.#timer); this.#timer = setTimeout(() => this.#choose(), WAIT_MS); } } });
    place.note = h("p", { class: "quiet", role: "status" });
    place.problem = h("div");
    place.body = h("tbody");
    place.more = h("button", { type: "button", id: "more", hidden: true, on: { click: () => this.#read({ isMore: true }) } }, "More rows");
    const names = [key, ...Object.keys(columns), "since"];
    return h("section", { class: "card wide", "aria-label": "Rows" },
      h("form", { class: "row", on: { submit: (event) => { event.preventDefault(); this.#choose(); } } }, h("span", { class: "choose" }, h("label", { for: "search" }, "search"), place.search), place.note), place.problem,
      h("div", { class: "scroll rows", tabindex: 0, role: "region", "aria-label": "Rows of the table" }, h("table", { class: "table", id: "rows" }, h("caption", { class: "unseen" }, `Rows of ${this.#table.name}`),
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", class: columns[name] === "number" ? "value" : null }, name)))), place.body)),
      h("div", { class: "actions" }, place.more));
  }

  #choose() {
    this.#search = this.#place.search.value;
    this.#context.set({ search: this.#search || null });
    this.#read();
  }

  async #read({ isMore = false } = {}) {
    this.#asked?.abort();
    clearTimeout(this.#timer);
    const asked = new AbortController();
    this.#asked = asked;
    try {
      const found = await this.#context.ask(`${this.#address}/rows`, { parameters: { search: this.#search, limit: PAGE, after: isMore ? this.#next : null }, signal: asked.signal });
      this.#rows = isMore ? [...this.#rows, ...found.rows] : found.rows;
      this.#next = found.next;
      this.#place.problem.replaceChildren();
      this.#show();
    } catch (error) {
      if (isAbort(error)) return;
      this.#place.problem.replaceChildren(this.#context.failed(error));
      this.#timer = setTimeout(() => this.#read(), 3000);
    }
  }

  #show() {
    const { rows } = this.#table, isFull = this.#rows.length >= MOST_ROWS;
    this.#place.more.hidden = this.#next === null || isFull;
    text(this.#place.note, this.#search ? (this.#rows.length ? `${plural(this.#rows.length, "row")}${this.#next === null ? "" : " or more"} with “${this.#search}”` : `No row has “${this.#search}” in its key or columns.`)
      : `${integer(this.#rows.length)} of ${plural(rows, "row")}${isFull ? "; search for the others" : ""}`);
    list(this.#place.body, this.#rows, { key: (row) => JSON.stringify(row), make: (row) => this.#row(row) });
  }

  #row({ key, from, columns }) {
    const cells = Object.entries(this.#table.columns).map(([name, type]) => h("td", { class: type === "number" ? "value" : null }, cell(columns[name])));
    return h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-label": `History of ${key}`, on: { click: () => this.#history(key) } }, key)), cells, h("td", { class: "quiet" }, from ? dayAndTime(from) : "always"));
  }

  async #history(key) {
    try {
      const { history } = await this.#context.ask(`${this.#address}/rows/${encodeURIComponent(key)}`);
      const names = Object.keys(this.#table.columns);
      await dialog(key, (close) => [h("p", { class: "quiet" }, "What it was called when; answers use the row that holds at the end of their time."),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "History" }, h("table", { class: "table" }, h("caption", { class: "unseen" }, `History of ${key}`), h("thead", {}, h("tr", {}, ["since", ...names].map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, history.map(({ from, columns, deleted }) => h("tr", {}, h("td", {}, from ? dayAndTime(from) : "always"), deleted ? h("td", { colspan: names.length || 1 }, "ended") : names.map((name) => h("td", {}, cell(columns[name])))))))),
        h("div", { class: "actions" }, h("button", { type: "button", autofocus: true, on: { click: () => close() } }, "Close"))]);
    } catch (error) {
      if (!isAbort(error)) this.#place.problem.replaceChildren(this.#context.failed(error));
    }
  }

  // Which meters it explains, and how to ask.
  #use() {
    const { name, key, columns } = this.#table, { status, tenant } = this.#context;
    const meter = status?.meters.find((each) => each.tenant === tenant && each.labels.includes(key)), [column, other = column] = Object.keys(columns).filter((each) => columns[each] === "text");
    const element = h("section", { class: "card", "aria-labelledby": "use-title" }, h("h2", { id: "use-title" }, "In questions"));
    if (!meter || !column) element.append(h("p", {}, `No meter has the label ${key} yet. As soon as one has, its answers can be grouped by ${name}.${column ?? "…"}.`));
    else {
      element.append(h("p", {}, `It joins the meter ${meter.name} by its label ${key}. The largest, by ${other}:`), command(curl(tenant, `/v1/meters/${encodeURIComponent(meter.name)}/top?by=${encodeURIComponent(`${name}.${other}`)}`)),
        h("p", {}, `or with ${column} beside each ${key}:`), command(curl(tenant, `/v1/meters/${encodeURIComponent(meter.name)}/top?by=${encodeURIComponent(key)}&with=${encodeURIComponent(`${name}.${column}`)}`)));
    }
    return element;
  }

  #upload() {
    return h("section", { class: "card", "aria-labelledby": "upload-title" }, h("h2", { id: "upload-title" }, "Upload rows"), uploadForm({ context: this.#context, table: this.#table, onDone: async () => {
      const before = Object.keys(this.#table.columns).join();
      this.#table = await this.#context.ask(this.#address);
      if (Object.keys(this.#table.columns).join() !== before) return this.#context.again();
      this.#facts();
      await this.#read();
    } }));
  }

  async #delete() {
    const { name, rows } = this.#table;
    const isWanted = await confirm(`Delete the table ${name}?`, { words: [`Its ${plural(rows, "row")} and their history are lost; there is no way back but the file they came from.`, `Questions that group by ${name}.… or show its columns are refused from then on. The counts stay.`], action: "Delete the table" });
    if (!isWanted) return;
    try {
      await this.#context.ask(this.#address, { method: "DELETE" });
      this.#context.go("/tables");
    } catch (error) {
      if (!isAbort(error)) this.#place.problem.replaceChildren(this.#context.failed(error));
    }
  }
}

const cell = (value) => (value === null || value === undefined ? NONE : typeof value === "number" ? number(value) : String(value));
