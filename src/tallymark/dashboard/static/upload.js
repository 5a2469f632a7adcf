// A file of rows before it is sent: its first rows, its columns, and what the server says is wrong with which line.

import { isAbort, Problem } from "./api.js";
import { field } from "./dialogs.js";
import { h, options, text } from "./dom.js";
import { bytes, integer, NONE, plural } from "./format.js";
import { icon } from "./icons.js";

const LOOK_BYTES = 64_000;
const MOST_ROWS = 5;
const TYPES = { csv: "text/csv", json: "application/json", ndjson: "application/x-ndjson" };
const ENDINGS = { csv: "csv", json: "json", ndjson: "ndjson", jsonl: "ndjson" };
// Not columns: since when a row holds, and that it ends then.
const OF_THE_ROW = ["from", "deleted"];

// uploadForm({ context, table }) → element. `table` is the definition of one that exists, null for a new one.
export function uploadForm({ context, table = null, onDone }) {
  const state = { file: null, form: null };
  const input = h("input", { id: "file", type: "file", accept: ".csv,.json,.ndjson,.jsonl,text/csv,application/json", on: { change: () => take(input.files[0]) } });
  const name = field("Name of the table", h("input", { id: "table-name", value: table?.name ?? "", autocomplete: "off", spellcheck: "false" }), { help: "Questions call it that: by=videos.channel" });
  const key = field("Key column", h("select", { id: "key" }), { help: "Called like the label of a meter that it explains." });
  const whole = h("input", { id: "whole", type: "radio", name: "how", value: "PUT", checked: table === null }), some = h("input", { id: "some", type: "radio", name: "how", value: "PATCH", checked: table !== null });
  const how = h("fieldset", { class: "choose", hidden: table === null }, h("legend", { class: "unseen" }, "How"), h("span", {}, some, " ", h("label", { for: "some" }, "add and change these rows")), h("span", {}, whole, " ", h("label", { for: "whole" }, "replace the whole table")));
  const preview = h("div", { class: "preview", hidden: true }), result = h("div", { "aria-live": "polite" }), send = h("button", { type: "submit", class: "primary", id: "upload", disabled: true }, "Upload");
  name.element.hidden = table !== null;
  const drop = h("div", { class: "drop", on: {
    dragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, dragleave: () => drop.classList.remove("over"),
    drop: (event) => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files[0]); } } },
  h("label", { for: "file" }, icon("download"), " Choose a CSV, JSON or NDJSON file"), input, h("span", { class: "quiet" }, "or drop it here"));
  const more = h("div", { class: "fields", hidden: true }, name.element, key.element);
  return h("form", { class: "upload", on: { submit: (event) => { event.preventDefault(); upload(); } } }, drop, preview, more, how, h("div", { class: "actions" }, send), result);

  async function take(file) {
    if (!file) return;
    state.file = file;
    result.replaceChildren();
    const start = await file.slice(0, LOOK_BYTES).text();
    try {
      state.form = formOf(file, start);
      // An array ends with its last character, so it is read whole.
      const isAll = state.form === "json" || file.size <= LOOK_BYTES, rows = look(state.form, state.form === "json" ? await file.text() : start, isAll);
      show(file, rows, isAll);
    } catch (error) {
      state.file = null;
      preview.hidden = more.hidden = true;
      send.disabled = true;
      result.replaceChildren(h("p", { class: "wrong", role: "alert" }, `${file.name} cannot be read: ${error.message}`));
    }
  }

  function show(file, rows, isAll) {
    const columns = [...new Set(rows.slice(0, 100).flatMap(Object.keys))];
    if (!table && !name.input.value) name.input.value = file.name.replace(/\.[^.]*$/, "").toLowerCase().replace(/[^a-z0-9_]+/g, "_").replace(/^[^a-z]+/, "").slice(0, 63);
    const choices = columns.filter((column) => !OF_THE_ROW.includes(column));
    options(key.input, choices, { preferred: [table?.key, "key", "id", choices.find((column) => labels(context).includes(column))].filter(Boolean).reverse() });
    if (table) key.input.value = table.key;
    key.input.disabled = table !== null;
    preview.replaceChildren(h("p", { class: "quiet" }, `${file.name}: ${bytes(file.size)}, ${isAll ? "" : "over "}${plural(rows.length, "row")}. The first ${Math.min(MOST_ROWS, rows.length)}:`),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "First rows of the file" }, h("table", { class: "table" }, h("caption", { class: "unseen" }, "First rows of the file"),
        h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))),
        h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, columns.map((column) => h("td", {}, cell(row[column])))))))));
    preview.hidden = more.hidden = false;
    send.disabled = false;
  }

  async function upload() {
    if (!state.file) return;
    send.disabled = true;
    text(send, "Uploading …");
    for (const each of [name, key]) each.fail(null);
    result.replaceChildren();
    const method = table && some.checked ? "PATCH" : "PUT";
    try {
      const done = await context.ask(`/v1/tables/${encodeURIComponent(name.input.value || " ")}`, { method, type: TYPES[state.form], body: state.file, parameters: method === "PUT" ? { key: key.input.value } : {} });
      result.replaceChildren(h("p", { class: "note", role: "status" }, `${done.name} has ${plural(done.rows, "row")}: ${integer(done.added)} added, ${integer(done.changed)} changed, ${integer(done.unchanged)} as before, ${integer(done.deleted)} ended. `, done.note ?? "", " ",
        table ? null : h("a", { href: context.link(`/tables/${encodeURIComponent(done.name)}`) }, "Look at it")));
      onDone(done);
    } catch (error) {
      if (isAbort(error)) return;
      const at = { bad_name: name, reserved: name, missing_key: key, bad_key: key }[error.code];
      if (at && !error.errors) at.fail(error.message);
      else result.replaceChildren(error instanceof Problem ? mistakes(error) : context.failed(error));
    }
    text(send, "Upload");
    send.disabled = false;
  }
}

const labels = ({ status, tenant }) => (status?.meters ?? []).filter((meter) => meter.tenant === tenant).flatMap((meter) => meter.labels);

function mistakes(error) {
  const found = error.errors ?? [];
  return h("div", { class: "problem", role: "alert" }, icon("warning"), h("div", {}, found.length ? h("ul", { class: "mistakes" }, found.map(({ detail }) => h("li", {}, detail))) : h("p", {}, error.message), h("p", {}, "Nothing was changed.")));
}

const cell = (value) => (value === null || value === undefined || value === "" ? NONE : typeof value === "object" ? JSON.stringify(value) : String(value));

function formOf(file, start) {
  const ending = ENDINGS[file.name.split(".").pop().toLowerCase()], first = start.trimStart()[0];
  if (ending === "json" && first === "{") return "ndjson";
  if (ending) return ending;
  return first === "[" ? "json" : first === "{" ? "ndjson" : "csv";
}

// What it begins with; the server reads the whole, and has the last word.
function look(form, start, isAll) {
  const found = form === "csv" ? csv(start, isAll) : form === "json" ? array(start) : lines(start, isAll);
  if (!found.some((row) => Object.keys(row).length)) throw new Error("it has no rows");
  return found;
}

function lines(start, isAll) {
  const all = start.split("\n").filter((line) => line.trim());
  return (isAll ? all : all.slice(0, -1)).map((line, at) => {
    try {
      return Object(JSON.parse(line));
    } catch {
      throw new Error(`line ${at + 1} is not JSON`);
    }
  });
}

function array(whole) {
  const found = JSON.parse(whole);
  if (!Array.isArray(found)) throw new Error("it is not an array of objects");
  return found.map(Object);
}

// RFC 4180: quotes hold commas, line breaks and doubled quotes.
function csv(start, isAll) {
  const records = [[""]];
  let isQuoted = false;
  for (const character of start.replace(/^\uFEFF/, "").replaceAll("\r\n", "\n")) {
    const record = records.at(-1), last = record.length - 1;
    if (character === '"') {
      if (!isQuoted && record[last] !== "" && record.wasQuoted) record[last] += '"';
      isQuoted = !isQuoted;
      record.wasQuoted = true;
    } else if (isQuoted) record[last] += character;
    else if (character === ",") { record.push(""); record.wasQuoted = false; } else if (character === "\n") records.push([""]);
    else record[last] += character;
  }
  if (!isAll) records.pop();
  const [head, ...body] = records.filter((record) => record.length > 1 || record[0] !== "");
  if (!head) throw new Error("it is empty");
  return body.map((record) => Object.fromEntries(head.map((column, at) => [column, record[at] ?? ""])));
}
