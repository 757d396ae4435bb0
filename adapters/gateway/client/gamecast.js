// A client of the gamecast gateway, for browsers and Node; the protocol is docs/gateway.md.
//
//   import { connect } from "/client/gamecast.js";
//   const game = connect("ws://localhost:8080", { token });
//   await game.subscribe(["forest", "river"]);
//   game.publish("forest", { type: "spell" });
//   for await (const event of game) console.log(event.region, event.sender, event.payload, event.position);
//
// It reconnects by itself and resumes: in order, with nothing lost and nothing published twice. Events that the
// network no longer has are reported by an event with `gap`.

const RECONNECT_MS = [50, 100, 250, 500, 1000, 2000, 5000];
const FINAL = new Map([[4000, "malformed"], [1003, "binary"], [1009, "too-large"], [4003, "denied"], [4009, "superseded"]]);
const NEEDS_TOKEN = new Set([4001, 4010]);
const QUEUE_MAX = 100_000;
const CONNECT_TIMEOUT_MS = 10_000;

export class GamecastError extends Error {
  constructor({ code, message, definite = true, retriable = false, retry_after_ms = null, region = null, key = null, position = null }) {
    super(message);
    this.name = "GamecastError";
    this.code = code;
    this.definite = definite;
    this.retriable = retriable;
    this.retryAfterMs = retry_after_ms;
    this.region = region;      // of "key-conflict": the key, its region, and where it was set last
    this.key = key;
    this.position = position;
  }
}

/** Connect to a gateway, or to one of several of the same network. */
export function connect(urls, options = {}) {
  return new Client(urls, options);
}

export class Client {
  #urls; #options; #socket = null; #closed = false; #attempt = 0; #ready = false;
  #nextId = 1;
  #wanted = new Map();       // region → position after which to continue, null while none is known
  #joining = new Map();      // id → { regions, since, state, resolve, reject }
  #states = new Map();       // region → entries of the parts of its state that have come so far
  #leaving = new Map();      // id → { regions, resolve, reject }
  #publishes = new Map();    // id → { message, sent, after, resolve, reject }
  #acked = new Map();        // region → position of the last answered publish; waiting publishes come after it
  #queue = []; #taker = null; #handlers = { event: [], gap: [], state: [], status: [] };
  #heardAt = 0; #heartbeatMs = 20_000; #beating = null; #retry = null; #failure = null;
  #batchLimit = 64;
  #trouble = null;           // why the last attempt to connect failed

  constructor(urls, options) {
    this.#urls = (Array.isArray(urls) ? urls : [urls]).map(socketAddress);
    if (this.#urls.length === 0) throw new TypeError("connect() needs the URL of a gateway: pass one, or a list of them");
    this.#options = options;
    /** The name that other clients see as the sender; the gateway chooses one if none was given. */
    this.name = options.name ?? null;
    /** The data that the game's backend sent in its answer to the connect hook; null if it sent none. */
    this.data = null;
    this.#open();
  }

  /** The position after which each region continues: a later client can pass it as `since`. */
  get positions() {
    return Object.fromEntries([...this.#wanted].filter(([, position]) => position !== null));
  }

  /** Join regions; resolves with region → position when all later events will be delivered.
   *  With state, the keys of each region come first, as one item with `state` in its place among the events. */
  subscribe(regions, { since = null, state = false } = {}) {
    const id = this.#nextId++;
    regions = typeof regions === "string" ? [regions] : [...regions];
    return new Promise((resolve, reject) => {
      if (this.#isOver(reject)) return;
      if (state && since !== null) return reject(new GamecastError({ code: "malformed", message: "subscribe with state, or with since, not both" }));
      const entry = { regions, since, state, resolve, reject, added: regions.filter((region) => !this.#wanted.has(region)) };
      this.#joining.set(id, entry);
      this.#limit(this.#joining, id, entry);
      for (const region of regions) {
        const from = since !== null && typeof since === "object" ? since[region] : since;
        if (!this.#wanted.has(region)) this.#wanted.set(region, typeof from === "string" ? from : null);
      }
      if (this.#ready) this.#sayJoin(id);
    });
  }

  /** Leave regions. */
  unsubscribe(regions) {
    const id = this.#nextId++;
    regions = typeof regions === "string" ? [regions] : [...regions];
    return new Promise((resolve, reject) => {
      if (this.#isOver(reject)) return;
      for (const region of regions) this.#wanted.delete(region);
      if (!this.#ready) return resolve();
      this.#leaving.set(id, { regions, resolve, reject });
      this.#say({ type: "unsubscribe", id, regions });
    });
  }

  /** Publish any JSON, or a Uint8Array; resolves with {region, position} when the event is durable.
   *  With a key, the event sets it, or deletes it with the payload null; onlyIf: where the key must have been set last.
   *  A list of regions: to all of them at once, or to none; resolves with positions, too, and onlyIf is {region: {key: …}}. */
  publish(region, payload, { key = null, onlyIf } = {}) {
    const id = this.#nextId++;
    const where = typeof region === "string" ? { region } : { regions: [...region] };
    const message = { type: "publish", id, ...where, ...encoded(payload) };
    if (key !== null) message.key = key;
    if (onlyIf !== undefined) message.only_if = onlyIf;
    return new Promise((resolve, reject) => {
      if (this.#isOver(reject)) return;
      if (this.#publishes.size >= (this.#options.unansweredMax ?? 10_000)) {
        return reject(new GamecastError({ code: "busy", message: "too many publishes wait: publish more slowly", retriable: true }));
      }
      const entry = { message, sent: false, after: null, resolve, reject };
      this.#publishes.set(id, entry);
      this.#limit(this.#publishes, id, entry);
      if (this.#ready) this.#sayPublish(entry);
    });
  }

  /** Register a handler: "event", "gap", "state", or "status" ("open", "waiting", "closed"). Returns a function that removes it. */
  on(kind, handler) {
    this.#handlers[kind].push(handler);
    return () => { this.#handlers[kind] = this.#handlers[kind].filter((each) => each !== handler); };
  }

  /** Close the connection; iteration ends after the events that have arrived. */
  close() {
    this.#end(new GamecastError({ code: "closed", message: "the client was closed" }), false);
  }

  [Symbol.asyncIterator]() {
    this.#handlers.iterates = true;
    return { next: () => this.#take(), return: async () => { this.close(); return { done: true, value: undefined }; } };
  }

  #take() {
    if (this.#queue.length) return Promise.resolve({ done: false, value: this.#queue.shift() });
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#closed) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => { this.#taker = { resolve, reject }; });
  }

  async #open() {
    let token;
    try {
      token = typeof this.#options.token === "function" ? await this.#options.token() : this.#options.token;
    } catch (error) {
      return this.#again(error);
    }
    if (this.#closed) return;
    const Socket = this.#options.WebSocket ?? globalThis.WebSocket;
    if (!Socket) return this.#end(new GamecastError({ code: "unsupported", message: "no WebSocket here: Node 22 has one, or pass { WebSocket }" }));
    const socket = this.#socket = new Socket(this.#urls[this.#attempt % this.#urls.length], "gamecast.v1");
    this.#heardAt = Date.now();
    socket.onopen = () => {
      const hello = { type: "hello", protocol: 1, batch_ms: this.#options.batchMs ?? 0 };
      if (token != null) hello.token = token;
      if (this.#options.messageBytesMax != null) hello.message_bytes_max = this.#options.messageBytesMax;
      if (this.name !== null) hello.name = this.name;
      socket.send(JSON.stringify(hello));
    };
    socket.onmessage = ({ data }) => { if (socket === this.#socket) this.#hear(JSON.parse(data)); };
    socket.onclose = ({ code, reason }) => { if (socket === this.#socket) this.#gone(code, reason); };
    // Node 20 reports no close if the connection was never established.
    socket.onerror = () => setTimeout(() => { if (socket === this.#socket && socket.readyState !== 1) this.#gone(1006, ""); });
    clearInterval(this.#beating);
    this.#beating = setInterval(() => this.#beat(socket), 1000);
    this.#beating.unref?.();
  }

  #hear(said) {
    this.#heardAt = Date.now();
    switch (said.type) {
      case "welcome": return this.#begin(said);
      case "events": return this.#deliver(said.events);
      case "acks":
        for (const ack of said.acks) {
          for (const [region, position] of placesOf(ack)) this.#acked.set(region, position);
          this.#settle(this.#publishes, ack.id, ack);
        }
        return;
      case "subscribed":
        for (const [region, position] of Object.entries(said.regions)) {
          if (this.#wanted.get(region) === null) this.#wanted.set(region, position);
        }
        return this.#settle(this.#joining, said.id, said.regions);
      case "unsubscribed": return this.#settle(this.#leaving, said.id, undefined);
      case "error": return this.#refused(said);
    }
  }

  #begin(welcome) {
    this.name = welcome.name;
    this.data = welcome.data ?? null;
    for (const region of welcome.subscribe ?? []) if (!this.#wanted.has(region)) this.#wanted.set(region, null);
    this.#heartbeatMs = welcome.heartbeat_ms;
    this.#batchLimit = welcome.limits.messages_per_array;
    this.#attempt = 0;
    this.#trouble = null;
    // One message for all regions with known positions: two messages would have two cuts.
    const resumed = Object.fromEntries([...this.#wanted].filter(([, position]) => position !== null));
    if (Object.keys(resumed).length) {
      this.#say({ type: "subscribe", id: "resume", regions: Object.keys(resumed), since: resumed });
    }
    for (const id of this.#joining.keys()) this.#sayJoin(id, resumed);
    const rest = [...this.#wanted].filter(([region, position]) => position === null
      && ![...this.#joining.values()].some(({ regions }) => regions.includes(region))).map(([region]) => region);
    if (rest.length) this.#say({ type: "subscribe", id: "again", regions: rest });
    for (const { resolve } of this.#leaving.values()) resolve();
    this.#leaving.clear();
    const sent = [...this.#publishes.values()];
    for (const entry of sent.filter((each) => each.sent)) this.#sayPublish(entry);
    this.#ready = true;
    for (const entry of sent.filter((each) => !each.sent)) this.#sayPublish(entry);
    this.#tell("status", "open");
  }

  #sayJoin(id, resumed = {}) {
    const { regions, since, state } = this.#joining.get(id);
    const left = regions.filter((region) => !(region in resumed));
    if (left.length === 0) return this.#settle(this.#joining, id, Object.fromEntries(regions.map((r) => [r, resumed[r]])));
    let from = since;
    if (since !== null && typeof since === "object") from = Object.fromEntries(left.map((region) => [region, since[region]]));
    this.#say({ type: "subscribe", id, regions: left, ...(from === null ? {} : { since: from }), ...(state ? { state } : {}) });
  }

  #sayPublish(entry) {
    const again = entry.sent;
    const region = entry.message.region ?? entry.message.regions[0];
    if (!again) entry.after = this.#wanted.get(region) ?? null;
    const acked = this.#acked.get(region);
    if (again && acked && (entry.after === null || comparePositions(entry.after, acked) < 0)) entry.after = acked;
    if (again && entry.after === null) {
      // No position of the region was known when it was sent: it is unknown where to search for it.
      this.#publishes.delete(entry.message.id);
      return entry.reject(new GamecastError({ code: "uncertain", message: "the connection was lost, and the region is not subscribed to: it may or may not have been published", definite: false }));
    }
    entry.sent = true;
    this.#say(again ? { ...entry.message, retry: true, after: entry.after } : entry.message);
  }

  #deliver(events) {
    for (const event of events) {
      if ("state" in event && !this.#isWhole(event)) continue;
      if (event.regions) this.#keepWanted(event);
      if (!this.#wanted.has(event.region)) continue;
      for (const [region, position] of placesOf(event)) this.#wanted.set(region, position);
      if ("base64" in event) {
        event.payload = bytesOf(event.base64);
        delete event.base64;
      }
      this.#tell("state" in event ? "state" : "gap" in event ? "gap" : "event", event);
      if (this.#taker) {
        this.#taker.resolve({ done: false, value: event });
        this.#taker = null;
      } else if (this.#handlers.iterates || !this.#handlers.event.length) {
        this.#queue.push(event);
        if (this.#queue.length > (this.#options.queueMax ?? QUEUE_MAX)) {
          return this.#end(new GamecastError({ code: "too-slow", message: "the program read its events too slowly" }));
        }
      }
    }
  }

  /** Collect the parts of a region's state; with the last one, the item has all of it. */
  #isWhole(item) {
    for (const value of Object.values(item.state)) {
      if (!("base64" in value)) continue;
      value.payload = bytesOf(value.base64);
      delete value.base64;
    }
    const entries = item.part ? this.#states.get(item.region) ?? [] : [];
    for (const entry of Object.entries(item.state)) entries.push(entry);
    if (item.more) {
      this.#states.set(item.region, entries);
      return false;
    }
    this.#states.delete(item.region);
    item.state = Object.fromEntries(entries);
    delete item.part;
    delete item.more;
    return true;
  }

  /** Drop from an event of several regions those that the program has left. */
  #keepWanted(event) {
    const kept = event.regions.filter((region) => this.#wanted.has(region));
    if (kept.length === 0 || kept.length === event.regions.length) return;
    event.regions = kept;
    event.positions = Object.fromEntries(kept.map((region) => [region, event.positions[region]]));
    if (!kept.includes(event.region)) [event.region, event.position] = [kept[0], event.positions[kept[0]]];
  }

  #refused(said) {
    const error = new GamecastError(said);
    for (const waiting of [this.#joining, this.#leaving, this.#publishes]) {
      if (waiting.has(said.id)) {
        const { reject, added } = waiting.get(said.id);
        waiting.delete(said.id);
        if (waiting === this.#joining) added.forEach((region) => this.#wanted.delete(region));
        return reject(error);
      }
    }
    if (said.id === "resume" || said.id === "again") {
      if (said.retriable) return this.#socket.close(4000);
      return this.#end(error);
    }
    this.lastError = error;
  }

  #settle(waiting, id, value) {
    const entry = waiting.get(id);
    if (entry) {
      waiting.delete(id);
      entry.resolve(value);
    }
  }

  /** Reject a call if there is no connection for too long. */
  #limit(waiting, id, entry) {
    const timeoutMs = this.#options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    if (this.#ready || !Number.isFinite(timeoutMs)) return;
    const deadline = entry.deadline = Date.now() + timeoutMs;
    const timer = setTimeout(() => {
      // It may have been answered, or the connection was restored and lost again, which sets another deadline.
      if (this.#ready || waiting.get(id) !== entry || entry.deadline !== deadline) return;
      waiting.delete(id);
      if (waiting === this.#joining) entry.added.forEach((region) => this.#wanted.delete(region));
      const error = this.lastError = this.#unreachable(` for ${timeoutMs / 1000} s`);
      entry.reject(entry.sent
        ? new GamecastError({ code: "uncertain", message: `${error.message}: it may or may not have been published`, definite: false })
        : error);
    }, timeoutMs);
    timer.unref?.();
  }

  #unreachable(since = "") {
    const why = this.#trouble ? ` (${this.#trouble})` : "";
    const message = `no gateway answers at ${this.#urls.join(" or ")}${since}${why}; the client keeps trying until close()`;
    return new GamecastError({ code: "unreachable", message, retriable: true });
  }

  #gone(code, reason) {
    const wasReady = this.#ready;
    this.#ready = false;
    this.#socket = null;
    clearInterval(this.#beating);
    if (this.#closed) return;
    if (FINAL.has(code)) return this.#end(new GamecastError({ code: FINAL.get(code), message: reason || "refused" }));
    if (NEEDS_TOKEN.has(code) && typeof this.#options.token !== "function") {
      return this.#end(new GamecastError({ code: code === 4010 ? "expired" : "unauthorized", message: reason || "no good token" }));
    }
    if (wasReady) {
      for (const waiting of [this.#joining, this.#publishes]) {
        for (const [id, entry] of waiting) this.#limit(waiting, id, entry);
      }
    }
    this.#again(reason || `closed with ${code}`);
  }

  /** Connect again, after a while. `trouble`: the reason. */
  #again(trouble) {
    if (this.#closed) return;
    this.#trouble = trouble?.message ?? trouble ?? null;
    this.lastError = this.#unreachable();
    const wait = RECONNECT_MS[Math.min(this.#attempt, RECONNECT_MS.length - 1)];
    this.#attempt += 1;
    this.#tell("status", "waiting");
    this.#retry = setTimeout(() => this.#open(), wait * (0.5 + Math.random()));
  }

  #beat(socket) {
    const silentMs = Date.now() - this.#heardAt;
    if (silentMs > 2 * this.#heartbeatMs + 1000) {
      socket.onclose = null;
      socket.close();
      this.#gone(1006, "silent");
    } else if (this.#ready && silentMs > this.#heartbeatMs) {
      this.#say({ type: "ping" });
    }
  }

  #say(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #tell(kind, value) {
    for (const handler of this.#handlers[kind]) handler(value);
  }

  #isOver(reject) {
    if (this.#closed) reject(this.#failure ?? new GamecastError({ code: "closed", message: "the client was closed" }));
    return this.#closed;
  }

  #end(error, isFailure = true) {
    if (this.#closed) return;
    this.#closed = true;
    this.#failure = isFailure ? error : null;
    clearInterval(this.#beating);
    clearTimeout(this.#retry);
    this.#socket?.close(1000);
    for (const waiting of [this.#joining, this.#leaving]) {
      for (const { reject } of waiting.values()) reject(error);
      waiting.clear();
    }
    for (const { reject, sent } of this.#publishes.values()) {
      reject(sent ? new GamecastError({ code: "uncertain", message: `${error.message}: it may or may not have been published`, definite: false }) : error);
    }
    this.#publishes.clear();
    if (this.#taker) {
      isFailure ? this.#taker.reject(error) : this.#taker.resolve({ done: true, value: undefined });
      this.#taker = null;
    }
    this.#tell("status", "closed");
  }
}

/** Compare two positions of one region: negative when the first comes before the second. */
export function comparePositions(one, other) {
  const [epoch, sequence] = one.split("-").map(Number);
  const [otherEpoch, otherSequence] = other.split("-").map(Number);
  return epoch - otherEpoch || sequence - otherSequence;
}

/** The regions and positions of an event, a gap or a receipt. */
function placesOf({ region, position, positions }) {
  if (positions) return Object.entries(positions);
  return position === null ? [] : [[region, position]];
}

function socketAddress(url) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace("http", "ws");
  if (!address.pathname.endsWith("/v1/socket")) address.pathname = `${address.pathname.replace(/\/$/, "")}/v1/socket`;
  return address.href;
}

function encoded(payload) {
  if (!(payload instanceof Uint8Array)) return { payload: payload === undefined ? null : payload };
  let binary = "";
  for (let at = 0; at < payload.length; at += 8192) binary += String.fromCharCode(...payload.subarray(at, at + 8192));
  return { base64: btoa(binary) };
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
