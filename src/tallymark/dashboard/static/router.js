// Which page a path shows, and the way from one to the next.
//
// A page is one module under pages/ and one row of PAGES below (and of tallymark.dashboard.PAGES, so that the server
// answers its path with index.html). It looks like this:
//
//   export default {
//     title: "Tables",                              // or title(route) for one that depends on the path
//     show(root, route, context) {                  // root: an empty element inside <main>; fill it by dom.js
//       const stop = context.on("status", (status) => …);  // once a second, from the stream that the shell holds
//       return () => stop();                        // called before the next page: end streams, timers, charts
//     },
//   };
//
// route: { page, path, name (decoded; of /tables/NAME), parameters: URLSearchParams }
// context:
//   tenant                          whose numbers are shown; if it or the time zone changes, the page is shown anew
//   status                          the newest /v1/status, or null
//   ask(path, options)              api.ask for this tenant; aborted when the page is left. Throws api.Problem
//   stream(path, options)           api.stream for this tenant; closed when the page is left
//   on("status", act)               → a function that ends it; it also ends when the page is left
//   set({ by: "video", to: null })  choices into the URL, so that a link shows the same; null takes one out
//   link(path, parameters)          the address of another page, with tenant and time zone
//   go(path, parameters)            leads there
//   failed(error)                   an element that says what happened and what to do
// A page throws or rejects only by mistake: show() may be async, and what it throws is shown in its place.

import { h } from "./dom.js";
import { address } from "./state.js";

// `at` is the entry of the navigation that is marked while the page is shown.
export const PAGES = [
  { page: "overview", pattern: /^\/$/, at: "/" },
  { page: "meters", pattern: /^\/meters$/, at: "/meters" },
  { page: "meter", pattern: /^\/meters\/([^/]+)$/, at: "/meters" },
  { page: "new-meter", pattern: /^\/new-meter$/, at: "/meters" },
  { page: "ask", pattern: /^\/ask$/, at: "/ask" },
  { page: "boards", pattern: /^\/boards$/, at: "/boards" },
  { page: "board", pattern: /^\/boards\/([^/]+)$/, at: "/boards" },
  { page: "tables", pattern: /^\/tables$/, at: "/tables" },
  { page: "table", pattern: /^\/tables\/([^/]+)$/, at: "/tables" },
  { page: "dead-letters", pattern: /^\/dead-letters$/, at: "/dead-letters" },
  { page: "live", pattern: /^\/live$/, at: "/live" },
];

export const NAVIGATION = [
  { path: "/", words: "Overview", icon: "overview" },
  { path: "/meters", words: "Meters", icon: "meters" },
  { path: "/ask", words: "Ask", icon: "ask" },
  { path: "/boards", words: "Boards", icon: "boards" },
  { path: "/live", words: "Live events", icon: "live" },
  { path: "/tables", words: "Tables", icon: "tables" },
  { path: "/dead-letters", words: "Dead letters", icon: "dead-letters" },
];

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function route(here = location) {
  for (const { page, pattern, at } of PAGES) {
    const found = here.pathname.match(pattern);
    if (found) return { page, at, path: here.pathname, name: found[1] === undefined ? null : decoded(found[1]), parameters: new URLSearchParams(here.search) };
  }
  return { page: null, at: null, path: here.pathname, name: null, parameters: new URLSearchParams(here.search) };
}

export async function load(page) {
  return (await import(`./pages/${page}.js`)).default;
}

// Calls `changed` whenever another page is to be shown; a click on one of our links does not load anything anew.
export function watch(changed) {
  addEventListener("popstate", () => changed(false));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (route(link).page === null || link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    if (link.href !== location.href) history.pushState(null, "", link.href);
    changed(true);
  });
}

export function go(path, parameters, changed) {
  history.pushState(null, "", address(path, parameters));
  changed(true);
}

export function notFound(path) {
  return h("section", { class: "card empty" }, h("h1", {}, "There is no such page"), h("p", {}, `Nothing is at ${path}.`), h("p", {}, h("a", { href: address("/") }, "To the overview")));
}
