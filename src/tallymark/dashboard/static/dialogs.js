// A question in a dialog: the browser's own <dialog>, which holds the focus and closes on Escape.

import { h } from "./dom.js";

// Shows it and resolves to what `close(…)` was called with, undefined if the person left it.
export function dialog(title, fill) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: "dialog-title" }, title), box = h("dialog", { "aria-labelledby": heading.id });
    let given;
    const close = (value) => { given = value; box.close(); };
    box.append(heading, ...[fill(close)].flat());
    box.addEventListener("close", () => { box.remove(); resolve(given); });
    box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
    document.body.append(box);
    box.showModal();
  });
}

// Resolves to true if the person wants it.
export async function confirm(title, { words, action, isDangerous = true }) {
  return (await dialog(title, (close) => [
    ...[words].flat().map((each) => h("p", {}, each)),
    h("div", { class: "actions" }, h("button", { type: "button", class: isDangerous ? "danger" : "primary", on: { click: () => close(true) } }, action),
      h("button", { type: "button", autofocus: true, on: { click: () => close(false) } }, "Cancel"))])) === true;
}

// <label> and field in one, with a place for what is wrong with it.
export function field(label, input, { help = null } = {}) {
  const wrong = h("p", { id: `${input.id}-wrong`, class: "wrong", role: "alert", hidden: true });
  input.setAttribute("aria-describedby", wrong.id);
  return {
    element: h("div", { class: "field" }, h("label", { for: input.id }, label), input, help ? h("p", { class: "quiet" }, help) : null, wrong), input,
    fail(words) {
      wrong.hidden = !words;
      wrong.textContent = words ?? "";
      input.setAttribute("aria-invalid", String(Boolean(words)));
    },
  };
}

// A page about something that is not there: what the server says, and the way to the others.
export function missing(what, error, { link }, path) {
  return h("section", { class: "card empty" }, h("h1", {}, `There is no such ${what}`), h("p", {}, error.message), h("p", {}, h("a", { href: link(path) }, `Every ${what}`)));
}

// A title as a name: what PUT takes.
export function nameFrom(title) {
  const name = title.trim().normalize("NFKD").replace(/[^A-Za-z0-9_.:-]+/g, "_").replace(/^[^A-Za-z_]+/, "").replace(/_+$/, "").slice(0, 128);
  return name.toLowerCase();
}
