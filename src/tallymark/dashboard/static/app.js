// The page: /v1/status once a second, the chosen meter's `live` stream to know when its top keys change.

import { Chart } from "./chart.js";

const POLL_MS = 1000;
const TOP_EVERY_MS = 1000;
const TOP_AT_LEAST_EVERY_MS = 10_000;

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
const number = (value) => (value === null ? "–" : whole.format(value)); // null: nobody can tell now
const chart = new Chart($("chart"));
const page = { meters: [], live: null, following: "", topDirty: true, topAskedMs: 0, answeredAt: null, statusMs: 0 };

async function getJson(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.detail ?? answer.statusText), { answered: true });
  return body;
}

async function poll() {
  if (!document.hidden) {
    try {
      show(await getJson("/v1/status"));
      page.answeredAt = new Date();
      reachable(true);
      await refreshTop();
    } catch (error) {
      reachable(false, error);
    }
  }
  setTimeout(poll, POLL_MS);
}

function reachable(yes, error) {
  document.body.classList.toggle("stale", !yes);
  $("banner").hidden = yes;
  if (yes) return;
  const since = page.answeredAt ? ` Numbers are from ${page.answeredAt.toLocaleTimeString()}.` : "";
  const what = error.answered ? `The server cannot answer: ${error.message}.` : "The server cannot be reached.";
  set("banner", `${what}${since} Trying again …`);
  set("verdict", "no connection");
  $("verdict").dataset.state = "bad";
}

function show(status) {
  page.statusMs = status.now_ms;
  verdict(status);
  $("welcome").hidden = status.accepted > 0;
  set("rate", (status.events_per_second < 10 ? tenths : whole).format(status.events_per_second));
  chart.show(status.recent, status.now_ms);
  account(status);
  lag(status.lag_ms);
  roles(status.roles);
  letters(status.dead_letters);
  page.meters = status.meters;
  choices();
  set("version", `Tallymark ${status.tallymark}`);
}

function verdict(status) {
  const pill = $("verdict");
  const count = status.problems.length;
  const well = status.meters.some((meter) => meter.missed) ? "nothing late" : "nothing late, nothing lost";
  pill.dataset.state = count ? "bad" : "good";
  set("verdict", count ? `${count} ${count === 1 ? "thing needs" : "things need"} a look` : well);
  fill($("problems"), status.problems.map((problem) => make("li", problem)));
  $("problems").hidden = !count;
  const { complete_through: through, lag_ms: behind } = status.freshness;
  set("complete", through ? `complete through ${new Date(through).toLocaleTimeString()}${behind > 1000 ? ` (${duration(behind)} ago)` : ""}` : "");
}

function account(status) {
  const { terms } = status; // what accepted is the sum of
  set("counted", whole.format(status.counted));
  const accepted = status.accepted ?? terms.reduce((sum, { name }) => sum + status[name], 0);
  set("accepted", `${number(status.accepted)} accepted`);
  const rows = terms.map(({ name, label }) => row(label, status[name], name, name === "missing" && status.missing !== 0));
  if (status.refused !== null) rows.push(row("refused at the door, not accepted", status.refused, null, false));
  fill($("account").tBodies[0], rows);
  fill($("bar"), terms.filter(({ name }) => status[name] > 0).map(({ name }) => {
    const part = make("i");
    part.dataset.term = name;
    part.style.width = `${(100 * status[name]) / Math.max(1, accepted)}%`;
    return part;
  }));
  $("bar").setAttribute("aria-label", terms.map(({ name, label }) => `${label} ${number(status[name])}`).join(", "));
}

function row(words, value, term, alarm) {
  const line = make("tr"), head = make("th"), cell = make("td", number(value));
  head.scope = "row";
  if (term) {
    const dot = make("i");
    dot.className = "dot";
    dot.dataset.term = term;
    cell.id = `term-${term}`;
    head.append(dot);
  }
  head.append(words);
  line.classList.toggle("alarm", alarm);
  line.append(head, cell);
  return line;
}

function lag(found) {
  for (const name of ["p50", "p95", "p99"]) set(name, found ? duration(found[name]) : "–");
  set("lag-note", found
    ? `of ${whole.format(found.events)} events in the last minute, slowest ${duration(found.highest)}`
    : "nothing was counted in the last minute");
}

function roles(found) {
  fill($("roles"), found.map(({ role, instance, state, address }) => {
    const line = make("li"), pill = make("span", state);
    pill.className = "state";
    pill.dataset.state = state;
    line.append(make("b", instance ? `${role} ${instance}` : role), pill);
    line.title = address ?? "";
    return line;
  }));
}

function letters(found) {
  $("letters-part").hidden = !found.length;
  fill($("letters").tBodies[0], found.map(({ hop, reason, events }) => row(`${hop}: ${reason}`, events, null, false)));
}

function choices() {
  options($("meter"), page.meters.filter((meter) => meter.labels.length).map((meter) => meter.name), ["demo_views", "views", "events"]);
  const meter = chosen();
  options($("key"), meter?.labels ?? []);
  options($("fn"), meter?.compute ?? []);
  follow(meter?.name ?? "");
}

const chosen = () => page.meters.find((meter) => meter.name === $("meter").value);

function options(select, names, preferred = []) {
  const known = [...select.options].map((option) => option.value);
  if (known.join("\n") === names.join("\n")) return;
  const before = select.value;
  fill(select, names.map((name) => make("option", name)));
  select.value = [before, ...preferred, names[0]].find((name) => names.includes(name)) ?? "";
  page.topDirty = true;
}

function follow(name) {
  if (page.following === name && page.live?.readyState !== EventSource.CLOSED) return;
  page.live?.close();
  page.following = name;
  page.live = name ? new EventSource(`/v1/meters/${encodeURIComponent(name)}/live`) : null;
  page.live?.addEventListener("change", () => { page.topDirty = true; });
}

async function refreshTop() {
  const meter = chosen(), now = Date.now();
  const due = page.topDirty ? TOP_EVERY_MS : TOP_AT_LEAST_EVERY_MS;
  if (!meter || now - page.topAskedMs < due - 50) return;
  page.topDirty = false;
  page.topAskedMs = now;
  const asked = new URLSearchParams({ by: $("key").value, fn: $("fn").value, k: 10, from: $("range").value });
  try {
    const answer = await getJson(`/v1/meters/${encodeURIComponent(meter.name)}/top?${asked}`);
    showTop(meter, answer);
    // One that the server had kept may be from before the change that `live` told of: then ask again soon.
    const { complete_through: through, lag_ms: behind } = answer.freshness;
    if (through && Date.parse(through) + behind < page.statusMs) page.topDirty = true;
  } catch (error) {
    if (!error.answered) throw error;
    set("top-note", error.message);
  }
}

function showTop(meter, answer) {
  const key = $("key").value, fn = $("fn").value;
  set("top-key", key);
  set("top-fn", fn);
  set("top-note", meter.broken ? `this meter is broken: ${meter.broken}` : answer.items.length ? "" : "Nothing was counted in this time.");
  $("top").hidden = !answer.items.length;
  const largest = Math.max(...answer.items.map((item) => Math.abs(item.value[fn] ?? 0)), Number.MIN_VALUE);
  fill($("top").tBodies[0], answer.items.map((item, index) => {
    const line = make("tr"), value = item.value[fn], name = make("td", item.labels[key] || "(empty)"), share = make("i"), cell = make("td");
    name.title = item.labels[key];
    name.classList.toggle("empty-label", !item.labels[key]);
    share.className = "share";
    share.style.width = `${(100 * Math.abs(value ?? 0)) / largest}%`;
    cell.append(share);
    line.append(make("td", index + 1), name, make("td", value === null ? "–" : precise.format(value)), cell);
    return line;
  }));
}

function duration(ms) {
  if (ms < 1000) return `${whole.format(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${(ms / 60_000).toFixed(1)} min`;
}

function make(name, text) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Only what changed is touched, so that screen readers and selections are left in peace.
function set(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

function fill(parent, children) {
  const wanted = children.map((child) => child.outerHTML).join("");
  if (parent.dataset.shown !== undefined && parent.innerHTML === wanted) return;
  parent.dataset.shown = "";
  parent.replaceChildren(...children);
}

$("choose").addEventListener("change", async (event) => {
  if (event.target.id === "meter") choices();
  page.topDirty = true;
  page.topAskedMs = 0;
  await refreshTop().catch(() => {});
});
$("choose").addEventListener("submit", (event) => event.preventDefault());
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("curl").textContent);
  set("copy", "Copied");
});
set("curl", `curl '${location.origin}/v1/events' -H 'content-type: application/json' \\\n  -d '{"event": "view", "props": {"video": "A", "country": "KR"}}'`);
poll();
