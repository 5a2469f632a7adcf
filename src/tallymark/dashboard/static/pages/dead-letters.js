// What could not be counted: by reason, newest first, with the event as it was sent.

import { isAbort } from "../api.js";
import { command, h, list, options, rows, text } from "../dom.js";
import { bytes, dayAndClock, integer, moment, plural } from "../format.js";
import { MAIN } from "../state.js";
import { curl } from "../tenants.js";

const EVERY_MS = 3000;
const LIMIT = 100;
const LINE_BYTES = 16;
const HOPS = { collector: "refused at the door", pipeline: "accepted, but not counted" };

export default {
  title: "Dead letters",
  show(root, route, context) {
    const page = new DeadLettersPage(root, route, context);
    return () => page.leave();
  },
};

class DeadLettersPage {
  #context; #place = {}; #timer = 0; #asked = null;

  constructor(root, route, context) {
    this.#context = context;
    root.append(this.#head(), this.#none(), this.#reasons(), this.#letters());
    this.#place.wanted = { hop: route.parameters.get("hop") ?? "", reason: route.parameters.get("reason") ?? "" };
    this.#refresh();
  }

  leave() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
  }

  #head() {
    return h("div", { class: "head" }, h("h1", {}, "Dead letters"),
      h("p", { class: "quiet" }, "Events that were refused, or accepted and could not be counted: each is counted by its reason, and the newest are kept as they came."));
  }

  #none() {
    const { tenant } = this.#context;
    this.#place.others = h("p", { hidden: true });
    this.#place.none = h("section", { class: "card empty", id: "no-letters", hidden: true }, h("h2", {}, "No dead letters"),
      h("p", {}, "Every event so far could be counted. To see what one looks like, send an event with a time that is none:"),
      command(`curl '${location.origin}/v1/events${tenant === MAIN ? "" : `?tenant=${tenant}`}' -H 'content-type: application/json' \\\n  -d '{"event": "view", "time": "noon"}'`));
    return this.#place.none;
  }

  #reasons() {
    const body = h("tbody");
    this.#place.counts = body;
    this.#place.problem = h("div");
    this.#place.reasons = h("section", { class: "card wide", "aria-labelledby": "reasons-title", hidden: true }, h("h2", { id: "reasons-title" }, "By reason"), this.#place.others, this.#place.problem,
      h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Reasons" }, h("table", { class: "table wrapped", id: "reasons" }, h("caption", { class: "unseen" }, "How many events each reason has had"),
        h("thead", {}, h("tr", {}, ["reason", "where", "events", "last", "what it means"].map((words) => h("th", { scope: "col", class: words === "events" ? "value" : null }, words)))), body)));
    return this.#place.reasons;
  }

  #letters() {
    const place = this.#place;
    place.hop = h("select", { id: "hop", on: { change: () => this.#choose() } });
    place.reason = h("select", { id: "reason", on: { change: () => this.#choose() } });
    place.list = h("ul", { class: "plain-list", id: "letters" });
    place.note = h("p", { class: "quiet", role: "status" });
    place.letters = h("section", { class: "card wide", "aria-labelledby": "letters-title", hidden: true },
      h("div", { class: "row" }, h("h2", { id: "letters-title" }, "Newest first"),
        h("form", { class: "choose", on: { submit: (event) => event.preventDefault() } }, [["where", place.hop], ["reason", place.reason]].map(([words, select]) => h("span", {}, h("label", { for: select.id }, words), " ", select)))),
      place.note, place.list);
    return place.letters;
  }

  #choose() {
    this.#place.wanted = { hop: this.#place.hop.value, reason: this.#place.reason.value };
    this.#context.set({ hop: this.#place.wanted.hop || null, reason: this.#place.wanted.reason || null });
    this.#refresh();
  }

  async #refresh() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    const asked = new AbortController(), { hop, reason } = this.#place.wanted;
    this.#asked = asked;
    try {
      const [all, some] = await Promise.all([{ limit: 1 }, { hop, reason, limit: LIMIT }].map((parameters) => this.#context.ask("/v1/dlq", { parameters, signal: asked.signal })));
      this.#place.problem.replaceChildren();
      this.#show(all, some);
    } catch (error) {
      if (isAbort(error)) return;
      this.#place.reasons.hidden = false;
      this.#place.problem.replaceChildren(this.#context.failed(error));
    }
    this.#timer = setTimeout(() => this.#refresh(), EVERY_MS);
  }

  #show({ counts, others = {} }, { letters }) {
    const place = this.#place, { wanted } = place;
    place.none.hidden = counts.length > 0;
    place.reasons.hidden = place.letters.hidden = !counts.length;
    place.others.hidden = !Object.keys(others).length;
    text(place.others, `Other tenants have dead letters, too: ${Object.entries(others).map(([tenant, events]) => `${tenant} ${integer(events)}`).join(", ")}.`);
    options(place.hop, ["", ...Object.keys(HOPS)], { label: (name) => (name ? `${name}: ${HOPS[name]}` : "anywhere") });
    options(place.reason, ["", ...new Set([...counts.map(({ reason }) => reason), wanted.reason].filter(Boolean))], { label: (name) => name || "any" });
    Object.assign(place.hop, { value: wanted.hop });
    Object.assign(place.reason, { value: wanted.reason });
    const sorted = [...counts].sort((a, b) => Date.parse(b.last ?? 0) - Date.parse(a.last ?? 0));
    rows(place.counts, sorted, ({ hop, reason, events, last, means }) => h("tr", {},
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", on: { click: () => this.#only(hop, reason) } }, reason)), h("td", {}, hop), h("td", { class: "value" }, integer(events)),
      h("td", {}, last ? moment(last) : ""), h("td", {}, means ?? "")));
    text(place.note, letters.length ? (letters.length === LIMIT ? `The newest ${LIMIT} letters.` : "") : "No letter that is kept fits. The older ones are only counted; choose another reason.");
    list(place.list, letters, { key: ({ id }) => id, make: (letter) => this.#letter(letter) });
  }

  #only(hop, reason) {
    this.#place.wanted = { hop, reason };
    this.#context.set({ hop, reason });
    this.#refresh();
    this.#place.letters.scrollIntoView({ block: "nearest" });
  }

  #letter(letter) {
    const { id, time, hop, reason, events, bytes: size, detail, partition, offset } = letter;
    const place = partition === undefined ? "" : `, partition ${partition}, offset ${integer(offset)}`;
    const content = h("div", { class: "letter" });
    return h("li", {}, h("details", { on: { toggle: (event) => { if (event.target.open && !content.firstChild) this.#read(id, content); } } },
      h("summary", {}, h("span", { class: "chip", data: { hop } }, reason), " ", h("span", {}, detail ?? ""), " ", h("span", { class: "quiet" }, `${dayAndClock(time)} · ${plural(events, "event")} · ${bytes(size)}`)),
      h("p", { class: "quiet" }, `${hop === "collector" ? "The collector refused it" : "The pipeline could not count it"}${place}. Letter ${id}.`), content));
  }

  async #read(id, content) {
    content.replaceChildren(h("p", { class: "quiet" }, "reading …"));
    try {
      const letter = await this.#context.ask(`/v1/dlq/${id}`);
      content.replaceChildren(...raw(letter), command(curl(this.#context.tenant, `/v1/dlq/${id}`)));
    } catch (error) {
      if (!isAbort(error)) content.replaceChildren(this.#context.failed(error));
    }
  }
}

const block = (words, label) => h("pre", { class: "raw", tabindex: 0, role: "region", "aria-label": label }, words);

// As readable as it gets: JSON with line breaks, text as it is, and bytes in hex where they say more.
function raw({ text: sent, rows: events, hex, note, left_out: more, left_out_bytes: moreBytes }) {
  const found = note ? [h("p", {}, `Only this much is known: ${note}.`)] : [];
  if (events) found.push(...events.map((event) => block(JSON.stringify(event, null, 2), "Event")));
  if (sent !== undefined) {
    const pretty = json(sent);
    if (pretty !== null) found.push(block(pretty, "Event as it was sent"));
    else found.push(h("h3", {}, "Text, as it was sent"), block(sent, "Text as it was sent"), h("h3", {}, "Bytes"), block(dump(new TextEncoder().encode(sent)), "Bytes"));
    if (sent.includes("\uFFFD")) found.push(h("p", { class: "quiet" }, "� stands for bytes that are not UTF-8."));
  }
  if (hex) found.push(block(dump(Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16))), "Bytes"));
  if (more) found.push(h("p", { class: "quiet" }, `and ${plural(more, "more event", "more events")}`));
  if (moreBytes) found.push(h("p", { class: "quiet" }, `and ${bytes(moreBytes)} more`));
  return found;
}

function json(sent) {
  try {
    return JSON.stringify(JSON.parse(sent), null, 2);
  } catch {
    return null;
  }
}

// 00000000  7b 22 65 76 …  |{"ev…|
function dump(found) {
  const lines = [];
  for (let at = 0; at < Math.min(found.length, 4096); at += LINE_BYTES) {
    const part = [...found.slice(at, at + LINE_BYTES)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(LINE_BYTES * 3);
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex} |${part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}|`);
  }
  return lines.join("\n");
}
