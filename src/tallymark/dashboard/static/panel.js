// One saved query on a board. It keeps itself up to date, and says so if it cannot.

import { isAbort, Problem } from "./api.js";
import { answerView } from "./answer.js";
import { h, text } from "./dom.js";
import { inWords, lengthMs } from "./range.js";

const SOONEST_MS = 5000, LATEST_MS = 60_000, PARTS = 6;
const HEIGHT = 13, WALL_HEIGHT = 17;

export class Panel {
  #context; #saved; #wanted; #range; #asked = null; #askedMs = -Infinity; #answer = null; #view = null; #title; #time; #problem; #link; #body; #isWall = false;

  // `saved` is the saved query, undefined if it is gone.
  constructor({ context, saved, wanted, range }) {
    this.#context = context;
    this.#saved = saved;
    this.#range = range;
    this.#title = h("h2");
    this.#time = h("span", { class: "quiet" });
    this.#link = h("a", { href: context.link("/ask", saved ? { q: saved.q, name: saved.name } : {}), class: "quiet", "aria-label": `Ask about ${wanted.query}`, hidden: !saved }, "Ask");
    this.#problem = h("p", { class: "wrong", role: "status", hidden: true });
    this.#body = h("div");
    this.element = h("div", { class: "panel-body" }, h("div", { class: "row" }, this.#title, h("span", { class: "choose" }, this.#time, this.#link)), this.#problem, this.#body);
    this.set(wanted);
  }

  leave() {
    this.#asked?.abort();
    this.#view?.destroy();
  }

  // Only what changed is asked or drawn again.
  set(wanted) {
    const before = this.#wanted;
    this.#wanted = wanted;
    text(this.#title, wanted.title || this.#saved?.title || wanted.query);
    text(this.#time, inWords(wanted.range ?? this.#range));
    if (!this.#saved) return this.#fail(`The saved query ${wanted.query} is gone. Save one under this name again, or remove the panel.`);
    if (before?.kind !== wanted.kind) this.#rebuild();
    if (!before || before.range !== wanted.range) this.#ask();
  }

  setDefault(range) {
    this.#range = range;
    text(this.#time, inWords(this.#wanted.range ?? range));
    if (this.#saved && !this.#wanted.range) this.#ask();
  }

  setWall(isWall) {
    if (this.#isWall === isWall) return;
    this.#isWall = isWall;
    if (this.#saved) this.#rebuild();
  }

  refreshIfDue() {
    const every = Math.max(SOONEST_MS, Math.min(LATEST_MS, (lengthMs(this.#saved?.window) ?? SOONEST_MS) / PARTS));
    if (this.#saved && performance.now() - this.#askedMs > every) this.#ask();
  }

  #rebuild() {
    this.#view?.destroy();
    this.#view = answerView({ label: this.#title.textContent, height: this.#isWall ? WALL_HEIGHT : HEIGHT, isLatestOnly: true });
    this.#body.replaceChildren(this.#view.element);
    this.#draw();
  }

  #draw() {
    if (this.#answer) this.#view.show(this.#answer, { kind: this.#wanted.kind });
  }

  async #ask() {
    this.#asked?.abort();
    const asked = new AbortController();
    this.#asked = asked;
    this.#askedMs = performance.now();
    try {
      const from = `-${this.#wanted.range ?? this.#range}`;
      this.#answer = await this.#context.ask(`/v1/queries/${encodeURIComponent(this.#saved.name)}/series`, { parameters: { from }, signal: asked.signal });
      this.#fail("");
      this.#draw();
    } catch (error) {
      if (isAbort(error)) return;
      const next = error instanceof Problem && error.status < 500 ? "" : " It tries again by itself.";
      this.#fail(`${error.message}.${next}${this.#answer ? " These are the numbers of before." : ""}`);
    }
  }

  #fail(words) {
    this.#problem.hidden = !words;
    text(this.#problem, words);
    this.#body.classList.toggle("old", Boolean(words));
  }
}
