// Lists of any length: the gateway sorts and searches, and hands out the rows that can be seen.
import { byId, make, say } from "./dom.js";
import { count, counted, rate, span, trouble, UNKNOWN } from "./format.js";
import { ask } from "./gate.js";
import { chosenName, showRegion, showSubscriber } from "./region.js";

const ROW = 34;
const AROUND = 12;
const FULL = 374;

export const regionList = () =>
  new List("regions", "region", showRegion, { order: "events_per_s", descending: true }, [
    { order: "name", title: "region", width: "18%" },
    { order: "hops", title: "path", width: "14%", text: true, value: ({ path }) => path.join(" → ") },
    { order: "condition", title: "state", width: "18%", text: true, value: (row) => trouble(row) || "ok" },
    { order: "events_per_s", title: "events/s", width: "10%", value: (row) => rate(row.events_per_s) },
    { order: "behind", title: "on the way", width: "11%", value: (row) => count(row.behind) },
    { order: "subscribers", title: "sub­scribers", width: "12%", value: (row) => count(row.subscribers) },
    { order: "atoms", title: "atoms", width: "7%", value: (row) => count(row.atoms) },
    { order: "last", title: "last no.", width: "10%", value: (row) => (row.last === null ? UNKNOWN : row.last ? count(row.last) : "none") },
  ]);

export const subscriberList = () =>
  new List("subscribers", "subscriber", showSubscriber, { order: "name", descending: false }, [
    { order: "name", title: "subscriber", width: "16%" },
    { order: "condition", title: "state", width: "18%", text: true, value: (row) => (row.alive ? trouble(row) || "ok" : "gone") },
    { order: "regions", title: "regions", value: (row) => `${count(row.regions)}${row.waiting ? `, ${count(row.waiting)} not granted` : ""}` },
    { order: "delivered_per_s", title: "delivered /s", width: "12%", value: (row) => rate(row.delivered_per_s) },
    { order: "events_per_s", title: "published there /s", width: "12%", value: (row) => rate(row.events_per_s) },
    { order: "held", title: "held frames", value: (row) => count(row.held) },
    { order: "queued", title: "queued events", value: (row) => count(row.queued) },
    { order: "heard_ms_ago", title: "heard ago", width: "10%", value: (row) => (row.heard_ms_ago === null ? "never" : span(row.heard_ms_ago)) },
  ]);

export const laggingList = () =>
  new List("lagging", "reader", showSubscriber, { order: "behind", descending: true }, [
    { order: "name", title: "reader", width: "24%" },
    { order: "where", title: "where", width: "12%", text: true, value: (row) => row.where },
    { order: "behind", title: "events behind", value: (row) => count(row.behind) },
    { order: "behind_s", title: "time behind", value: (row) => (row.behind_s === null ? UNKNOWN : span(row.behind_s * 1000)) },
    { order: "inbox", title: "queued events", value: (row) => count(row.inbox) },
    { order: "held", title: "held frames", value: (row) => count(row.held) },
    { order: "regions", title: "regions", width: "16%", value: (row) => `${count(row.regions)}${row.stuck_regions ? `, ${count(row.stuck_regions)} stuck` : ""}${row.held_regions ? `, ${count(row.held_regions)} held` : ""}` },
  ], "No game server and no reader of this gateway is behind.");

const STILL_PX = 4;

class List {
  constructor(place, one, choose, sorted, columns, nothing = `There is no ${one} yet.`) {
    Object.assign(this, { place, one, choose, sorted, columns, nothing, matching: 0, asked: 0 });
    this.before = make("tr", { class: "space", "aria-hidden": "true" }, make("td", { colspan: columns.length }));
    this.after = make("tr", { class: "space", "aria-hidden": "true" }, make("td", { colspan: columns.length }));
    this.body = make("tbody");
    this.heads = columns.map((column) => {
      const button = make("button", { type: "button", onclick: () => this.sort(column.order) }, column.title);
      const head = make("th", { scope: "col", class: column.text && "text" }, button);
      if (column.width) head.style.width = column.width;
      return head;
    });
    this.table = make("table", { "aria-labelledby": `${place}-title` }, make("thead", {}, make("tr", { "aria-rowindex": 1 }, ...this.heads)), this.body);
    this.scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": `${place}-title`, onscroll: () => this.later() }, this.table);
    this.search = byId(`${place}-search`);
    this.search.addEventListener("input", () => {
      this.scroll.scrollTop = 0;
      this.later(120);
    });
    byId(place).append(this.scroll);
    this.mark();
    // A click is lost if its button is replaced, or moved by a longer line above it, before it is let go.
    this.body.addEventListener("pointerdown", (event) => (this.pressed = event));
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, (event) => setTimeout(() => this.letGo(event)));
  }

  letGo(event) {
    const button = this.pressed?.target.closest("button");
    const still = button && Math.hypot(event.clientX - this.pressed.clientX, event.clientY - this.pressed.clientY) < STILL_PX;
    this.pressed = null;
    if (still && event.type === "pointerup" && !button.contains(event.target)) button.click();
    if (this.held) this.show(this.held);
  }

  sort(order) {
    const same = this.sorted.order === order;
    this.sorted = { order, descending: same ? !this.sorted.descending : order !== "name" && order !== "hops" };
    this.scroll.scrollTop = 0;
    this.mark();
    this.refresh();
  }

  mark() {
    this.columns.forEach(({ order }, place) => {
      const way = this.sorted.descending ? "descending" : "ascending";
      if (order === this.sorted.order) this.heads[place].setAttribute("aria-sort", way);
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  later(wait = 30) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), wait);
  }

  async refresh() {
    const turn = ++this.asked;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - AROUND);
    const limit = Math.ceil(Math.max(FULL, this.scroll.clientHeight) / ROW) + 2 * AROUND;
    try {
      const found = await ask(this.place, {
        search: this.search.value.trim(),
        order: this.sorted.order,
        descending: this.sorted.descending ? 1 : 0,
        offset: first,
        limit,
      });
      if (turn === this.asked) this.show(found);
    } catch {
      // The stream tells when the gateway is gone; what is shown stays.
    }
  }

  show(found) {
    this.held = this.pressed ? found : null;
    if (this.pressed) return;
    const { rows, matching, total, offset } = found;
    const searched = this.search.value.trim() !== "";
    say(byId(`${this.place}-note`), searched ? `${count(matching)} of ${count(total)} match` : counted(total, this.one));
    this.table.setAttribute("aria-rowcount", matching + 1);
    this.before.firstChild.style.height = `${offset * ROW}px`;
    this.after.firstChild.style.height = `${Math.max(0, matching - offset - rows.length) * ROW}px`;
    this.scroll.classList.toggle("few", (matching + 2) * ROW < FULL);
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    const shown = rows.map((row, place) => this.row(row, offset + place));
    if (!rows.length) {
      const text = searched ? `No ${this.one} has “${this.search.value.trim()}” in its name.` : this.nothing;
      shown.push(make("tr", {}, make("td", { colspan: this.columns.length, class: "empty" }, text)));
    }
    this.body.replaceChildren(this.before, ...shown, this.after);
    if (focused !== undefined) {
      [...this.body.querySelectorAll("tr.row")].find((row) => row.dataset.name === focused)?.querySelector("button").focus({ preventScroll: true });
    }
  }

  row(row, place) {
    const cells = this.columns.map(({ order, value, text }) => {
      if (order !== "name") return make("td", { class: text && (order === "condition" ? "path state" : "path"), title: order === "condition" ? trouble(row) || null : null }, value(row));
      const chosen = () => {
        this.choose(row.name);
        this.body.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
      };
      return make("td", {}, make("button", { type: "button", title: row.name, onclick: chosen }, row.name));
    });
    const state = [row.condition, row.alive === false && "gone", chosenName(this.one) === row.name && "chosen"].filter(Boolean);
    return make("tr", { class: ["row", ...state].join(" "), "aria-rowindex": place + 2, "data-name": row.name }, ...cells);
  }
}
