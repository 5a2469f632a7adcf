// A meter's definition as a form: what is wrong with it stands under the field, as the server's checker says.

import { isAbort, Problem } from "./api.js";
import { h, text } from "./dom.js";

const CHECK_AFTER_MS = 250;
const words = (given) => given.split(",").map((word) => word.trim()).filter(Boolean);
const one = (found) => (found.length === 1 ? found[0] : found);

// key, label, what to write there, and how the text becomes the value of the key and back.
const FIELDS = [
  { key: "name", label: "Name", hint: "a lower-case letter, then a-z, 0-9 and _", read: (given) => given.trim() },
  { key: "event", label: "Event", hint: "the event to count; several with commas", read: (given) => one(words(given)), show: (value) => [value].flat().join(", ") },
  { key: "by", label: "By", hint: "properties to group by: video, country", read: words, show: (value) => [value].flat().join(", ") },
  { key: "compute", label: "Compute", hint: "count, sum, min, max, avg, last, rate, distinct, p50, p99", read: words, show: (value) => [value].flat().join(", ") },
  { key: "value", label: "Value", hint: "the property with the number; empty: the event's own value", read: (given) => given.trim() },
  { key: "where", label: "Where", hint: "only these events: status = 'ok' and ms > 250", read: (given) => given.trim() },
];
const MORE = [
  { key: "distinct", label: "Distinct", hint: "the property whose different values are counted", read: (given) => given.trim() },
  { key: "decimals", label: "Decimals", hint: "0 to 9: exact sums, for money", read: (given) => number(given) },
  { key: "grain", label: "Grain", hint: "the finest step that is kept: 1s, 10s or 1m", read: (given) => given.trim() },
  { key: "max_series", label: "Most series", hint: "further ones count under __other__", read: (given) => number(given) },
  { key: "each", label: "Each", hint: "values: every named number of the event apart", read: (given) => given.trim() },
  { key: "weights", label: "Weights", hint: "what each event counts as: view=1, like=3", read: weights, show: (value) => Object.entries(value).map(([event, weight]) => `${event}=${weight}`).join(", ") },
  { key: "late", label: "Late", hint: "when late, and then count, aside or drop: 1h aside", read: late, show: (value) => `${value.after} ${value.then}` },
];
const ALL = [...FIELDS, ...MORE];

// What is no number goes to the server as it is, so that its checker says so.
function number(given) {
  const found = given.trim();
  return /^-?\d+(\.\d+)?$/.test(found) ? Number(found) : found;
}

function weights(given) {
  return Object.fromEntries(words(given).map((part) => { const [event, weight = ""] = part.split("="); return [event.trim(), number(weight)]; }));
}

function late(given) {
  const [after = "", then] = given.trim().split(/\s+/);
  return then === undefined ? { after } : { after, then };
}

// `by[1]` is a flaw of by; a key that is missing has no place, but its name in the words.
function fieldOf({ field, path, code, detail = "" }) {
  return (field || path || "").match(/^\w+/)?.[0] ?? (code === "missing_key" ? detail.match(/^no '(\w+)'/)?.[1] : undefined) ?? "";
}

export const KEYS = ALL.map(({ key }) => key);

// form({ context, name, changed }) → { element, show(definition), read(), check() → the checker's answer, wrong(errors), isBusy }
// `name` is given for a meter that exists: it cannot be changed.
export function definitionForm({ context, name = null, id = "definition", changed = () => {}, actions = [] }) {
  const inputs = new Map(), notes = new Map(), other = h("p", { class: "wrong", role: "alert", hidden: true });
  let timer = 0, asked = null, isOld = false;
  const field = ({ key, label, hint }) => {
    const input = key === "where" ? h("textarea", { id: `${id}-${key}`, rows: 2, spellcheck: "false" }) : h("input", { id: `${id}-${key}`, type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    const note = h("p", { id: `${id}-${key}-wrong`, class: "wrong", hidden: true });
    input.setAttribute("aria-describedby", `${id}-${key}-hint ${id}-${key}-wrong`);
    if (key === "name" && name !== null) input.readOnly = true;
    inputs.set(key, input);
    notes.set(key, note);
    return h("div", { class: `field field-${key}` }, h("label", { for: input.id }, label), input, note, h("p", { id: `${id}-${key}-hint`, class: "quiet" }, hint));
  };
  const more = h("details", { class: "more-fields" }, h("summary", {}, "More: distinct, money, grain, weights, late events"), h("div", { class: "fields" }, ...MORE.map(field)));
  const element = h("form", { class: "definition", id, on: { submit: (event) => event.preventDefault(), input: () => { clearTimeout(timer); timer = setTimeout(() => check(), CHECK_AFTER_MS); } } },
    h("div", { class: "fields" }, ...FIELDS.map(field)), more, other, h("div", { class: "actions" }, ...actions));

  function show(definition, { isChecked = true } = {}) {
    for (const { key, show: shown = String } of ALL) inputs.get(key).value = definition[key] === undefined || definition[key] === null ? "" : shown(definition[key]);
    more.open = MORE.some(({ key }) => inputs.get(key).value !== "");
    if (isChecked) check();
  }

  function read() {
    const given = ALL.filter(({ key }) => inputs.get(key).value.trim() !== "");
    return Object.fromEntries(given.map(({ key, read: value }) => [key, value(inputs.get(key).value)]));
  }

  // Marks what is wrong; a flaw of no field stands below all.
  function wrong(errors) {
    const by = Map.groupBy(errors, fieldOf);
    for (const { key } of ALL) {
      const found = by.get(key) ?? [];
      text(notes.get(key), found.map(({ detail }) => detail).join("; "));
      notes.get(key).hidden = !found.length;
      if (found.length) inputs.get(key).setAttribute("aria-invalid", "true");
      else inputs.get(key).removeAttribute("aria-invalid");
      if (found.length && MORE.some((each) => each.key === key)) more.open = true;
    }
    const rest = errors.filter((error) => !KEYS.includes(fieldOf(error)));
    text(other, rest.map(({ detail }) => detail).join("; "));
    other.hidden = !rest.length;
  }

  async function check() {
    clearTimeout(timer);
    asked?.abort();
    asked = new AbortController();
    try {
      const found = await context.ask("/v1/meters/check", { method: "POST", body: read(), signal: asked.signal });
      wrong(found.ok ? [] : found.errors);
      changed(found);
      return found;
    } catch (error) {
      if (isAbort(error)) return null;
      if (error instanceof Problem && error.status === 404 && !isOld) isOld = true; // an older server checks when it saves
      else if (!isOld) wrong([{ detail: error.message }]);
      return null;
    }
  }

  // → the meter, or null after saying what is wrong.
  async function save() {
    const definition = read();
    try {
      return await context.ask(`/v1/meters/${encodeURIComponent(name ?? definition.name ?? "")}`, { method: "PUT", body: definition });
    } catch (error) {
      if (!isAbort(error)) wrong(error.errors ?? [{ detail: error.message, field: error.code === "built_in" ? "name" : undefined }]);
      return null;
    }
  }

  return { element, show, read, check, save, wrong };
}

// "counts view by video and country where …"
export function inASentence(meter) {
  const events = meter.weights ? Object.entries(meter.weights).map(([event, weight]) => `${event} (${weight})`) : [meter.event].flat();
  const what = meter.event === "*" ? "every event" : events.join(", ");
  const by = (meter.by ?? []).length ? ` by ${meter.by.join(", ")}` : "";
  const each = meter.each ? ", each of its values apart" : "", value = meter.value ? `, number: ${meter.value}` : "";
  return `counts ${what}${by}${value}${each}${meter.where ? ` where ${meter.where}` : ""}`;
}
