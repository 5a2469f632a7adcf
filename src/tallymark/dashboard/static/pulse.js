// The status once a second: from the stream /v1/status/live, and by asking while that says nothing.

import { ask, stream } from "./api.js";

const SILENT_MS = 2500;
const ASK_EVERY_MS = 1000;

export function pulse({ status, failed }) {
  let heardMs = 0, timer = 0;
  const hear = (found) => { heardMs = Date.now(); status(found); };
  const close = stream("/v1/status/live", { on: { status: hear } });
  const askIfSilent = async () => {
    if (!document.hidden && Date.now() - heardMs > SILENT_MS) {
      const askedMs = Date.now();
      try {
        const found = await ask("/v1/status");
        if (heardMs < askedMs) status(found);
      } catch (error) {
        if (heardMs < askedMs) failed(error);
      }
    }
    timer = setTimeout(askIfSilent, ASK_EVERY_MS);
  };
  askIfSilent();
  return () => { close(); clearTimeout(timer); };
}
