// The boards there are, and a new one.

import { isAbort } from "../api.js";
import { confirm, field, nameFrom } from "../dialogs.js";
import { command, h, list } from "../dom.js";
import { moment, plural } from "../format.js";
import { icon } from "../icons.js";
import { MAIN } from "../state.js";

export default {
  title: "Boards",
  async show(root, route, context) {
    const added = route.parameters.get("add"), problem = h("div", { class: "wide" });
    const boards = h("ul", { class: "tiles wide", id: "boards" }), none = h("section", { class: "card empty", hidden: true });
    root.append(h("div", { class: "head" }, h("h1", {}, "Boards"), h("p", { class: "quiet" }, added ? `Choose the board that ${added} goes on, or make one.` : "Saved queries on a page, for your team or for a screen on the wall.")), problem, none, boards, newBoard(context, added));

    async function refresh() {
      try {
        const [found, saved] = await Promise.all(["/v1/boards", "/v1/queries"].map((path) => context.ask(path)));
        problem.replaceChildren();
        none.hidden = found.boards.length > 0 && saved.queries.length > 0;
        none.replaceChildren(...(saved.queries.length ? [h("h2", {}, "No board yet"), h("p", {}, "Give the first one a title below; then add panels to it.")] : first(context)));
        list(boards, found.boards, { key: ({ name, changed }) => `${name} ${changed}`, make: tile });
      } catch (error) {
        if (!isAbort(error)) problem.replaceChildren(context.failed(error));
      }
    }

    function tile({ name, title, panels, changed }) {
      return h("li", { class: "card" }, h("h2", {}, h("a", { href: context.link(`/boards/${encodeURIComponent(name)}`, { add: added }) }, title || name)),
        h("p", { class: "quiet" }, `${plural(panels.length, "panel")}, changed ${moment(changed)}`),
        h("ul", { class: "chips" }, panels.slice(0, 8).map(({ query, title: own }) => h("li", { class: "chip" }, own || query)), panels.length > 8 ? h("li", { class: "quiet" }, `and ${panels.length - 8} more`) : null),
        h("div", { class: "actions" }, h("a", { class: "button", href: context.link(`/boards/${encodeURIComponent(name)}`, { wall: "1" }) }, icon("full"), "Wall"),
          h("button", { type: "button", class: "plain", "aria-label": `Delete the board ${name}`, on: { click: () => remove(name, title) } }, icon("close"))));
    }

    async function remove(name, title) {
      if (!await confirm(`Delete the board ${title || name}?`, { words: "The arrangement of its panels is lost. The saved queries it shows stay, with everything that is stored for them.", action: "Delete the board" })) return;
      await context.ask(`/v1/boards/${encodeURIComponent(name)}`, { method: "DELETE" }).catch((error) => problem.replaceChildren(context.failed(error)));
      refresh();
    }

    await refresh();
    const stop = context.on("status", () => { if (problem.firstChild) refresh(); });
    return stop;
  },
};

// A board shows saved queries, so that is where it begins.
function first({ link, tenant }) {
  const whose = tenant === MAIN ? "" : `?tenant=${tenant}`;
  return [h("h2", {}, "No saved query yet"),
    h("p", {}, "A board shows saved queries. ", h("a", { href: link("/ask") }, "Ask something"), " and press Save, or from a terminal:"),
    command(`curl -X PUT '${location.origin}/v1/queries/views_per_minute${whose}' -H 'content-type: text/plain' \\\n  -d 'FROM * SELECT events WINDOW 1m BY event'`),
    command(`tallymark queries add views_per_minute 'FROM * SELECT events WINDOW 1m BY event'${tenant === MAIN ? "" : ` --tenant ${tenant}`}`)];
}

function newBoard(context, added) {
  const title = field("Title", h("input", { id: "board-title", autocomplete: "off", required: true }));
  return h("section", { class: "card wide", "aria-labelledby": "new-title" }, h("h2", { id: "new-title" }, "New board"),
    h("form", { class: "choose", id: "new-board", on: { submit: async (event) => {
      event.preventDefault();
      const name = nameFrom(title.input.value) || `board_${Date.now()}`;
      title.fail(null);
      try {
        const known = (await context.ask("/v1/boards")).boards.map((board) => board.name);
        if (known.includes(name)) return title.fail(`There is already a board ${name}; choose another title.`);
        await context.ask(`/v1/boards/${encodeURIComponent(name)}`, { method: "PUT", body: { title: title.input.value.trim(), panels: [] } });
        context.go(`/boards/${encodeURIComponent(name)}`, { edit: "1", add: added });
      } catch (error) {
        if (!isAbort(error)) title.fail(error.message);
      }
    } } }, title.element, h("button", { type: "submit", class: "primary" }, icon("plus"), "Make it")));
}
