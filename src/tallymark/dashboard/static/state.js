// What a person chose: tenant and time zone (in the URL, so that a link shows the same) and the theme.

import { setZone, zone } from "./format.js";

export const MAIN = "main", DEMO = "demo";
export const TENANT = /^[a-z0-9][a-z0-9_-]{0,62}$/;
export const THEMES = ["system", "light", "dark"];
const HOME_ZONE = zone();

// A browser may forbid it, or have none; the choice then lasts as long as the page.
function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // nothing depends on it
  }
}

export const parameter = (name) => new URLSearchParams(location.search).get(name);

// null takes a parameter out. The page stays where it is: going back leads to the page before, not to each choice.
export function setParameters(wanted) {
  const here = new URL(location.href);
  for (const [name, value] of Object.entries(wanted)) {
    here.searchParams.delete(name);
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== "") here.searchParams.append(name, each);
  }
  here.search = here.searchParams.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  if (here.href !== location.href) history.replaceState(history.state, "", here);
}

// A path of this page with what goes with the reader from page to page.
export function address(path, parameters = {}) {
  const kept = { tenant: parameter("tenant"), tz: parameter("tz"), ...parameters };
  const found = new URLSearchParams(Object.entries(kept).flatMap(([name, value]) =>
    [value].flat().filter((each) => each !== null && each !== undefined && each !== "").map((each) => [name, each])));
  return found.size ? `${path}?${found.toString().replaceAll("%2C", ",").replaceAll("%3A", ":")}` : path;
}

function isZone(name) {
  try {
    return Boolean(name && new Intl.DateTimeFormat(undefined, { timeZone: name }));
  } catch {
    return false;
  }
}

export function zones() {
  return [...new Set([HOME_ZONE, "UTC", ...Intl.supportedValuesOf("timeZone")])];
}

export function chooseZone(name) {
  remember("tallymark.zone", name);
  setParameters({ tz: name });
  setZone(name);
}

export function readZone() {
  setZone([parameter("tz"), recall("tallymark.zone"), HOME_ZONE].find(isZone) ?? "UTC");
}

export const theme = () => (THEMES.includes(recall("tallymark.theme")) ? recall("tallymark.theme") : "system");

export function chooseTheme(name) {
  remember("tallymark.theme", name);
  applyTheme(name);
}

export function applyTheme(name = theme()) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}
