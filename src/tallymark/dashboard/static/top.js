// The largest series as a table with bars.

import { h, rows, text } from "./dom.js";
import { dayAndTime, figure, label, percent } from "./format.js";

// const top = topTable({ id }); card.append(top.note, top.element); top.show(answer, { key, fn })
export function topTable({ id, caption = "The largest series", onKey = null }) {
  const keyHead = h("th", { scope: "col" }), valueHead = h("th", { scope: "col", class: "value" }), changeHead = h("th", { scope: "col", class: "value" }, "change"), body = h("tbody");
  const note = h("p", { id: `${id}-note`, class: "quiet", role: "status" });
  const element = h("table", { id, class: "top", hidden: true }, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "rank" }, "#"), keyHead, valueHead, changeHead, h("th", { scope: "col", class: "bars" }, h("span", { class: "unseen" }, "share of the largest")))), body);
  return { element, note, show, hide };

  function hide(words = "") {
    element.hidden = true;
    text(note, words);
  }

  function show(answer, { key, fn, broken = null }) {
    text(keyHead, key);
    text(valueHead, fn);
    text(note, broken ? `this meter is broken: ${broken}` : answer.items.length ? lacking(fn, answer) : "Nothing was counted in this time.");
    element.hidden = !answer.items.length;
    const withChange = answer.items.some((item) => item.change);
    element.classList.toggle("with-change", withChange);
    changeHead.hidden = !withChange;
    const largest = Math.max(...answer.items.map((item) => Math.abs(item.value[fn] ?? 0)), Number.MIN_VALUE);
    const found = answer.items.map((item, index) => ({
      rank: index + 1, name: item.labels[key] ?? "", value: figure(item.value[fn], { fn, decimals: answer.decimals }),
      share: (100 * Math.abs(item.value[fn] ?? 0)) / largest, change: withChange ? item.change?.[fn]?.percent ?? null : undefined,
    }));
    rows(body, found, (each) => row(each));
  }

  function row({ rank, name, value, share, change }) {
    const bar = h("i", { class: "share" });
    bar.style.width = `${share}%`;
    const shown = onKey ? h("button", { type: "button", class: "link", title: `Only ${label(name)}`, on: { click: () => onKey(name) } }, label(name)) : label(name);
    return h("tr", {}, h("td", { class: "rank" }, rank), h("td", { class: name === "" ? "name empty-label" : "name", title: name }, shown), h("td", { class: "value" }, value),
      h("td", { class: `value change ${change > 0 ? "up" : change < 0 ? "down" : ""}`, hidden: change === undefined }, percent(change)), h("td", { class: "bars" }, bar));
  }
}

// Why a row has no value, if the meter did not compute it from the beginning.
function lacking(fn, { since }) {
  if (!since || !(fn in since)) return "";
  return `${fn} has been computed ${since[fn] ? `since ${dayAndTime(since[fn])}` : "from a later version on"}; – is a key that was also counted before. Choose a shorter time.`;
}
