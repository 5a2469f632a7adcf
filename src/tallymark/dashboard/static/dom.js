// Elements are built from text only: whatever a label says, it is shown and never run.

const SVG = "http://www.w3.org/2000/svg";

// h("p", { class: "quiet", on: { click } }, "text", child, null): null children are left out.
export function h(tag, props = {}, ...children) {
  return fill(dress(document.createElement(tag), props), children);
}

export function svg(tag, props = {}, ...children) {
  return fill(dress(document.createElementNS(SVG, tag), props), children);
}

function dress(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else if (name === "href") element.setAttribute("href", safe(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  return element;
}

function fill(element, children) {
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A link leads to this server or to a file made here; `javascript:` and other people's pages never get in by a label.
function safe(href) {
  if (/^(\/(?!\/)|#|\?|blob:)/.test(href)) return href;
  throw new Error(`not a link of this page: ${href}`);
}

// Only what changed is touched, so that screen readers and selections are left in peace.
export function text(element, words) {
  const wanted = String(words);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// A number in large type that never breaks: the more characters, the smaller.
export function large(element, words) {
  text(element, words);
  element.style.setProperty("--characters", String(words.length));
}

// One child per item: the element of a key is kept and updated, so that focus and animation survive.
export function list(parent, items, { key, make, update = () => {} }) {
  const known = new Map([...parent.children].map((child) => [child.listKey, child]));
  const wanted = items.map((item, index) => {
    const name = String(key(item, index));
    const child = known.get(name) ?? Object.assign(make(item, index), { listKey: name });
    known.delete(name);
    update(child, item, index);
    return child;
  });
  for (const gone of known.values()) gone.remove();
  wanted.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
}

// Rows of text: touched only if one of them changed.
export function rows(body, wanted, make) {
  const print = JSON.stringify(wanted);
  if (body.rowsShown === print) return;
  body.rowsShown = print;
  body.replaceChildren(...wanted.map(make));
}

// The choices of a <select>; what was chosen stays if it is still there. Answers whether they changed.
export function options(select, names, { preferred = [], label = (name) => name } = {}) {
  if ([...select.options].map((option) => option.value).join("\n") === names.join("\n") && select.options.length === names.length) return false;
  const before = select.value;
  select.replaceChildren(...names.map((name) => h("option", { value: name }, label(name))));
  select.value = [before, ...preferred, names[0]].find((name) => names.includes(name)) ?? "";
  return true;
}

// A command to copy.
export function command(words, props = {}) {
  const code = h("code", { ...props, class: `curl ${props.class ?? ""}`.trim() }, words);
  const button = h("button", { type: "button", class: "copy", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      text(button, "Copied");
    } catch {
      getSelection().selectAllChildren(code); // a page without https may not copy by itself
      text(button, "Press Ctrl+C");
    }
    setTimeout(() => text(button, "Copy"), 2000);
  } } }, "Copy");
  return h("div", { class: "command" }, h("pre", { tabindex: 0 }, code), button);
}
