// Events from a page:  tallymark.init({url: "https://…"});  tallymark.count("view", {video: "A"});
// They are sent in batches, again (with the same ids) if no answer came, and at once when the page is hidden or goes.
(() => {
  "use strict";
  const BATCH = 50, LINGER_MS = 1000, MOST = 1000;
  const MOST_BYTES = 48000, MOST_ALOFT = 60000; // browsers let 64 kB of keepalive requests and beacons be on their way
  const EXTRA_BYTES = 32; // `resent` and a comma
  const FIRST_PAUSE_MS = 250, MOST_PAUSE_MS = 30000, PATIENCE_MS = 15000;

  const counts = {called: 0, delivered: 0, refused: 0, dropped: 0, beaconed: 0};
  let target = "", key = "";
  let queue = [], flying = 0, aloft = 0; // events without an answer; bytes of those that may outlive the page
  let failures = 0, notBefore = 0, timer = 0, due = Infinity;

  function init(options) {
    // As a parameter: a header would need a preflight, and beacons have none.
    const tenant = options.tenant ? "?tenant=" + encodeURIComponent(options.tenant) : "";
    target = options.url.replace(/\/+$/, "") + "/v1/events" + tenant;
    key = options.key || "";
    wake(0);
  }

  const count = (name, props) => event(name, {props});

  function event(name, {value, values, props, id = newId(), time = Date.now()} = {}) {
    const json = JSON.stringify({event: name, id, time, value, values, props});
    counts.called++;
    if (queue.length + flying >= MOST) counts.dropped++;
    else queue.push({json, bytes: new Blob([json]).size + EXTRA_BYTES, resent: 0});
    wake(queue.length < BATCH ? LINGER_MS : 0);
    return id;
  }

  const stats = () => ({...counts, queued: queue.length + flying});

  // crypto.randomUUID is missing on pages without https.
  const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, "0")).join("");

  function wake(ms) {
    const at = Math.max(Date.now() + ms, notBefore);
    if (!target || flying || !queue.length || at >= due) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(send, at - Date.now());
  }

  const size = batch => batch.reduce((sum, {bytes}) => sum + bytes, 0);

  function take(room) {
    let bytes = 0, length = 0;
    while (length < Math.min(BATCH, queue.length) && (bytes += queue[length].bytes) <= Math.min(room, MOST_BYTES)) length++;
    return queue.splice(0, length);
  }

  // As text/plain it is a simple request: no preflight. An event that was tried before says when that was.
  function request(batch) {
    const events = batch.map(({json, resent}) => resent ? `${json.slice(0, -1)},"resent":${resent}}` : json);
    return {
      method: "POST",
      body: `{"sent_at":${Date.now()},"events":[${events}]}`,
      headers: {"content-type": "text/plain", ...(key && {authorization: `Bearer ${key}`})},
      keepalive: size(batch) <= MOST_BYTES,
    };
  }

  function send() {
    due = Infinity;
    if (flying || !queue.length) return;
    const batch = take(MOST_BYTES);
    deliver(batch.length ? batch : queue.splice(0, 1));
  }

  async function deliver(batch) {
    const triedAt = Date.now(), bytes = size(batch) <= MOST_BYTES ? size(batch) : 0;
    let again = batch, pause = 0, unknown = true;
    flying += batch.length;
    aloft += bytes;
    try {
      const answer = await fetch(target, {...request(batch), signal: AbortSignal.timeout(PATIENCE_MS)});
      again = settle(batch, answer, await answer.text());
      unknown = answer.status !== 429; // even "not durable" may have reached the log
      pause = 1000 * answer.headers.get("retry-after") || 0;
    } catch {} // no answer: nobody knows what became of them
    if (unknown) for (const each of again) each.resent ||= triedAt;
    queue = again.concat(queue);
    flying -= batch.length;
    aloft -= bytes;
    failures = again.length ? failures + 1 : 0;
    if (failures) {
      const most = Math.min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
      notBefore = Date.now() + Math.max(pause, Math.random() * most);
    }
    wake(queue.length < BATCH && !failures ? LINGER_MS : 0);
  }

  // The events of a batch that are worth another try.
  function settle(batch, {ok, status}, text) {
    let errors;
    try { errors = JSON.parse(text).errors; } catch {}
    if (Array.isArray(errors)) {
      const again = errors.filter(error => error.retryable);
      counts.delivered += batch.length - errors.length;
      counts.refused += errors.length - again.length;
      return again.map(error => batch[error.index]);
    }
    if (status === 408 || status === 429 || status >= 500) return batch;
    counts[ok ? "delivered" : "refused"] += batch.length;
    return [];
  }

  // A hidden page may never be seen again, or come back: it sends all that fits, and what fails waits for another try.
  function hide() {
    for (let batch; target && (batch = take(MOST_ALOFT - aloft)).length;) deliver(batch);
  }

  // A page that goes hears no answer any more: beacons. They carry no key.
  function leave() {
    if (key) return hide();
    let room = MOST_ALOFT - aloft;
    for (let batch; target && (batch = take(room)).length; room -= size(batch)) {
      if (!navigator.sendBeacon(target, request(batch).body)) {
        queue = batch.concat(queue);
        return;
      }
      counts.beaconed += batch.length;
    }
  }

  addEventListener("pagehide", leave);
  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && hide());
  window.tallymark = {init, count, event, stats};
})();
