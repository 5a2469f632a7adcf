// Tables of names: what there is, and a new one from a file.

import { isAbort } from "../api.js";
import { command, h, list } from "../dom.js";
import { moment, plural } from "../format.js";
import { MAIN } from "../state.js";
import { uploadForm } from "../upload.js";

export default {
  title: "Tables",
  async show(root, route, context) {
    const problem = h("div", { class: "wide" }), tables = h("ul", { class: "tiles wide", id: "tables" }), none = h("section", { class: "card empty", hidden: true }, ...first(context));
    root.append(h("div", { class: "head" }, h("h1", {}, "Tables"), h("p", { class: "quiet" }, "Names and attributes for the keys that events carry, such as the title of a video: questions group by them and show them.")),
      problem, none, tables, h("section", { class: "card wide", "aria-labelledby": "upload-title" }, h("h2", { id: "upload-title" }, "Upload a table"), uploadForm({ context, onDone: refresh })));

    async function refresh() {
      try {
        const { tables: found } = await context.ask("/v1/tables");
        problem.replaceChildren();
        none.hidden = found.length > 0;
        list(tables, found, { key: ({ name, changed }) => `${name} ${changed}`, make: tile });
      } catch (error) {
        if (!isAbort(error)) problem.replaceChildren(context.failed(error));
      }
    }

    function tile({ name, key, columns, rows, changed }) {
      return h("li", { class: "card" }, h("h2", {}, h("a", { href: context.link(`/tables/${encodeURIComponent(name)}`) }, name)),
        h("p", { class: "quiet" }, `${plural(rows, "row")} by ${key}, changed ${moment(changed)}`),
        h("ul", { class: "chips" }, Object.entries(columns).map(([column, type]) => h("li", { class: "chip" }, column, " ", h("span", { class: "quiet" }, type)))));
    }

    await refresh();
    context.on("status", () => { if (problem.firstChild) refresh(); });
    return null;
  },
};

function first({ tenant }) {
  const whose = tenant === MAIN ? "" : `&tenant=${tenant}`;
  return [h("h2", {}, "No table yet"), h("p", {}, "Choose a file below, or send one from a terminal. Its key is called like a label of your meters:"),
    command(`curl -X PUT '${location.origin}/v1/tables/videos?key=video${whose}' -H 'content-type: text/csv' \\\n  --data-binary $'video,title,channel\\nA,Cats,pets\\nB,Boats,travel\\n'`),
    h("p", {}, "Then ask with its columns, here for the largest channels:"),
    command(`curl '${location.origin}/v1/meters/views/top?by=videos.channel${whose}'`)];
}
