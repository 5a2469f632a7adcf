// A field for a sentence of the query language: coloured words, completion, and the error under the word it is about.
// The coloured text lies under the field, letter for letter; the field itself stays a plain <textarea>.

import { isAbort } from "./api.js";
import { h, text } from "./dom.js";
import { characters, units, words } from "./sentence.js";

const WAIT_MS = 90;
const KINDS = { keyword: "keyword", meter: "meter", metric: "metric", label: "label", function: "function", value: "value" };

// const field = editor({ id: "q", words: (q, at, signal) => answer of /v1/query/words, onAsk, onChange })
export function editor({ id, label, words: complete, onAsk, onChange = () => {} }) {
  const paint = h("pre", { class: "paint", "aria-hidden": "true" }), said = h("p", { class: "unseen", "aria-live": "polite" });
  const choices = h("ul", { id: `${id}-words`, class: "words", role: "listbox", "aria-label": "Completions", hidden: true });
  const wrong = h("div", { id: `${id}-wrong`, class: "wrong", role: "alert", hidden: true });
  const area = h("textarea", { id, rows: 2, spellcheck: "false", autocomplete: "off", autocapitalize: "off", autocorrect: "off", "aria-autocomplete": "list", "aria-controls": choices.id, "aria-describedby": `${id}-help ${id}-wrong`,
    on: { input: typed, keydown: key, blur: () => close(), click: () => close(), scroll: () => { paint.scrollTop = area.scrollTop; } } });
  const element = h("div", { class: "field editor" }, h("label", { for: id }, label), h("div", { class: "paper" }, paint, area, choices), wrong, said,
    h("p", { id: `${id}-help`, class: "quiet" }, "Enter asks, Shift+Enter breaks the line, Ctrl+Space shows what can come here."));
  let found = { from: 0, to: 0, words: [] }, active = -1, timer = 0, asking = null, error = null;
  draw();
  return { element, area, get value() { return area.value; }, set, fail, focus: () => area.focus() };

  function set(sentence) {
    area.value = sentence;
    fail(null);
    close();
    draw();
  }

  // `problem` has `message`, and `position` where the server knows it.
  function fail(problem) {
    error = problem;
    wrong.hidden = !problem;
    area.setAttribute("aria-invalid", String(Boolean(problem)));
    wrong.replaceChildren(...(problem ? [h("p", {}, problem.message)] : []));
    draw();
  }

  function draw() {
    const at = (error?.position ?? null) === null ? null : units(area.value, error.position), all = words(area.value);
    const isWrong = (word, index) => at !== null && word.at <= at && (at < word.at + word.text.length || index === all.length - 1) && word.text.trim() !== "";
    paint.replaceChildren(...all.map((word, index) => h("span", { class: `${word.kind}${isWrong(word, index) ? " at-fault" : ""}` }, word.text)),
      at !== null && (at >= area.value.trimEnd().length) ? h("span", { class: "at-fault" }, " ") : "", "\n");
  }

  function typed() {
    if (error) fail(null);
    draw();
    onChange();
    clearTimeout(timer);
    timer = setTimeout(suggest, WAIT_MS);
  }

  async function suggest() {
    asking?.abort();
    asking = new AbortController();
    const { value, selectionStart: at } = area;
    try {
      const answer = await complete(value, characters(value, at), asking.signal);
      if (document.activeElement !== area || area.value !== value || area.selectionStart !== at) return;
      const [from, to] = [answer.from, answer.to].map((count) => units(value, count)), typedSoFar = value.slice(from, at);
      // Nothing to choose if the only word is already there.
      open({ from, to, words: answer.words.filter((word) => word.text !== typedSoFar) });
    } catch (problem) {
      if (!isAbort(problem)) close();
    }
  }

  function open(answer) {
    found = answer;
    active = -1;
    if (!found.words.length) return close();
    choices.replaceChildren(...found.words.map((word, index) => h("li", { id: `${id}-word-${index}`, role: "option", "aria-selected": "false",
      on: { pointerdown: (event) => { event.preventDefault(); take(index); } } },
    h("span", { class: "name" }, word.text), h("span", { class: "quiet" }, [KINDS[word.kind] ?? word.kind, word.note].filter(Boolean).join(", ")))));
    choices.hidden = false;
    place();
    text(said, `${found.words.length === 1 ? "1 completion" : `${found.words.length} completions`}, arrow down to choose`);
  }

  // Under the beginning of the word that it completes.
  function place() {
    const range = document.createRange(), before = paint.textContent.slice(0, found.from).length;
    let rest = before, node = null;
    for (const span of paint.querySelectorAll("span")) {
      if (rest <= span.textContent.length) { node = span.firstChild; break; }
      rest -= span.textContent.length;
    }
    const box = paint.getBoundingClientRect();
    let left = 0, bottom = box.height;
    if (node) {
      range.setStart(node, Math.min(rest, node.length));
      const spot = range.getBoundingClientRect();
      [left, bottom] = [spot.left - box.left, spot.bottom - box.top];
    }
    choices.style.left = `${Math.max(0, Math.min(left, box.width - choices.offsetWidth))}px`;
    choices.style.top = `${bottom + 4}px`;
  }

  function close() {
    clearTimeout(timer);
    asking?.abort();
    choices.hidden = true;
    active = -1;
    area.removeAttribute("aria-activedescendant");
    text(said, "");
  }

  function move(to) {
    active = (to + found.words.length) % found.words.length;
    [...choices.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === active)));
    area.setAttribute("aria-activedescendant", choices.children[active].id);
    choices.children[active].scrollIntoView({ block: "nearest" });
  }

  function take(index) {
    const { text: word, kind } = found.words[index], after = area.value.slice(found.to);
    const gap = kind === "keyword" || kind === "meter" || kind === "metric" ? (/^\s/.test(after) ? "" : " ") : "";
    area.setRangeText(word + gap, found.from, found.to, "end");
    close();
    draw();
    onChange();
    if (gap) timer = setTimeout(suggest, WAIT_MS);
  }

  function key(event) {
    const isOpen = !choices.hidden;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      suggest();
    } else if (isOpen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      move(event.key === "ArrowDown" ? active + 1 : active < 0 ? -1 : active - 1);
    } else if (isOpen && active >= 0 && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      take(active);
    } else if (isOpen && event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      close();
      onAsk();
    }
  }
}
