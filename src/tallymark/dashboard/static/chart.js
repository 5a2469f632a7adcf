// The chart of events per second: two lines over the last two minutes, drawn as SVG.

const SPAN_MS = 120_000;
const MARGIN = { left: 52, right: 10, top: 8, bottom: 22 };
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const long = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

export class Chart {
  constructor(svg) {
    this.svg = svg;
    this.beats = [];
    this.nowMs = 0;
    this.pointer = null;
    new ResizeObserver(() => this.draw()).observe(svg);
    svg.addEventListener("pointermove", (event) => { this.pointer = event.offsetX; this.draw(); });
    svg.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  show(beats, nowMs) {
    this.beats = beats;
    this.nowMs = nowMs;
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width || !this.nowMs) return;
    const highest = niceCeiling(Math.max(1, ...this.beats.map((beat) => Math.max(beat.accepted, beat.applied))));
    const x = (ms) => MARGIN.left + (1 - (this.nowMs - ms) / SPAN_MS) * (width - MARGIN.left - MARGIN.right);
    const y = (rate) => height - MARGIN.bottom - (rate / highest) * (height - MARGIN.top - MARGIN.bottom);
    const shown = this.beats.filter((beat) => x(beat.at_ms) >= MARGIN.left);
    const parts = [...grid(highest, width, height, y), ...times(this.nowMs, height, x)];
    if (shown.length > 1) {
      const path = (what) => "M" + shown.map((beat) => `${x(beat.at_ms).toFixed(1)} ${y(beat[what]).toFixed(1)}`).join("L");
      const [first, last] = [x(shown[0].at_ms), x(shown.at(-1).at_ms)];
      parts.push(shape("path", { class: "area", d: `${path("applied")}L${last} ${y(0)}L${first} ${y(0)}Z` }));
      parts.push(shape("path", { class: "accepted", d: path("accepted") }));
      parts.push(shape("path", { class: "counted", d: path("applied") }));
      if (this.pointer !== null) parts.push(...reading(shown, this.pointer, x, width, height));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts);
    const latest = this.beats.at(-1);
    if (latest) {
      const words = `${long.format(latest.applied)} taken into the counts and ${long.format(latest.accepted)} accepted in the last second`;
      this.svg.setAttribute("aria-label", `Events per second over the last two minutes: ${words}`);
    }
  }
}

function* grid(highest, width, height, y) {
  for (const share of [0, 0.5, 1]) {
    const at = y(highest * share);
    yield shape("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at });
    yield shape("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, short.format(highest * share));
  }
}

function* times(nowMs, height, x) {
  for (const [seconds, words, anchor] of [[120, "2 min ago", "start"], [60, "1 min ago", "middle"], [0, "now", "end"]]) {
    yield shape("text", { x: x(nowMs - seconds * 1000), y: height - 5, "text-anchor": anchor }, words);
  }
}

function* reading(shown, pointer, x, width, height) {
  const beat = shown.reduce((best, each) => (Math.abs(x(each.at_ms) - pointer) < Math.abs(x(best.at_ms) - pointer) ? each : best));
  const at = x(beat.at_ms);
  yield shape("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: height - MARGIN.bottom });
  const right = at > width / 2;
  const words = `${new Date(beat.at_ms).toLocaleTimeString()}  ${long.format(beat.applied)} counted, ${long.format(beat.accepted)} accepted`;
  yield shape("text", { class: "reading", x: at + (right ? -8 : 8), y: MARGIN.top + 12, "text-anchor": right ? "end" : "start" }, words);
}

function shape(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// A round number just above: the axis is read at a glance, and its half is round too.
export function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}
