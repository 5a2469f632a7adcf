// Asks the server: JSON in and out, problem documents as errors, streams that come back by themselves.

const PATIENCE_MS = 15_000;

// What the server says is wrong: `code`, `detail`, and where it knows: `parameter`, `line`, `position`, `errors`.
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `the server answered ${status}`);
    Object.assign(this, body, { status });
  }
}

export class Unreachable extends Error {}

// `parameters` may have lists; null and "" are left out. `type` is the content type of a body that is not JSON.
export async function ask(path, { tenant, parameters = {}, method = "GET", body, type, signal } = {}) {
  const answer = await request(path, { tenant, parameters, method, body, type, signal });
  return answer.status === 204 ? null : answer.json();
}

// The answer itself, for what is not JSON.
export async function request(path, { tenant, parameters = {}, method = "GET", body, type, signal } = {}) {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const headers = { accept: "application/json, */*;q=0.5" };
  if (tenant) headers["tallymark-tenant"] = tenant;
  if (body !== undefined) headers["content-type"] = type ?? "application/json";
  let answer;
  try {
    answer = await fetch(query(path, parameters), {
      method, headers, cache: "no-store", body: body === undefined || type ? body : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(patience.aborted ? `no answer within ${PATIENCE_MS / 1000} s` : "the server cannot be reached");
  }
  if (answer.ok) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

export function query(path, parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) =>
    [value].flat().filter((each) => each !== null && each !== undefined && each !== "").map((each) => [name, each]));
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
}

export const isAbort = (error) => error?.name === "AbortError";

// Server-sent events: `on` has a function per kind of message. `state` is told "open", or "waiting" while there is no
// connection; the stream comes back by itself. A hidden page holds none: browsers allow six connections to a server.
export function stream(path, { parameters = {}, on, state = () => {} }) {
  let source = null, retry = 0, pause = 1000;
  const close = () => { source?.close(); source = null; clearTimeout(retry); };
  const open = () => {
    close();
    if (document.hidden) return;
    source = new EventSource(query(path, parameters));
    source.addEventListener("open", () => { pause = 1000; state("open"); });
    source.addEventListener("error", () => {
      state("waiting");
      if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
      retry = setTimeout(open, pause);
      pause = Math.min(pause * 2, 30_000);
    });
    for (const [kind, act] of Object.entries(on)) source.addEventListener(kind, (message) => act(message.data ? JSON.parse(message.data) : null, message));
  };
  document.addEventListener("visibilitychange", open);
  open();
  return () => { document.removeEventListener("visibilitychange", open); close(); };
}
