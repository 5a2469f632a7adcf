// Whose numbers are shown: the tenant in ?tenant=, else the demo until the first event of the user's own,
// which is any that is not the demo's.

import { DEMO, MAIN, parameter, TENANT } from "./state.js";

// → { tenant, names, own, isChosen, note }
export function choose(status, before) {
  const found = status?.tenants ?? [];
  const names = found.map(({ name }) => name), wanted = parameter("tenant");
  const own = found.filter(({ name, accepted }) => name !== DEMO && accepted > 0).map(({ name }) => name);
  // It stays with the first that has events: a page that switched by itself once should not jump about.
  const byItself = own.includes(before) ? before : own[0] ?? (names.includes(DEMO) ? DEMO : MAIN);
  const isChosen = wanted === MAIN || names.includes(wanted) || (!status && TENANT.test(wanted ?? ""));
  const tenant = isChosen ? wanted : byItself;
  return { tenant, names, own, isChosen, note: wanted && !isChosen ? noSuch(wanted, tenant) : "" };
}

function noSuch(wanted, tenant) {
  const why = TENANT.test(wanted) ? `There is no tenant ${wanted} yet` : `“${wanted}” cannot be the name of a tenant`;
  return `${why}; this is the tenant ${tenant}.`;
}

// Of one tenant, if there are several; without them the status itself is that of `main`.
export const ledgerOf = (name, status) => status.tenants?.find((tenant) => tenant.name === name);

export const isDemo = (tenant) => tenant === DEMO;
const ofTenant = (tenant) => (tenant === MAIN ? "" : `?tenant=${tenant}`);

export function curlOfFirstEvent(tenant, event = '{"event": "view", "props": {"video": "A", "country": "KR"}}') {
  return `curl '${location.origin}/v1/events${ofTenant(tenant)}' -H 'content-type: application/json' \\\n  -d '${event}'`;
}

export function pythonOfFirstEvent(tenant) {
  const whose = tenant === MAIN ? "" : `, tenant="${tenant}"`;
  return `from tallymark import Client\n\nwith Client("${location.origin}"${whose}) as client:\n    client.count("view", video="A", country="KR")`;
}

export function curl(tenant, path, method = "GET") {
  const both = path.includes("?") ? "&" : "?";
  return `curl ${method === "GET" ? "" : `-X ${method} `}'${location.origin}${path}${tenant === MAIN ? "" : `${both}tenant=${tenant}`}'`;
}
