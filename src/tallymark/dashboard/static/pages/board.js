// One board: its panels live, an editor for their arrangement, and the whole screen for a wall.

import { isAbort } from "../api.js";
import { KINDS } from "../answer.js";
import { field, missing } from "../dialogs.js";
import { h, list, options, text } from "../dom.js";
import { icon } from "../icons.js";
import { Panel } from "../panel.js";
import { inWords, RANGES } from "../range.js";

const WIDTHS = [1, 2, 3, 4];

export default {
  title: (route) => route.name,
  async show(root, route, context) {
    const place = `/v1/boards/${encodeURIComponent(route.name)}`;
    let board, saved;
    try {
      [board, { queries: saved }] = await Promise.all([context.ask(place), context.ask("/v1/queries")]);
    } catch (error) {
      if (error.code !== "unknown_board") throw error;
      root.append(missing("board", error, context, "/boards"));
      return null;
    }
    const page = new BoardPage(root, { place, board, saved, route, context });
    return () => page.leave();
  },
};

let made = 0;
const keyed = (panel) => ({ ...panel, key: ++made });

class BoardPage {
  #context; #address; #board; #saved; #panels; #shown = new Map(); #place = {}; #isEditing; #range; #dragged = null; #lock = null;

  constructor(root, { place, board, saved, route, context }) {
    this.#context = context;
    this.#address = place;
    this.#board = board;
    this.#saved = saved;
    this.#panels = board.panels.map(keyed);
    this.#range = RANGES.includes(route.parameters.get("range")) ? route.parameters.get("range") : "1h";
    root.append(this.#head(), this.#editor(), this.#noPanels(), this.#grid());
    const added = route.parameters.get("add");
    this.#edit(route.parameters.has("edit") || Boolean(added));
    if (added) this.#add(added);
    this.#place.fullscreen = () => { if (!document.fullscreenElement) this.#wall(false); };
    document.addEventListener("fullscreenchange", this.#place.fullscreen);
    this.#wall(route.parameters.has("wall"));
    context.on("status", () => { for (const panel of this.#shown.values()) panel.refreshIfDue(); });
  }

  leave() {
    document.removeEventListener("fullscreenchange", this.#place.fullscreen);
    document.body.classList.remove("wall");
    if (document.fullscreenElement) document.exitFullscreen();
    this.#lock?.then((lock) => lock?.release());
    for (const panel of this.#shown.values()) panel.leave();
  }

  // Parts of the page

  #head() {
    const place = this.#place;
    place.title = h("h1", {}, this.#board.title || this.#board.name);
    place.ranges = h("div", { class: "segments", role: "group", "aria-label": "Time" }, RANGES.map((range) =>
      h("button", { type: "button", data: { range }, title: inWords(range), "aria-pressed": String(range === this.#range), on: { click: () => this.#chooseRange(range) } }, range)));
    place.editButton = h("button", { type: "button", id: "edit", on: { click: () => this.#edit(true) } }, "Edit");
    place.wallButton = h("button", { type: "button", id: "wall", on: { click: () => this.#fullScreen() } }, icon("full"), "Full screen");
    place.leaveWall = h("button", { type: "button", id: "leave-wall", class: "plain", "aria-label": "Leave full screen", on: { click: () => this.#leaveWall() } }, icon("close"));
    return h("div", { class: "head" }, place.title, h("div", { class: "choose" }, place.ranges, place.editButton, place.wallButton, place.leaveWall));
  }

  #chooseRange(range) {
    this.#range = range;
    this.#context.set({ range: range === "1h" ? null : range });
    for (const button of this.#place.ranges.children) button.setAttribute("aria-pressed", String(button.dataset.range === range));
    for (const panel of this.#shown.values()) panel.setDefault(range);
  }

  #editor() {
    const place = this.#place, titleField = field("Title of the board", h("input", { id: "board-title", value: this.#board.title, on: { input: () => this.#changed() } }));
    const query = h("select", { id: "add-query" }, this.#saved.map(({ name, title }) => h("option", { value: name }, title ? `${title} (${name})` : name)));
    const kind = h("select", { id: "add-kind" }, KINDS.map((each) => h("option", { value: each }, each)));
    place.boardTitle = titleField.input;
    place.said = h("p", { class: "unseen", id: "said", "aria-live": "polite" });
    place.state = h("p", { class: "quiet", role: "status" });
    place.problem = h("div");
    place.save = h("button", { type: "button", class: "primary", id: "save-board", on: { click: () => this.#save() } }, "Save");
    const adding = this.#saved.length
      ? h("form", { class: "choose", id: "add-panel", on: { submit: (event) => { event.preventDefault(); this.#add(query.value, kind.value); } } },
        h("span", {}, h("label", { for: query.id }, "query"), " ", query), h("span", {}, h("label", { for: kind.id }, "as"), " ", kind), h("button", { type: "submit" }, icon("plus"), "Add panel"))
      : h("p", {}, "There is no saved query to add yet. ", h("a", { href: this.#context.link("/ask") }, "Ask something and save it"), " first.");
    place.editor = h("section", { class: "card wide board-editor", "aria-label": "Edit the board", hidden: true },
      titleField.element, adding,
      h("p", { class: "quiet" }, "Drag a panel by its grip, or use the arrows; drag its right edge, or use − and +, for its width."),
      h("div", { class: "actions" }, place.save, h("button", { type: "button", id: "discard", on: { click: () => this.#discard() } }, "Discard"), place.state), place.problem, place.said);
    return place.editor;
  }

  #noPanels() {
    this.#place.none = h("section", { class: "card empty", hidden: true }, h("h2", {}, "No panels yet"), h("p", {}, "Choose a saved query above and press Add panel. ", h("a", { href: this.#context.link("/ask") }, "Ask"), " makes more of them."));
    return this.#place.none;
  }

  #grid() {
    this.#place.grid = h("ol", { class: "board wide", id: "panels" });
    return this.#place.grid;
  }

  // Editing

  #edit(isEditing) {
    this.#isEditing = isEditing;
    this.#place.editor.hidden = !isEditing;
    this.#place.editButton.hidden = isEditing;
    this.#place.grid.classList.toggle("editing", isEditing);
    this.#context.set({ edit: isEditing ? "1" : null });
    this.#show();
  }

  #changed(words = "") {
    text(this.#place.state, "Not saved yet.");
    if (words) text(this.#place.said, words);
    this.#show();
  }

  #add(query, kind = "line") {
    this.#panels.push(keyed({ query, title: "", kind, width: kind === "number" ? 1 : 2, range: null }));
    this.#changed(`Added ${query} at place ${this.#panels.length}`);
  }

  #change(key, wanted, words = "") {
    this.#panels = this.#panels.map((panel) => (panel.key === key ? { ...panel, ...wanted } : panel));
    this.#changed(words);
  }

  #remove(key) {
    const at = this.#panels.findIndex((panel) => panel.key === key);
    this.#panels = this.#panels.filter((panel) => panel.key !== key);
    this.#changed("Removed");
    (this.#place.grid.children[Math.min(at, this.#panels.length - 1)]?.querySelector(".grip") ?? this.#place.save).focus();
  }

  #move(key, to) {
    const from = this.#panels.findIndex((panel) => panel.key === key), place = Math.max(0, Math.min(this.#panels.length - 1, to));
    if (from === place) return;
    const [panel] = this.#panels.splice(from, 1);
    this.#panels.splice(place, 0, panel);
    const { activeElement } = document;
    this.#changed(`Moved to place ${place + 1} of ${this.#panels.length}`);
    if (activeElement?.isConnected) activeElement.focus();
  }

  async #save() {
    const body = { title: this.#place.boardTitle.value.trim(), panels: this.#panels.map(({ query, title, kind, width, range }) => ({ query, title, kind, width, range })) };
    this.#place.problem.replaceChildren();
    try {
      this.#board = await this.#context.ask(this.#address, { method: "PUT", body });
      text(this.#place.title, this.#board.title || this.#board.name);
      text(this.#place.state, "Saved.");
      this.#context.set({ add: null });
      this.#edit(false);
    } catch (error) {
      if (!isAbort(error)) this.#place.problem.replaceChildren(this.#context.failed(error));
    }
  }

  #discard() {
    this.#panels = this.#board.panels.map(keyed);
    this.#place.boardTitle.value = this.#board.title;
    text(this.#place.state, "");
    this.#context.set({ add: null });
    this.#edit(false);
  }

  // Showing

  #show() {
    const known = new Set(this.#panels.map(({ key }) => key));
    for (const [key, panel] of this.#shown) if (!known.has(key)) { panel.leave(); this.#shown.delete(key); }
    this.#place.none.hidden = this.#panels.length > 0;
    list(this.#place.grid, this.#panels, {
      key: ({ key }) => key,
      make: (wanted) => this.#make(wanted),
      update: (item, wanted, index) => {
        item.dataset.width = wanted.width;
        this.#shown.get(wanted.key).set(wanted);
        item.querySelector(".tools").hidden = !this.#isEditing;
        item.querySelector(".edge").hidden = !this.#isEditing;
        text(item.querySelector(".width"), `${wanted.width}/4`);
        item.querySelector(".earlier").disabled = index === 0;
        item.querySelector(".later").disabled = index === this.#panels.length - 1;
        item.querySelector(".narrower").disabled = wanted.width === WIDTHS[0];
        item.querySelector(".wider").disabled = wanted.width === WIDTHS.at(-1);
      },
    });
  }

  #make(wanted) {
    const { key } = wanted, panel = new Panel({ context: this.#context, saved: this.#saved.find(({ name }) => name === wanted.query), wanted, range: this.#range });
    this.#shown.set(key, panel);
    const item = h("li", { class: "card panel" }, this.#tools(wanted), panel.element, h("i", { class: "edge", hidden: true, "aria-hidden": "true", on: { pointerdown: (event) => this.#resize(event, key, item) } }));
    item.addEventListener("dragover", (event) => { if (this.#dragged !== null) event.preventDefault(); });
    item.addEventListener("dragenter", () => { if (this.#dragged !== null && this.#dragged !== key) this.#move(this.#dragged, this.#panels.findIndex((each) => each.key === key)); });
    item.addEventListener("drop", (event) => event.preventDefault());
    return item;
  }

  #now = (key) => this.#panels.find((panel) => panel.key === key);
  #at = (key) => this.#panels.findIndex((panel) => panel.key === key);

  #tools(wanted) {
    const { key, query } = wanted, id = `panel-${key}`;
    const button = (name, words, label, act) => h("button", { type: "button", class: name, "aria-label": `${label} (${query})`, title: label, on: { click: act } }, words);
    const widen = (by) => { const width = this.#now(key).width + by; this.#change(key, { width }, `${width} of 4 columns wide`); };
    const grip = h("button", { type: "button", class: "grip", draggable: "true", "aria-label": `Move ${query}: arrow keys`, title: "Drag, or arrow keys", on: {
      dragstart: (event) => { this.#dragged = key; event.dataTransfer.effectAllowed = "move"; event.dataTransfer.setData("text/plain", query); },
      dragend: () => { this.#dragged = null; },
      keydown: (event) => {
        const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (!by) return;
        event.preventDefault();
        this.#move(key, this.#at(key) + by);
      } } }, "⠿");
    const kind = h("select", { id: `${id}-kind`, on: { change: () => this.#change(key, { kind: kind.value }) } }), range = h("select", { id: `${id}-range`, on: { change: () => this.#change(key, { range: range.value || null }) } });
    options(kind, KINDS);
    kind.value = wanted.kind;
    options(range, ["", ...new Set([...RANGES, wanted.range].filter(Boolean))], { label: (each) => (each ? inWords(each) : "the board's time") });
    range.value = wanted.range ?? "";
    const title = h("input", { id: `${id}-title`, value: wanted.title, placeholder: query, on: { input: () => this.#change(key, { title: title.value }) } });
    const named = (words, input) => [h("label", { class: "unseen", for: input.id }, `${words} of ${query}`), input];
    return h("div", { class: "tools", role: "group", "aria-label": `Panel ${query}`, hidden: true },
      h("div", {}, grip, button("earlier", "←", "Move earlier", () => this.#move(key, this.#at(key) - 1)), button("later", "→", "Move later", () => this.#move(key, this.#at(key) + 1)),
        button("narrower", "−", "Narrower", () => widen(-1)), h("span", { class: "width quiet" }), button("wider", "+", "Wider", () => widen(1)),
        h("button", { type: "button", class: "plain remove", "aria-label": `Remove ${query}`, title: "Remove", on: { click: () => this.#remove(key) } }, icon("close"))),
      h("div", {}, named("Title", title), named("Kind", kind), named("Time", range)));
  }

  // The right edge follows the pointer in steps of a column.
  #resize(event, key, item) {
    event.preventDefault();
    const edge = event.target, column = this.#place.grid.clientWidth / WIDTHS.length, { left } = item.getBoundingClientRect();
    edge.setPointerCapture(event.pointerId);
    const drag = ({ clientX }) => {
      const width = Math.max(WIDTHS[0], Math.min(WIDTHS.at(-1), Math.round((clientX - left) / column)));
      if (width !== this.#now(key).width) this.#change(key, { width }, `${width} of 4 columns wide`);
    };
    const end = () => edge.removeEventListener("pointermove", drag);
    edge.addEventListener("pointermove", drag);
    edge.addEventListener("pointerup", end, { once: true });
    edge.addEventListener("pointercancel", end, { once: true });
  }

  // The wall: nothing but the board. `?wall=1` is the same in a window, for browsers that start in kiosk mode.

  async #fullScreen() {
    this.#wall(true);
    await document.documentElement.requestFullscreen?.().catch(() => {});
  }

  #leaveWall() {
    if (document.fullscreenElement) document.exitFullscreen();
    this.#wall(false);
  }

  #wall(isWall) {
    document.body.classList.toggle("wall", isWall);
    this.#context.set({ wall: isWall ? "1" : null });
    this.#place.leaveWall.hidden = !isWall;
    this.#place.wallButton.hidden = isWall;
    this.#place.editButton.hidden = isWall || this.#isEditing;
    if (isWall && this.#isEditing) this.#discard();
    for (const panel of this.#shown.values()) panel.setWall(isWall);
    // A screen that nobody touches would go dark.
    if (isWall) this.#lock ??= navigator.wakeLock?.request("screen").catch(() => null) ?? null;
    else { this.#lock?.then((lock) => lock?.release()); this.#lock = null; }
  }
}
