// The page: /v1/status once a second, the chosen meter's `live` stream to know when its top keys change.
// Where there are several tenants it shows one: the one in ?tenant=, else the demo until the first event of the user's own,
// which is any that is not the demo's.

import { Chart } from "./chart.js";

const POLL_MS = 1000;
const TOP_EVERY_MS = 1000;
const TOP_AT_LEAST_EVERY_MS = 10_000;
const MAIN = "main", DEMO = "demo";
const TENANT = /^[a-z0-9][a-z0-9_-]{0,62}$/;

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
const number = (value) => (value === null ? "–" : whole.format(value)); // null: nobody can tell now
const chart = new Chart($("chart"));
const page = { tenant: MAIN, status: null, meters: [], live: null, following: "", topDirty: true, topAskedMs: 0, answeredAt: null, statusMs: 0 };

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
  page.status = status;
  page.statusMs = status.now_ms;
  verdict(status);
  tenants(status.tenants ?? []);
  const own = ledgerOf(page.tenant, status);
  welcome(page.tenant === DEMO || (own ?? status).accepted > 0);
  set("rate", (status.events_per_second < 10 ? tenths : whole).format(status.events_per_second));
  chart.show(status.recent, status.now_ms);
  account(own ? { ...status, ...own, of_all: true } : status);
  lag(status.lag_ms);
  roles(status.roles);
  deadLetters(status.dead_letters);
  page.meters = status.meters.filter((meter) => meter.tenant === page.tenant);
  choices();
  set("version", `Tallymark ${status.tallymark}`);
}

// Of one tenant, if there are several; without them the status itself is that of `main`.
const ledgerOf = (name, status) => status.tenants?.find((tenant) => tenant.name === name);

function tenants(found) {
  const names = found.map(({ name }) => name);
  const wanted = new URLSearchParams(location.search).get("tenant");
  const own = found.filter(({ name, accepted }) => name !== DEMO && accepted > 0).map(({ name }) => name);
  // It stays with the first that has events: a page that switched by itself once should not jump about.
  const byItself = own.includes(page.tenant) ? page.tenant : own[0] ?? (names.includes(DEMO) ? DEMO : MAIN);
  const isChosen = wanted === MAIN || names.includes(wanted);
  switchTo(isChosen ? wanted : byItself);
  $("no-tenant").hidden = !wanted || isChosen;
  if (wanted && !isChosen) {
    const why = TENANT.test(wanted) ? `There is no tenant ${wanted} yet` : `“${wanted}” cannot be the name of a tenant`;
    set("no-tenant", `${why}; this is the tenant ${page.tenant}.`);
  }
  $("tenant-part").hidden = !names.length;
  options($("tenant"), names);
  $("tenant").value = page.tenant;
  for (const words of document.querySelectorAll(".of-all")) words.hidden = !names.length;
  $("demo").hidden = page.tenant !== DEMO;
  $("demo-command").hidden = own.length > 0;
  if (own.length) set("demo-note", `Your own events are in the ${own.length === 1 ? "tenant" : "tenants"} ${own.join(", ")}.`);
  else set("demo-note", isChosen ? "You have not sent an event of your own yet:" : "Send your first event and the page switches to your own:");
}

function welcome(hidden) {
  $("welcome").hidden = hidden;
  set("curl", firstEvent(page.tenant));
  set("add-meter", `tallymark meters add views --event view --by video${page.tenant === MAIN ? "" : ` --tenant ${page.tenant}`}`);
}

function switchTo(tenant) {
  if (page.tenant === tenant) return;
  page.tenant = tenant;
  page.topDirty = true;
  page.topAskedMs = 0;
  $("top").hidden = true; // until its own rows are here
  set("top-note", "");
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
  const ofAll = (words) => (status.of_all ? `${words}, of all tenants` : words);
  const rows = terms.map(({ name, label }) => row(name === "in_flight" ? ofAll(label) : label, status[name], name, name === "missing" && status.missing !== 0));
  if (status.refused !== null) rows.push(row(ofAll("refused at the door, not accepted"), status.refused, null, false));
  fill($("account").tBodies[0], rows);
  const isPart = ({ name }) => status[name] > 0 && !(status.of_all && name === "in_flight");
  fill($("bar"), terms.filter(isPart).map(({ name }) => {
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

function deadLetters(found) {
  $("dead-letters-part").hidden = !found.length;
  fill($("dead-letters").tBodies[0], found.map(({ hop, reason, events, tenant }) => row(`${hop}: ${reason}${(tenant ?? MAIN) === MAIN ? "" : `, tenant ${tenant}`}`, events, null, false)));
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
  const path = name && `/v1/meters/${encodeURIComponent(name)}/live?tenant=${page.tenant}`;
  if (page.following === path && page.live?.readyState !== EventSource.CLOSED) return;
  page.live?.close();
  page.following = path;
  page.live = path ? new EventSource(path) : null;
  page.live?.addEventListener("change", () => { page.topDirty = true; });
}

async function refreshTop() {
  const meter = chosen(), now = Date.now(), { tenant } = page;
  const due = page.topDirty ? TOP_EVERY_MS : TOP_AT_LEAST_EVERY_MS;
  if (!meter || now - page.topAskedMs < due - 50) return;
  page.topDirty = false;
  page.topAskedMs = now;
  const asked = new URLSearchParams({ by: $("key").value, fn: $("fn").value, k: 10, from: $("range").value, tenant });
  try {
    const answer = await getJson(`/v1/meters/${encodeURIComponent(meter.name)}/top?${asked}`);
    if (tenant !== page.tenant) return; // meanwhile another one was chosen
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
  set("top-note", meter.broken ? `this meter is broken: ${meter.broken}` : answer.items.length ? lacking(fn, answer) : "Nothing was counted in this time.");
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

// Why a row has no value, if the meter did not compute it from the beginning.
function lacking(fn, { since }) {
  if (!since || !(fn in since)) return "";
  const moment = since[fn] && new Date(since[fn]).toLocaleString();
  return `${fn} has been computed ${moment ? `since ${moment}` : "from a later version on"}; – is a key that was also counted before. Choose a shorter time.`;
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

function firstEvent(tenant) {
  return `curl '${location.origin}/v1/events${tenant === MAIN ? "" : `?tenant=${tenant}`}' -H 'content-type: application/json' \\\n  -d '{"event": "view", "props": {"video": "A", "country": "KR"}}'`;
}

$("choose").addEventListener("change", async (event) => {
  if (event.target.id === "meter") choices();
  page.topDirty = true;
  page.topAskedMs = 0;
  await refreshTop().catch(() => {});
});
$("choose").addEventListener("submit", (event) => event.preventDefault());
$("tenant").addEventListener("change", async () => {
  const here = new URL(location.href);
  here.searchParams.set("tenant", $("tenant").value);
  history.replaceState(null, "", here);
  show(page.status);
  await refreshTop().catch(() => {});
});
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector(".curl").textContent);
    button.textContent = "Copied";
  });
}
for (const code of document.querySelectorAll(".curl")) code.textContent = firstEvent(MAIN);
poll();
