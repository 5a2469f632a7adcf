// A meter from the events that came in the last minutes: what to count is suggested, and its first numbers are shown before it is saved.

import { isAbort, Problem } from "../api.js";
import { definitionForm } from "../definition.js";
import { command, h, large, list, text } from "../dom.js";
import { figure, integer, label, moment, plural } from "../format.js";
import { curlOfFirstEvent, pythonOfFirstEvent } from "../tenants.js";
import { topTable } from "../top.js";

const AGAIN_MS = 3000, PREVIEW_AFTER_MS = 300;
const MOST_BY = 3, FEW = 200;

export default {
  title: "New meter",
  show(root, route, context) {
    const events = h("ul", { class: "seen", id: "seen" }), note = h("p", { class: "quiet", role: "status", id: "seen-note" }, "Looking at the newest events …");
    const empty = h("div", { id: "none-seen", hidden: true }, h("p", {}, "No event came in the last five minutes. Send one, and it appears here:"), command(curlOfFirstEvent(context.tenant)), h("p", {}, "or from Python:"), command(pythonOfFirstEvent(context.tenant)));
    const preview = previewOf(context), said = h("p", { class: "said", role: "status" });
    const save = h("button", { type: "button", class: "primary", id: "save", disabled: true, on: { click: () => store() } }, "Save the meter");
    const form = definitionForm({ context, id: "new", actions: [save, said], changed: (found) => {
      save.disabled = !found.ok;
      const exists = found.ok && found.changes !== null;
      text(said, !exists ? "" : "A meter of this name exists already; saving changes it.");
      preview.show(found.ok ? form.read() : null);
    } });
    const store = async () => {
      const saved = await form.save();
      if (saved) context.go(`/meters/${encodeURIComponent(saved.name)}`);
    };
    root.append(
      h("div", { class: "head" }, h("h1", {}, "New meter"), h("p", { class: "quiet" }, "Choose an event that came lately; what to count is suggested. Nothing is saved before you say so.")),
      h("section", { class: "card wide", "aria-labelledby": "seen-title" }, h("div", { class: "row" }, h("h2", { id: "seen-title" }, "Events of the last five minutes"), note), events, empty),
      h("section", { class: "card", "aria-labelledby": "what-title" }, h("h2", { id: "what-title" }, "What it counts"), form.element),
      preview.element);
    let chosen = route.parameters.get("event"), timer = 0;
    const use = (event) => {
      chosen = event.event;
      context.set({ event: chosen });
      mark();
      form.show(suggestion(event));
    };
    const mark = () => { for (const item of events.children) item.firstChild.setAttribute("aria-pressed", String(item.listKey === chosen)); };
    const look = async () => {
      try {
        const found = await context.ask("/v1/events/seen", { parameters: { minutes: 5 } });
        show(found);
      } catch (error) {
        if (isAbort(error)) return;
        text(note, error.message);
      }
      timer = setTimeout(look, AGAIN_MS);
    };
    let isFilled = false, latest = new Map();
    const show = (found) => {
      const known = found.events;
      empty.hidden = known.length > 0;
      text(note, known.length ? `from ${found.whole === false ? "the newest " : ""}${plural(found.sampled, "event")}` : "");
      latest = new Map(known.map((event) => [event.event, event]));
      list(events, known, { key: ({ event }) => event, make: ({ event }) => card(() => use(latest.get(event))), update: refreshCard });
      mark();
      if (isFilled || !known.length) return;
      isFilled = true;
      use(latest.get(chosen) ?? known[0]);
    };
    form.show({ compute: ["count"] }, { isChecked: false });
    look();
    return () => clearTimeout(timer);
  },
};

function card(chosen) {
  return h("li", {}, h("button", { type: "button", on: { click: chosen } }, h("b"), h("span", { class: "quiet" }), h("span", { class: "props" })));
}

function refreshCard(item, { event, count, last, value, props }) {
  const [name, numbers, properties] = item.firstChild.children;
  text(name, event);
  text(numbers, `${plural(count, "event")}, last at ${moment(last)}${value ? `, value e.g. ${value.example}` : ""}`);
  text(properties, props.map((prop) => prop.name).join(", ") || "no properties");
}

// Properties that most events have and that tell few things apart are labels; a number is worth adding up.
export function suggestion({ event, value, values = [], props }) {
  const by = props.filter(({ share, distinct, types }) => share >= 0.5 && distinct <= FEW && (types.includes("text") || types.includes("boolean"))).sort((a, b) => b.share - a.share || a.distinct - b.distinct).slice(0, MOST_BY).map(({ name }) => name);
  const numbers = props.filter(({ share, types, name }) => share >= 0.5 && types.includes("number") && !by.includes(name));
  const base = { name: nameFor(event), event, ...(by.length ? { by } : {}) };
  if (values.length) return { ...base, each: "values", compute: ["count", "avg", "min", "max"] };
  if (value && value.share >= 0.5) return { ...base, compute: ["count", "sum", "avg", "p50", "p99"] };
  return numbers.length === 1 ? { ...base, value: numbers[0].name, compute: ["count", "sum", "avg", "p50", "p99"] } : { ...base, compute: ["count"] };
}

function nameFor(event) {
  const plain = event.toLowerCase().replace(/[^a-z0-9_]+/g, "_").replace(/^[^a-z]+/, "").slice(0, 60) || "meter";
  return /(s|x|ch|sh|ed)$/.test(plain) ? plain : /[^aeiou]y$/.test(plain) ? `${plain.slice(0, -1)}ies` : `${plain}s`;
}

function previewOf(context) {
  const total = h("p", { class: "huge", id: "preview-total" }, "–"), others = h("dl", { class: "others" }), note = h("p", { class: "quiet", id: "preview-note", role: "status" }, "Fill in what to count, and its first numbers appear here.");
  const top = topTable({ id: "preview-top", caption: "What it would have counted" });
  const element = h("section", { class: "card preview", "aria-labelledby": "preview-title" }, h("h2", { id: "preview-title" }, "Its first numbers"), h("div", { class: "fit" }, total), others, note, top.note, top.element);
  let timer = 0, asked = null;
  const read = async (definition) => {
    asked?.abort();
    asked = new AbortController();
    try {
      const found = await context.ask("/v1/meters/preview", { method: "POST", body: definition, signal: asked.signal });
      const [fn] = Object.keys(found.total);
      large(total, figure(found.total[fn], { fn, decimals: definition.decimals }));
      list(others, Object.keys(found.total).slice(1), { key: (each) => each, make: (each) => h("div", {}, h("dt", {}, each), h("dd")), update: (item, each) => text(item.lastChild, figure(found.total[each], { fn: each, decimals: definition.decimals })) });
      text(note, `${fn} of ${plural(found.events, "matching event")} among ${found.whole === false ? "the newest " : ""}${integer(found.sampled)} of the last ${found.minutes} minutes, in ${plural(found.series, "series", "series")}. Once saved it counts from then on.`);
      const key = Object.keys(found.top[0]?.labels ?? {}).join(" · ");
      if (key) top.show({ items: found.top.map((item) => ({ ...item, labels: { [key]: Object.values(item.labels).map(label).join(" · ") } })) }, { key, fn });
      else top.hide();
    } catch (error) {
      if (isAbort(error)) return;
      text(total, "–");
      top.hide();
      text(note, error instanceof Problem && error.status === 404 ? "This server cannot show a preview." : error.message);
    }
  };
  return {
    element,
    show(definition) {
      clearTimeout(timer);
      if (!definition) return;
      text(note, "Counting the newest events …");
      timer = setTimeout(() => read(definition), PREVIEW_AFTER_MS);
    },
  };
}
