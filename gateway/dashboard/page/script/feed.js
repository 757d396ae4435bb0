// The events of one region, as a subscriber of this gateway gets them: a session of the WebSocket protocol.
import { make, say } from "./dom.js";
import { span } from "./format.js";
import { token } from "./gate.js";

const SHOWN_MAX = 120;
const LETTERS_MAX = 300;
const AGAIN_MS = 3000;

export class Feed {
  constructor(region, list) {
    Object.assign(this, { region, list, paused: false, closed: false, pending: [], total: 0 });
    this.status = make("span", { class: "note", role: "status" }, "joining …");
    this.button = make("button", { type: "button", class: "quiet", onclick: () => this.pause() }, "Pause");
    this.head = make("div", { class: "feedhead" }, make("h3", {}, "Events"), this.status, this.button);
    this.open();
  }

  open() {
    const at = new URL("../v1/socket", location.href);
    at.protocol = at.protocol.replace("http", "ws");
    const socket = new WebSocket(at, "gamecast.v1");
    this.socket = socket;
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: "hello", protocol: 1, batch_ms: 50, ...(token.get() ? { token: token.get() } : {}) }));
      this.subscribe();
    };
    socket.onmessage = ({ data }) => this.hear(JSON.parse(data));
    socket.onclose = ({ reason }) => {
      if (this.closed) return;
      if (!this.denied) say(this.status, `${reason || "disconnected"}; trying again …`);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.denied || this.open(), AGAIN_MS);
    };
  }

  subscribe() {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "subscribe", id: 1, regions: [this.region] }));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }

  hear(message) {
    if (message.type === "events") {
      this.total += message.events.length;
      const now = Date.now();
      this.pending.push(...message.events.map((event) => ({ ...event, age: event.sent_at_ms && now - event.sent_at_ms })));
      this.pending.splice(0, this.pending.length - SHOWN_MAX);
      if (!this.paused) requestAnimationFrame(() => this.show());
    } else if (message.type === "error" && message.retriable) {
      say(this.status, `${message.message}; trying again …`);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.subscribe(), message.retry_after_ms ?? AGAIN_MS);
    } else if (message.type === "error") {
      this.denied = true;
      clearTimeout(this.timer);
      say(this.status, message.message);
      if (message.code === "unauthorized") {
        const give = () => document.dispatchEvent(new Event("gamecast-token-wanted"));
        this.status.append(" ", make("button", { type: "button", class: "quiet", onclick: give }, "Give one"));
      }
    } else if (message.id === 1) {
      say(this.status, "live, newest first");
      if (!this.total) this.list.replaceChildren(make("li", { class: "gap quietly" }, make("span", { class: "note" }, "Nothing since you look.")));
    }
  }

  show() {
    if (!this.pending.length) return;
    if (this.list.querySelector(".quietly")) this.list.replaceChildren();
    const rows = this.pending.splice(0).reverse().map((event) => (event.gap ? gapRow(event) : eventRow(event)));
    this.list.prepend(...rows);
    while (this.list.children.length > SHOWN_MAX) this.list.lastChild.remove();
  }

  pause() {
    this.paused = !this.paused;
    say(this.button, this.paused ? "Go on" : "Pause");
    if (!this.paused) this.show();
  }
}

function eventRow(event) {
  const text = "base64" in event ? `${Math.floor((event.base64.length * 3) / 4)} bytes` : JSON.stringify(event.payload);
  const shown = text.length > LETTERS_MAX ? `${text.slice(0, LETTERS_MAX)}…` : text;
  return make("li", {},
    make("span", { class: "position", title: event.position }, event.position.split("-")[1]),
    make("span", { class: "sender", title: event.sender }, event.sender),
    make("code", { title: shown }, shown),
    make("span", { class: "age", title: "from the publisher's clock to this browser's" }, event.age > 0 ? span(event.age) : ""));
}

const gapRow = ({ gap }) => make("li", { class: "gap" }, `Gap from ${gap.first} to ${gap.last ?? "?"}: ${gap.reason}`);
