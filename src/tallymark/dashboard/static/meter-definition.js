// The definition of a meter that exists: shown, changed with a word on what becomes of its numbers, or deleted with a warning.

import { definitionForm, KEYS } from "./definition.js";
import { command, h, text } from "./dom.js";
import { plural } from "./format.js";
import { curl } from "./tenants.js";

const pathOf = ({ name }) => `/v1/meters/${encodeURIComponent(name)}`;

export function definitionPart(meter, context) {
  const definition = Object.fromEntries(KEYS.filter((key) => meter[key] !== undefined).map((key) => [key, meter[key]]));
  const part = h("section", { class: "card wide", id: "definition-part", "aria-labelledby": "definition-title", tabindex: -1 }, h("h2", { id: "definition-title" }, "Definition"));
  const asFile = h("details", { class: "data" }, h("summary", {}, "As JSON, and its numbers with curl"), h("pre", { class: "json", tabindex: 0 }, JSON.stringify(definition, null, 2)),
    command(curl(context.tenant, `${pathOf(meter)}/series?from=-1h&step=1m`)));
  if (meter.built_in) {
    part.append(h("p", { class: "quiet" }, "This meter is built in: it cannot be changed or deleted."), asFile);
    return part;
  }
  const said = h("p", { class: "said", role: "status", id: "definition-said" });
  const save = h("button", { type: "button", class: "primary", id: "save", disabled: true, on: { click: async () => { if (await form.save()) context.again(); } } }, "Save");
  const undo = h("button", { type: "button", on: { click: () => form.show(definition) } }, "Undo");
  const form = definitionForm({ context, name: meter.name, actions: [save, undo, said], changed: (found) => {
    const isChange = found.ok && found.changes?.length > 0;
    save.disabled = !isChange;
    said.dataset.state = isChange && found.keeps_numbers === false ? "warn" : "";
    text(said, isChange ? consequence(found) : found.ok ? "Nothing is changed." : "");
  } });
  part.append(form.element, asFile);
  form.show(definition);
  return part;
}

function consequence({ changes, keeps_numbers: keeps }) {
  const what = changes.map(({ key }) => key).join(", ");
  return keeps ? `Changes ${what}; the numbers so far stay.` : `Changes ${what}: the new version begins at zero, and answers cover only it.`;
}

export async function askToDelete(meter, context) {
  const { name, series } = meter, wrong = h("p", { class: "wrong", role: "alert" });
  const [total, used] = await Promise.all([
    context.ask(`${pathOf(meter)}/total`, { parameters: { fn: "count" } }).catch(() => null),
    context.ask("/v1/queries").then(({ queries }) => queries.filter((query) => query.meter === name).map((query) => query.name)).catch(() => []),
  ]);
  const remove = h("button", { type: "button", class: "danger", on: { click: async () => {
    try {
      await context.ask(pathOf(meter), { method: "DELETE" });
      dialog.close();
      context.go("/meters");
    } catch (error) {
      text(wrong, error.message);
    }
  } } }, `Delete ${name}`);
  const dialog = h("dialog", { id: "delete", "aria-labelledby": "delete-title", on: { close: () => dialog.remove() } }, h("h2", { id: "delete-title" }, `Delete the meter ${name}?`),
    h("p", {}, `What is lost: ${total ? `the counts of ${plural(total.value.count, "event")}` : "its counts"}${series ? ` in ${plural(series, "series", "series")}` : ""} can no longer be asked for, and it stops counting. A meter of the same name would begin at zero.`),
    used.length ? h("p", {}, `These saved queries ask it and stop working: ${used.join(", ")}.`) : null,
    h("p", { class: "quiet" }, "Events stay in the log, and other meters go on."), wrong,
    h("div", { class: "actions" }, remove, h("button", { type: "button", autofocus: true, on: { click: () => dialog.close() } }, "Keep it")));
  document.body.append(dialog);
  dialog.showModal();
}
