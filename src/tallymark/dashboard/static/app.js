// The shell: navigation, the state of the system above every page, and the page itself in between.

import { ask, isAbort, Problem, query, stream, Unreachable } from "./api.js";
import { h, list, options, text } from "./dom.js";
import { clock, plural, zone } from "./format.js";
import { completeness } from "./freshness.js";
import { icon } from "./icons.js";
import { pulse } from "./pulse.js";
import { go, load, NAVIGATION, notFound, route, watch } from "./router.js";
import { address, applyTheme, chooseTheme, chooseZone, MAIN, readZone, setParameters, theme, zones } from "./state.js";
import { choose } from "./tenants.js";

const $ = (id) => document.getElementById(id);
const shell = { status: null, tenant: null, answeredAt: null, route: null, leave: () => {}, listeners: new Set(), turn: 0 };

// The state of the system

function hear(status) {
  shell.status = status;
  shell.answeredAt = Date.now();
  reachable();
  verdict(status);
  text($("version"), status.tallymark);
  const isNew = tenants();
  if (isNew || shell.route === null) show();
  else for (const act of shell.listeners) act(status);
}

function failed(error) {
  document.body.classList.add("stale");
  const since = shell.answeredAt ? ` Numbers are from ${clock(shell.answeredAt)}.` : "";
  const what = error instanceof Problem ? `The server cannot answer: ${error.message}.` : "The server cannot be reached.";
  text($("banner"), `${what}${since} Trying again …`);
  $("banner").hidden = false;
  text($("verdict"), "no connection");
  $("verdict").dataset.state = "bad";
  if (shell.route === null && !(error instanceof Unreachable)) {
    tenants();
    show();
  }
}

function reachable() {
  document.body.classList.remove("stale");
  $("banner").hidden = true;
}

function verdict(status) {
  const count = status.problems.length;
  const well = status.meters.some((meter) => meter.missed) ? "nothing late" : "nothing late, nothing lost";
  $("verdict").dataset.state = count ? "bad" : "good";
  text($("verdict"), count ? `${plural(count, "thing needs", "things need")} a look` : well);
  list($("problems"), status.problems, { key: (problem) => problem, make: (problem) => h("li", {}, problem) });
  $("problems").hidden = !count;
  text($("complete"), status.freshness.complete_through ? completeness(status.freshness) : "");
}

// Answers whether another tenant is shown now.
function tenants() {
  const found = choose(shell.status, shell.tenant), before = shell.tenant;
  shell.tenant = found.tenant;
  shell.found = found;
  $("no-tenant").hidden = !found.note;
  text($("no-tenant"), found.note);
  $("tenant-part").hidden = !found.names.length;
  options($("tenant"), found.names);
  $("tenant").value = found.tenant;
  return before !== null && before !== found.tenant;
}

// The page

async function show({ isNavigation = false } = {}) {
  const turn = ++shell.turn, here = route(), away = new AbortController(), ends = [];
  shell.leave();
  shell.leave = () => { away.abort(); for (const end of ends.splice(0)) end(); };
  shell.route = here;
  readZone();
  $("zone").value = zone();
  navigation(here);
  const root = h("div", { class: `page page-${here.page ?? "none"}` });
  try {
    const page = here.page ? await load(here.page) : null;
    if (turn !== shell.turn) return;
    const title = typeof page?.title === "function" ? page.title(here) : page?.title ?? "Not found";
    document.title = here.path === "/" ? "Tallymark" : `${title} · Tallymark`;
    $("main").replaceChildren(root);
    if (page) {
      const leave = await page.show(root, here, context(away, ends));
      if (leave) turn === shell.turn ? ends.push(leave) : leave();
    } else root.append(notFound(here.path));
  } catch (error) {
    if (turn !== shell.turn || isAbort(error)) return;
    $("main").replaceChildren(root);
    root.replaceChildren(h("h1", { class: "unseen" }, "Something went wrong"), problem(error));
  }
  if (isNavigation) {
    scrollTo(0, 0);
    $("main").focus({ preventScroll: true });
  }
}

function context(away, ends) {
  // What a page begins after it was left ends at once.
  const { tenant } = shell, ended = (end) => { if (away.signal.aborted) end(); else ends.push(end); return end; };
  const on = (_, act) => {
    shell.listeners.add(act);
    return ended(() => shell.listeners.delete(act));
  };
  return {
    tenant,
    get status() { return shell.status; },
    get found() { return shell.found; },
    ask: (path, wanted = {}) => ask(path, { tenant, ...wanted, signal: wanted.signal ? AbortSignal.any([away.signal, wanted.signal]) : away.signal }),
    stream: (path, wanted) => ended(stream(path, { ...wanted, parameters: { ...wanted.parameters, tenant: tenant === MAIN ? null : tenant } })),
    url: (path, parameters = {}) => query(path, { ...parameters, tenant: tenant === MAIN ? null : tenant }),
    on,
    set: setParameters,
    link: address,
    go: (path, parameters) => go(path, parameters, (isNavigation) => show({ isNavigation })),
    again: () => show(),
    failed: problem,
  };
}

// What happened, and what to do.
function problem(error) {
  const isKnown = error instanceof Problem;
  if (!isKnown && !(error instanceof Unreachable)) console.error(error);
  const what = isKnown ? error.message : error instanceof Unreachable ? error.message : "This page made a mistake; its message is in the browser's console.";
  const next = isKnown && error.status < 500 ? null : "It tries again by itself as soon as the server answers; reload the page if it does not.";
  return h("div", { class: "problem", role: "alert" }, icon("warning"), h("div", {}, h("p", {}, what), error.excerpt ? h("pre", {}, error.excerpt) : null, next ? h("p", { class: "quiet" }, next) : null,
    isKnown && error.code ? h("p", { class: "quiet" }, h("a", { href: `/docs/errors#${error.code}`, target: "_blank", rel: "noopener" }, `What ${error.code} means`)) : null));
}

function navigation(here) {
  list($("navigation"), NAVIGATION, {
    key: ({ path }) => path,
    make: ({ path, words, icon: name }) => h("a", { href: path }, icon(name), h("span", {}, words)),
    update: (link, { path }) => {
      link.setAttribute("href", address(path));
      if (path === here.at) link.setAttribute("aria-current", path === here.path ? "page" : "true");
      else link.removeAttribute("aria-current");
    },
  });
  $("home").setAttribute("href", address("/"));
  menu(false);
}

function menu(open) {
  $("menu").setAttribute("aria-expanded", String(open));
  document.body.classList.toggle("menu-open", open);
}

$("menu").append(icon("menu"));
$("menu").addEventListener("click", () => menu($("menu").getAttribute("aria-expanded") !== "true"));
addEventListener("keydown", (event) => { if (event.key === "Escape") menu(false); });
$("tenant").addEventListener("change", () => {
  setParameters({ tenant: $("tenant").value });
  tenants();
  show();
});
options($("zone"), zones(), { label: (name) => name.replaceAll("_", " ") });
$("zone").addEventListener("change", () => { chooseZone($("zone").value); show(); });
applyTheme();
$("theme").value = theme();
$("theme").addEventListener("change", () => { chooseTheme($("theme").value); dispatchEvent(new Event("themechange")); });
readZone();
navigation(route());
watch((isNavigation) => {
  if (shell.status) tenants();
  show({ isNavigation });
});
pulse({ status: hear, failed });
