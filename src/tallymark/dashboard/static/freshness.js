// Says of a number whether it is exact and complete through when: one line under every number and chart.

import { h, text } from "./dom.js";
import { duration, integer, moment } from "./format.js";

// const mark = freshness(); card.append(mark.element); mark.show(answer.freshness)
export function freshness() {
  const kind = h("span", { class: "exactness" }), through = h("span"), warning = h("span", { class: "warning" });
  const element = h("p", { class: "freshness" }, kind, through, warning);
  element.hidden = true;
  return { element, show: (found) => show(found ?? null) };

  function show(found) {
    element.hidden = !found;
    if (!found) return;
    kind.dataset.exact = String(!found.approximate);
    text(kind, found.approximate ? estimate(found.error) : "exact");
    text(through, completeness(found));
    text(warning, flaws(found));
    warning.hidden = !warning.textContent;
  }
}

// How far off: pNN by rank's value, distinct as a standard error.
export function estimate(error = {}) {
  const parts = Object.entries(error).map(([fn, share]) => `${fn} ±${(share * 100).toFixed(1)} %`);
  return parts.length > 2 ? `approximate, ±${(Math.max(...Object.values(error)) * 100).toFixed(1)} %` : `approximate: ${parts.join(", ")}`;
}

export function completeness({ complete_through: through, lag_ms: behind }) {
  if (!through) return "nobody can tell now how complete";
  return `complete through ${moment(through)}${behind > 1000 ? ` (${duration(behind)} ago)` : ""}`;
}

function flaws({ loss, stale_s: stale }) {
  const found = [];
  if (stale) found.push(`kept from ${duration(stale * 1000)} ago, because the store does not answer`);
  if (loss) found.push(`${integer(loss)} accepted events are missing`);
  if (loss === null) found.push("events may be missing: the log deleted some before they were counted");
  return found.join("; ");
}
