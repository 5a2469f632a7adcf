// Icons as paths on a grid of 24, drawn with the colour of the text.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  meters: "M4 20V10M10 20V4M16 20v-7M22 20H2",
  ask: "M4 5h16v11H9l-5 4zM9 9h6M9 12h4",
  boards: "M3 4h8v9H3zM13 4h8v5h-8zM13 11h8v9h-8zM3 15h8v5H3z",
  tables: "M3 5h18v14H3zM3 10h18M9 10v9",
  "dead-letters": "M3 6h18v12H3zM3 7l9 6 9-6M15 15l4 4M19 15l-4 4",
  live: "M12 12h.01M8.5 15.5a5 5 0 0 1 0-7M15.5 8.5a5 5 0 0 1 0 7M5.6 18.4a9 9 0 0 1 0-12.8M18.4 5.6a9 9 0 0 1 0 12.8",
  plus: "M12 5v14M5 12h14",
  menu: "M4 6h16M4 12h16M4 18h16",
  close: "M6 6l12 12M18 6L6 18",
  right: "M9 5l7 7-7 7",
  collector: "M12 3v11M7 9l5 5 5-5M4 17v3h16v-3",
  log: "M5 5h14M5 10h14M5 15h14M5 20h9",
  pipeline: "M4 6h5l6 12h5M4 18h5l2-4M13 10l2-4h5",
  store: "M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0",
  answer: "M4 5h16v11H9l-5 4zM9 11l2 2 4-5",
  check: "M5 12l5 5 9-10",
  warning: "M12 4l10 17H2zM12 10v5M12 18h.01",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  download: "M12 3v12M7 10l5 5 5-5M4 20h16",
  full: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
};

export function icon(name) {
  const box = { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" };
  return svg("svg", box, svg("path", { d: PATHS[name] }));
}
