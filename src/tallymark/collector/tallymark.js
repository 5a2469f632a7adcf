// Events from a page:  tallymark.init({url: "https://…"});  tallymark.count("view", {video: "A"});
// They are sent in batches, again (with the same ids) if no answer came, and at once when the page is hidden or goes.
(() => {
  "use strict";
  const BATCH = 50, LINGER_MS = 1000, MOST = 1000;
  const MOST_BYTES = 48000, MOST_ALOFT = 60000; // browsers let 64 kB of keepalive requests and beacons be on their way
  const EXTRA_BYTES = 32; // `resent` and a comma
  const FIRST_PAUSE_MS = 250, MOST_PAUSE_MS = 30000, PATIENCE_MS = 15000;

  const counts = {called: 0, delivered: 0, refused: 0, dropped: 0, beaconed: 0};
  // By address and key. An event stays with the target it was meant for, and one that is down holds up no other.
  const targets = {};
  const open = (url, key) => targets[`${url} ${key}`] ||=
    {url, key, queue: [], flying: 0, failures: 0, notBefore: 0, timer: 0, due: Infinity}; // flying: without an answer
  let target = open("", ""); // of the events to come; this one only collects those before the first init
  let aloft = 0; // bytes of requests that may outlive the page

  function init(options) {
    // As a parameter: a header would need a preflight, and beacons have none.
    const tenant = options.tenant ? "?tenant=" + encodeURIComponent(options.tenant) : "";
    const early = target.url ? [] : target.queue.splice(0);
    target = open(options.url.replace(/\/+$/, "") + "/v1/events" + tenant, options.key || "");
    target.queue.push(...early);
    wake(target, 0);
  }

  const count = (name, props) => event(name, {props});

  function event(name, {value, values, props, id = newId(), time = Date.now()} = {}) {
    const json = JSON.stringify({event: name, id, time, value, values, props});
    counts.called++;
    if (queued() >= MOST) counts.dropped++;
    else target.queue.push({json, bytes: new Blob([json]).size + EXTRA_BYTES, resent: 0});
    wake(target, target.queue.length < BATCH ? LINGER_MS : 0);
    return id;
  }

  const queued = () => Object.values(targets).reduce((sum, {queue, flying}) => sum + queue.length + flying, 0);
  const stats = () => ({...counts, queued: queued()});

  // crypto.randomUUID is missing on pages without https.
  const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), b => b.toString(16).padStart(2, "0")).join("");

  function wake(to, ms) {
    const at = Math.max(Date.now() + ms, to.notBefore);
    if (!to.url || to.flying || !to.queue.length || at >= to.due) return;
    clearTimeout(to.timer);
    to.due = at;
    to.timer = setTimeout(send, at - Date.now(), to);
  }

  const size = batch => batch.reduce((sum, {bytes}) => sum + bytes, 0);

  function take({queue}, room) {
    let bytes = 0, length = 0;
    while (length < Math.min(BATCH, queue.length) && (bytes += queue[length].bytes) <= Math.min(room, MOST_BYTES)) length++;
    return queue.splice(0, length);
  }

  // As text/plain it is a simple request: no preflight. An event that was tried before says when that was.
  function request(batch, key) {
    const events = batch.map(({json, resent}) => resent ? `${json.slice(0, -1)},"resent":${resent}}` : json);
    return {
      method: "POST",
      body: `{"sent_at":${Date.now()},"events":[${events}]}`,
      headers: {"content-type": "text/plain", ...(key && {authorization: `Bearer ${key}`})},
      keepalive: size(batch) <= MOST_BYTES,
    };
  }

  function send(to) {
    to.due = Infinity;
    if (to.flying || !to.queue.length) return;
    const batch = take(to, MOST_BYTES);
    deliver(to, batch.length ? batch : to.queue.splice(0, 1));
  }

  async function deliver(to, batch) {
    const triedAt = Date.now(), bytes = size(batch) <= MOST_BYTES ? size(batch) : 0;
    let again = batch, pause = 0, unknown = true;
    to.flying += batch.length;
    aloft += bytes;
    try {
      const answer = await fetch(to.url, {...request(batch, to.key), signal: AbortSignal.timeout(PATIENCE_MS)});
      again = settle(batch, answer, await answer.text());
      unknown = answer.status !== 429; // even "not durable" may have reached the log
      pause = 1000 * answer.headers.get("retry-after") || 0;
    } catch {} // no answer: nobody knows what became of them
    if (unknown) for (const each of again) each.resent ||= triedAt;
    to.queue = again.concat(to.queue);
    to.flying -= batch.length;
    aloft -= bytes;
    to.failures = again.length ? to.failures + 1 : 0;
    if (to.failures) {
      const most = Math.min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (to.failures - 1));
      to.notBefore = Date.now() + Math.max(pause, Math.random() * most);
    }
    wake(to, to.queue.length < BATCH && !to.failures ? LINGER_MS : 0);
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
  const hide = to => { for (let batch; (batch = take(to, MOST_ALOFT - aloft)).length;) deliver(to, batch); };

  // A page that goes hears no answer any more: beacons. They carry no key.
  function leave(to, room) {
    for (let batch; (batch = take(to, room)).length; room -= size(batch)) {
      if (!navigator.sendBeacon(to.url, request(batch).body)) {
        to.queue = batch.concat(to.queue);
        break;
      }
      counts.beaconed += batch.length;
    }
    return room;
  }

  const known = () => Object.values(targets).filter(({url}) => url);
  addEventListener("pagehide", () => {
    let room = MOST_ALOFT - aloft;
    for (const to of known()) {
      if (to.key) hide(to);
      else room = leave(to, room);
    }
  });
  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && known().forEach(hide));
  window.tallymark = {init, count, event, stats};
})();
