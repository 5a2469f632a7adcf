// The state of the whole at a glance: how many events come in, that each is accounted for, and what is on top.

import { Problem } from "../api.js";
import { Chart, columns } from "../chart.js";
import { command, h, list, options, rows, text } from "../dom.js";
import { clock, compact, duration, integer, NONE, rate } from "../format.js";
import { freshness } from "../freshness.js";
import { icon } from "../icons.js";
import { MAIN } from "../state.js";
import { curlOfFirstEvent, isDemo, ledgerOf, pythonOfFirstEvent } from "../tenants.js";
import { topTable } from "../top.js";

const TOP_EVERY_MS = 1000, TOP_AT_LEAST_EVERY_MS = 10_000;
const HOUR_EVERY_MS = 5000;
const RECENT_MS = 120_000;

export default {
  title: "Overview",
  show(root, route, context) {
    const parts = [notes, flow, rates, lag, ledger, topKeys].map((part) => part(context));
    root.append(h("h1", { class: "unseen" }, "Overview"), ...parts.flatMap(({ element }) => element));
    const update = (status) => { for (const part of parts) part.update(status); };
    context.on("status", update);
    if (context.status) update(context.status);
    return () => { for (const part of parts) part.leave?.(); };
  },
};

const ofAll = (status, words) => (status.tenants ? words : "");

// What to do first, and that a demo is one.
function notes(context) {
  const { tenant } = context;
  const note = h("span", { id: "demo-note", role: "status" }), how = h("div", { id: "demo-command" }, command(curlOfFirstEvent(MAIN)));
  const demo = h("section", { id: "demo", class: "note wide", "aria-label": "Demo", hidden: true }, h("p", {}, h("b", {}, "This is demo traffic."), " ", note), how);
  const add = `tallymark meters add views --event view --by video${tenant === MAIN ? "" : ` --tenant ${tenant}`}`;
  const welcome = h("section", { id: "welcome", class: "card wide", hidden: true, "aria-labelledby": "welcome-title" },
    h("h2", { id: "welcome-title" }, "Nothing has been counted yet"),
    h("p", {}, "Send a first event from a terminal:"), command(curlOfFirstEvent(tenant), { id: "curl" }),
    h("p", {}, "or from Python:"), command(pythonOfFirstEvent(tenant), { id: "python" }),
    h("p", {}, "It appears on this page within a second. The meter ", h("code", {}, "events"), " counts every event by its name; ",
      h("code", { id: "add-meter" }, add), " counts views of each video."));
  return {
    element: [demo, welcome],
    update(status) {
      const { own, isChosen } = context.found;
      demo.hidden = !isDemo(tenant);
      how.hidden = own.length > 0;
      if (own.length) text(note, `Your own events are in the ${own.length === 1 ? "tenant" : "tenants"} ${own.join(", ")}.`);
      else text(note, isChosen ? "You have not sent an event of your own yet:" : "Send your first event and the page switches to your own:");
      welcome.hidden = isDemo(tenant) || (ledgerOf(tenant, status) ?? status).accepted > 0;
    },
  };
}

// The way of an event, with the roles that take it along and where each of them stands.
function flow() {
  const stations = [
    station("collector", "Collect", "durable before it is acknowledged", ["collector"], (status) => [`${rate(acceptedNow(status))} /s`, `${integer(status.accepted)} accepted`]),
    station("log", "Log", "kept until it is counted", [], (status) => [integer(status.in_flight), "waiting to be counted"]),
    station("pipeline", "Count", "each event once, copies recognised", ["pipeline"], (status) => [status.counted < 1e7 ? integer(status.counted) : compact(status.counted), `counted, ${integer(status.duplicate)} copies left out`]),
    station("store", "Keep", "minutes roll up into hours and days", ["keeper"], (status) => [integer(status.meters.length), "meters"]),
    station("answer", "Answer", "with how fresh and exact it is", ["query"], (status) => [status.freshness.lag_ms === null ? NONE : duration(status.freshness.lag_ms), "behind now"]),
  ];
  const element = h("section", { class: "card wide flow", "aria-labelledby": "flow-title" },
    h("h2", { id: "flow-title" }, "The way of an event"),
    h("ol", { id: "roles" }, ...stations.map(({ item }) => item)));
  return { element, update: (status) => { for (const { update } of stations) update(status); } };
}

const acceptedNow = ({ recent }) => {
  const last = recent.slice(-5);
  return last.length ? last.reduce((sum, { accepted }) => sum + accepted, 0) / last.length : 0;
};

function station(name, words, meaning, roles, figures) {
  const big = h("b", { class: "figure" }), small = h("span", { class: "quiet" }), states = h("ul", { class: "states", "aria-label": `State of ${words.toLowerCase()}` });
  states.hidden = !roles.length;
  const item = h("li", {}, icon(name), h("h3", {}, words), big, small, h("span", { class: "meaning" }, meaning), states);
  return {
    item,
    update(status) {
      const [first, second] = figures(status);
      text(big, first);
      text(small, second);
      list(states, status.roles.filter(({ role }) => roles.includes(role)), {
        key: ({ role, instance }) => `${role} ${instance}`,
        make: ({ role, instance }) => h("li", { class: "state" }, `${instance ? `${role} ${instance}` : role} `, h("span")),
        update: (child, { state, address }) => {
          child.dataset.state = state;
          child.title = address ?? "";
          text(child.lastChild, state);
        },
      });
    },
  };
}

// Events per second: now, and over the last hour.
function rates({ tenant, ask }) {
  const now = h("span", { id: "rate" }, NONE), whose = h("span", { class: "of-all" }), whoseHour = h("span"), mark = freshness();
  const left = h("div"), right = h("div");
  const element = h("section", { class: "card wide rates", "aria-label": "Events per second" }, h("div", { class: "pair" },
    h("div", {}, h("h2", {}, "Events per second", whose), h("p", { class: "big" }, now), left),
    h("div", {}, h("h2", {}, "The last hour", whoseHour), right, mark.element)));
  const recent = new Chart(left, { id: "chart", label: "Events per second over the last two minutes", height: 9, unit: "/s", table: false });
  const hour = new Chart(right, { id: "hour", label: "Events per second in each minute of the last hour", kind: "bars", height: 12.4, unit: "/s", legend: false });
  let askedMs = 0;
  const readHour = async () => {
    const found = await ask("/v1/meters/events/series", { parameters: { from: "-1h", step: "1m", fn: "rate" } }).catch(() => null);
    if (!found) return;
    const { times, lines } = columns(found, "rate");
    hour.show({ times, lines: [{ name: "events per second", values: lines[0]?.values ?? [] }], stepMs: 60_000, completeThrough: Date.parse(found.freshness.complete_through) });
    mark.show(found.freshness);
  };
  return {
    element,
    update(status) {
      text(whose, ofAll(status, " of all tenants"));
      text(whoseHour, ofAll(status, `, ${tenant}`));
      text(now, rate(status.events_per_second));
      const times = status.recent.map(({ at_ms: at }) => at);
      recent.show({
        times, from: status.now_ms - RECENT_MS, to: status.now_ms, stepMs: 1000,
        lines: [
          { name: "taken into the counts", kind: "area", values: status.recent.map(({ applied }) => applied) },
          { name: "accepted", dashed: true, colour: "--quiet", values: status.recent.map(({ accepted }) => accepted) },
        ],
      });
      if (Date.now() - askedMs > HOUR_EVERY_MS) {
        askedMs = Date.now();
        readHour();
      }
    },
    leave() { recent.destroy(); hour.destroy(); },
  };
}

// What became of every accepted event.
function ledger({ tenant }) {
  const counted = h("span", { id: "counted" }, NONE), accepted = h("span", { id: "accepted" }, NONE);
  const bar = h("div", { id: "bar", class: "bar", role: "img" }), body = h("tbody"), proof = h("p", { class: "proof" });
  const element = h("section", { class: "card", "aria-labelledby": "ledger-title" },
    h("h2", { id: "ledger-title" }, "Accepted against counted"),
    h("p", { class: "big" }, counted, " ", h("small", {}, "of ", accepted)), bar,
    h("table", { class: "figures", id: "account" }, h("caption", { class: "unseen" }, "What became of the accepted events"), body), proof);
  return {
    element,
    update(status) {
      const own = ledgerOf(tenant, status), found = own ? { ...status, ...own } : status, { terms } = status;
      const all = own ? ", of all tenants" : "", whole = found.accepted ?? terms.reduce((sum, { name }) => sum + found[name], 0);
      text(counted, integer(found.counted));
      text(accepted, `${integer(found.accepted)} accepted`);
      const lines = terms.map(({ name, label, meaning }) => ({ words: name === "in_flight" ? label + all : label, value: found[name], term: name, meaning, alarm: name === "missing" && found.missing !== 0 }));
      if (found.refused !== null) lines.push({ words: `refused at the door, not accepted${all}`, value: found.refused });
      rows(body, lines, figures);
      const isPart = ({ name }) => found[name] > 0 && !(own && name === "in_flight");
      rows(bar, terms.filter(isPart).map(({ name }) => ({ name, share: (100 * found[name]) / Math.max(1, whole) })), ({ name, share }) => {
        const part = h("i", { data: { term: name } });
        part.style.width = `${share}%`;
        return part;
      });
      bar.setAttribute("aria-label", terms.map(({ name, label }) => `${label} ${integer(found[name])}`).join(", "));
      proof.dataset.state = found.missing ? "bad" : "good";
      text(proof, found.missing ? "The account does not add up: events are missing." : "The account adds up: every accepted event is in one of these lines.");
    },
  };
}

function figures({ words, value, term, meaning = "", alarm = false }) {
  const dot = term ? h("i", { class: "dot", data: { term } }) : null;
  return h("tr", { class: alarm ? "alarm" : null, title: meaning }, h("th", { scope: "row" }, dot, words), h("td", { id: term ? `term-${term}` : null }, integer(value)));
}

// How long from receipt to count, and what could not be counted.
function lag({ link }) {
  const shown = Object.fromEntries(["p50", "p95", "p99"].map((name) => [name, h("dd", { id: name }, NONE)]));
  const note = h("p", { id: "lag-note", class: "quiet" }), whose = h("span"), through = h("b", { id: "through" }, NONE), complete = h("p", { class: "quiet" });
  const letters = h("tbody"), none = h("p", { class: "quiet" }, "None: every event could be read and counted."), table = h("table", { class: "figures", id: "dead-letters" }, h("caption", { class: "unseen" }, "Events that could not be counted, by reason"), letters);
  const element = h("section", { class: "card", "aria-labelledby": "lag-title" },
    h("h2", { id: "lag-title" }, "Lag, from receipt to count", whose), h("dl", { class: "lag" }, ...Object.entries(shown).map(([name, value]) => h("div", {}, h("dt", {}, name), value))), note,
    h("div", { class: "part" }, h("h3", {}, "Complete through ", through), complete),
    h("div", { class: "part" }, h("h3", {}, h("a", { href: link("/dead-letters") }, "Dead letters"), " by reason"), none, table));
  return {
    element,
    update(status) {
      const found = status.lag_ms, { complete_through: until, lag_ms: behind } = status.freshness;
      text(whose, ofAll(status, ", of all tenants"));
      for (const [name, value] of Object.entries(shown)) text(value, found ? duration(found[name]) : NONE);
      text(note, found ? `of ${integer(found.events)} events in the last minute, slowest ${duration(found.highest)}` : "nothing was counted in the last minute");
      text(through, until ? clock(until) : NONE);
      text(complete, until ? `Everything accepted before that is in the numbers; that was ${duration(behind)} ago.` : "Nobody can tell while the log does not answer.");
      none.hidden = status.dead_letters.length > 0;
      table.hidden = !none.hidden;
      rows(letters, status.dead_letters.map(({ hop, reason, events, tenant: whom }) => ({ words: `${hop}: ${reason}${(whom ?? MAIN) === MAIN ? "" : `, tenant ${whom}`}`, value: events })), figures);
    },
  };
}

// The largest keys of one meter.
function topKeys({ tenant, ask, link }) {
  const meter = h("select", { id: "meter" }), key = h("select", { id: "key" }), fn = h("select", { id: "fn" });
  const range = h("select", { id: "range" }, ...[["-5m", "the last 5 minutes"], ["-1h", "the last hour"], ["-1d", "the last day"], ["-7d", "the last 7 days"]].map(([value, words]) => h("option", { value }, words)));
  range.value = "-1h";
  const top = topTable({ id: "top" }), mark = freshness(), more = h("a", { class: "more", href: link("/meters") }, "Open this meter", icon("right"));
  const form = h("form", { id: "choose", class: "choose", on: { change: chosen, submit: (event) => event.preventDefault() } },
    ...[["meter", meter], ["by", key], ["ranked by", fn], ["of", range]].map(([words, select]) => h("span", {}, h("label", { for: select.id }, words), " ", select)));
  const element = h("section", { class: "card wide keys", "aria-labelledby": "top-title" },
    h("div", { class: "row" }, h("h2", { id: "top-title" }, "Top keys"), form), top.note, top.element, h("div", { class: "row" }, mark.element, more));
  const state = { meters: [], counted: -1, dirty: true, askedMs: 0, statusMs: 0 };

  function choices() {
    options(meter, state.meters.map(({ name }) => name), { preferred: ["demo_views", "views", "events"] });
    const found = state.meters.find(({ name }) => name === meter.value);
    // A short circuit would leave the second list as it was.
    const changed = [options(key, found?.labels ?? []), options(fn, found?.compute ?? [])];
    if (changed.some(Boolean)) state.dirty = true;
    more.hidden = !found;
    if (found) more.setAttribute("href", link(`/meters/${encodeURIComponent(found.name)}`, { by: key.value, fn: fn.value }));
    return found;
  }

  function chosen() {
    choices();
    Object.assign(state, { dirty: true, askedMs: 0 });
    refresh();
  }

  async function refresh() {
    const found = choices(), now = Date.now();
    if (!found || now - state.askedMs < (state.dirty ? TOP_EVERY_MS : TOP_AT_LEAST_EVERY_MS) - 50) return;
    Object.assign(state, { dirty: false, askedMs: now });
    const wanted = { by: key.value, fn: fn.value, k: 10, from: range.value }, asked = JSON.stringify([meter.value, wanted]);
    try {
      const answer = await ask(`/v1/meters/${encodeURIComponent(found.name)}/top`, { parameters: wanted });
      if (asked !== JSON.stringify([meter.value, { by: key.value, fn: fn.value, k: 10, from: range.value }])) return; // meanwhile another was chosen
      top.show(answer, { key: wanted.by, fn: wanted.fn, broken: found.broken });
      mark.show(answer.freshness);
      // One that the server had kept may be from before the change that the status told of: then ask again soon.
      const { complete_through: through, lag_ms: behind } = answer.freshness;
      if (through && Date.parse(through) + behind < state.statusMs) state.dirty = true;
    } catch (error) {
      if (error instanceof Problem) top.hide(error.message);
    }
  }

  return {
    element,
    update(status) {
      const { counted } = ledgerOf(tenant, status) ?? status;
      if (counted !== state.counted) state.dirty = true;
      Object.assign(state, { counted, statusMs: status.now_ms, meters: status.meters.filter((each) => each.tenant === tenant && each.labels.length) });
      refresh();
    },
  };
}
