// A client of the gamecast gateway, for browsers and Node; docs/javascript.md explains it, docs/gateway.md the protocol.
//
//   import { connect } from "/client/gamecast.js";
//   const game = connect("ws://localhost:8080", { token });
//   const forest = game.subscription("forest");
//   forest.on("event", (event) => console.log(event.sender, event.payload, event.position));
//   await forest.subscribe();
//   game.publish("forest", { type: "spell" });
//
// It reconnects by itself and resumes: in order, with nothing lost and nothing published twice. Events that the
// network no longer has are reported by an event with `gap`.

/** The version of the wire protocol (docs/gateway.md). */
export const PROTOCOL_VERSION = 1;

const RECONNECT_MS = [50, 100, 250, 500, 1000, 2000, 5000];
const FINAL = { 4000: "malformed", 1003: "binary", 1009: "too-large", 4003: "denied", 4009: "superseded" };
const KINDS = ["event", "gap", "state", "presence", "update", "status", "error"];
const QUEUE_MAX = 100_000;
const CONNECT_TIMEOUT_MS = 10_000;
const TOKEN_TIMEOUT_MS = 30_000;
const HISTORY_TIMEOUT_MS = 30_000;
const HEARTBEAT_MS = 20_000;
// Timers of more milliseconds run at once.
const TIMER_MS_MAX = 2 ** 31 - 1;
// Browsers and ws take messages of any size; the gateway has a lower limit of its own.
const MESSAGE_BYTES_MAX = 2 ** 24;
// Timers of a sleeping machine stand still, and those of a hidden page are slow: only the server can say if it is there.
const SLEEP_MS = 5000;
const STEADY_MS = 5000;
const LOST_MS = 60_000;
const PROBE_MS = 3000;
const DEPTH_MAX = 64;
const POSITION = /^\d+-\d+$/;
// As JSON.stringify writes a surrogate without its other half, which is not Unicode.
const LONE_SURROGATE = /(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/;

export class GamecastError extends Error {
  constructor({ code, message, definite = true, retriable = false, retry_after_ms = null, region = null, key = null, position = null, cause }) {
    super(message, cause && { cause });
    this.name = "GamecastError";
    // Of "key-conflict": the key, its region, and where it was set last.
    Object.assign(this, { code, definite, retriable, retryAfterMs: retry_after_ms, region, key, position });
  }
}

const failure = (code, message, more) => new GamecastError({ code, message, ...more });
const uncertain = (message) => failure("uncertain", `${message}: it may or may not have been published`, { definite: false });

const OPTIONS = ["token", "tokenTimeoutMs", "name", "batchMs", "messageBytesMax", "unansweredMax", "queueMax", "connectTimeoutMs", "WebSocket"];
/** Refuse what a call does not know: a misspelt condition must not be none. */
const refuseUnknown = (call, unknown) => {
  const [name] = Object.keys(unknown);
  if (name !== undefined) throw new TypeError(`${call} has no option ${name}`);
};

/** Connect to a gateway, or to one of several of the same network. */
export function connect(urls, options = {}) {
  return new Client(urls, options);
}

/** Handlers, and the items that wait for the first handler or for an iteration. */
class Inbox {
  iterates = false; #handlers = {}; #items = []; #head = 0; #takers = []; #over = null; #report; #onHandler;

  constructor(report, onHandler) {
    [this.#report, this.#onHandler] = [report, onHandler];
  }

  get isUsed() {
    return this.iterates || this.has("event");
  }

  get size() {
    return this.#items.length - this.#head;
  }

  has(kind) {
    return !!this.#handlers[kind]?.length;
  }

  on(kind, handler) {
    if (!KINDS.includes(kind)) throw new TypeError(`there is no event "${kind}": use one of ${KINDS.join(", ")}`);
    this.#handlers[kind] = [...this.#handlers[kind] ?? [], handler];
    this.#onHandler(kind);
    // After the caller's other handlers are there, too.
    if (kind === "event") queueMicrotask(() => this.#flush());
    return () => { this.#handlers[kind] = this.#handlers[kind].filter((each) => each !== handler); };
  }

  tell(kind, ...values) {
    const report = (error) => this.#report(error, kind);
    for (const handler of this.#handlers[kind] ?? []) {
      try {
        handler(...values)?.then?.(null, report);
      } catch (error) {
        report(error);
      }
    }
  }

  /** Give an item to the handlers; keep it for an iteration, or if it `waits` for a handler. */
  offer(kind, item, waits) {
    if (this.has("event")) this.#flush();
    const entry = { kind, item, told: this.has(kind) };
    if (this.#takers.length) this.#takers.shift().resolve({ done: false, value: item });
    else if (this.iterates || waits) this.#items.push(entry);
    if (entry.told) this.tell(kind, item);
  }

  #flush() {
    for (let at = this.#head; at < this.#items.length; at++) {
      const { kind, item, told } = this.#items[at];
      this.#items[at].told = true;
      if (!told) this.tell(kind, item);
    }
    if (!this.iterates) [this.#items, this.#head] = [[], 0];
  }

  iterate(leave) {
    this.iterates = true;
    const done = { done: true, value: undefined };
    let isLeft = false;
    return {
      next: async () => isLeft ? done : this.#next(),
      return: async () => {
        isLeft = true;
        await leave();
        if (!this.#over) this.end();
        return done;
      },
      [Symbol.asyncIterator]() { return this; },
    };
  }

  #next() {
    if (this.size) {
      const { item } = this.#items[this.#head];
      this.#items[this.#head++] = undefined;
      // Array.shift() moves all that follow.
      if (this.#head > 1000 && this.#head * 2 > this.#items.length) [this.#items, this.#head] = [this.#items.slice(this.#head), 0];
      return Promise.resolve({ done: false, value: item });
    }
    this.iterates ||= !this.#over;
    return new Promise((resolve, reject) => {
      this.#takers.push({ resolve, reject });
      if (this.#over) this.end(this.#over.error);
    });
  }

  /** Let the iteration end after the items that have arrived, with an error if there is one. */
  end(error) {
    this.#over = { error };
    for (const { resolve, reject } of this.#takers.splice(0)) {
      error ? reject(error) : resolve({ done: true, value: undefined });
    }
  }

  /** Begin again, without what no one has taken of what was left. */
  reopen() {
    if (this.#over) [this.#over, this.iterates, this.#items, this.#head] = [null, false, [], 0];
  }
}

/** Regions with handlers of their own. Attach them before `subscribe`: then they see the first event, too. */
export class Subscription {
  #client; #inbox; #options; #link;
  #turn = null;  // from the first subscribe to the unsubscribe: how many calls wait, and whether one has succeeded

  constructor(client, regions, options, inbox, link) {
    /** The regions of the subscription. */
    this.regions = listOf(regions);
    [this.#client, this.#options, this.#inbox, this.#link] = [client, options, inbox, link];
  }

  /** Register a handler: "event", "gap", "state", "presence" or "update". Returns a function that removes it. */
  on(kind, handler) {
    return this.#inbox.on(kind, handler);
  }

  /** Join the regions; resolves with region → position when all later events will be delivered. */
  async subscribe(options) {
    const turn = this.#turn ??= { waiting: 0, isJoined: false };
    turn.waiting += 1;
    this.#inbox.reopen();
    this.#link(true);
    try {
      const positions = await this.#client.subscribe(this.regions, { ...this.#options, ...options });
      turn.isJoined = true;
      return positions;
    } catch (error) {
      if (turn === this.#turn && turn.waiting === 1 && !turn.isJoined) this.#leave(error);
      throw error;
    } finally {
      turn.waiting -= 1;
    }
  }

  /** Leave the regions that no other subscription has. */
  async unsubscribe() {
    if (!this.#turn) return;
    const left = this.#leave();
    if (left.length) await this.#client.unsubscribe(left);
  }

  #leave(error) {
    this.#turn = null;
    this.#inbox.end(error);
    return this.#link(false);
  }

  /** Publish to the regions of the subscription. */
  publish(payload, about) {
    return this.#client.publish(this.regions.length > 1 ? this.regions : this.regions[0], payload, about);
  }

  [Symbol.asyncIterator]() {
    return this.#inbox.iterate(() => this.unsubscribe());
  }
}

export class Client {
  #urls; #url; #options; #socket = null; #closed = false; #attempt = 0; #openedAt = 0; #lostAt = 0; #ready = false;
  #nextId = 1;
  #wanted = new Map();       // region → position after which to continue, null while none is known
  #joined = new Set();       // regions that the gateway has answered
  #joining = new Map();      // id → { regions, since, state, resolve, reject }
  #left = new Set();         // regions that the program unsubscribed from: the welcome's subscribe does not bring them back
  #withState = new Set();    // regions that began with their state
  #presence = new Map();     // region → what others are to see of this client there, or "watch"
  #rosters = new Map();      // region → name → what it says of itself
  #states = new Map();       // region → entries of the parts of its state that have come so far
  #leaving = new Map();      // id → { regions, resolve, reject }
  #publishes = new Map();    // id → { region, head, body, sent, after, resolve, reject }
  #acked = new Map();        // region → position of the last answered publish; waiting publishes come after it
  #updates = new Map();      // region and key → an update that is not sent yet
  #wantsUpdates = false; #getsUpdates = false;
  #inbox = this.#newInbox();
  #active = new Map();       // subscription → its inbox, while it is subscribed
  #heardAt = 0; #askedAt = 0; #patienceMs = 0; #beatAt = 0; #heartbeatMs = HEARTBEAT_MS; #beating; #retry = null; #failure = null;
  #limits = {};
  #trouble = null;           // why the last attempt to connect failed
  #badToken = null;          // why the last token was refused, until one is accepted
  #online = () => this.#wake();

  constructor(urls, options = {}) {
    this.#urls = (Array.isArray(urls) ? urls : [urls]).map(socketAddress);
    if (this.#urls.length === 0) throw new TypeError("connect() needs the URL of a gateway: pass one, or a list of them");
    refuseUnknown("connect()", Object.fromEntries(Object.entries(options).filter(([name]) => !OPTIONS.includes(name))));
    this.#options = options;
    /** The name that other clients see as the sender; the gateway chooses one if none was given. */
    this.name = options.name ?? null;
    /** The data that the game's backend sent in its answer to the connect hook; null if it sent none. */
    this.data = null;
    /** "waiting" for a connection, "open" or "closed". */
    this.status = "waiting";
    this.#beatAt = Date.now();
    // Without a connection, Node would end for lack of anything to wait for.
    this.#beating = setInterval(() => this.#beat(), 1000);
    globalThis.addEventListener?.("online", this.#online);
    queueMicrotask(() => this.#open());  // after the program has attached its handlers
  }

  /** The position after which each region continues: a later client can pass it as `since`. */
  get positions() {
    return Object.fromEntries([...this.#wanted].filter(([, position]) => position !== null));
  }

  /** Return a subscription of a region, or of several, to attach handlers to; call its `subscribe()` then. */
  subscription(regions, options = {}) {
    const inbox = this.#newInbox();
    const subscription = new Subscription(this, regions, options, inbox, (isActive) => {
      if (isActive) this.#active.set(subscription, inbox);
      else this.#active.delete(subscription);
      const others = [...this.#active.keys()].flatMap((each) => each.regions);
      return subscription.regions.filter((region) => !others.includes(region));
    });
    return subscription;
  }

  /** Join regions; resolves with region → position when all later events will be delivered.
   *  With state, the keys of each region come first, as one item with `state` in its place among the events. */
  subscribe(regions, { since = null, state = false, presence = null, ...unknown } = {}) {
    refuseUnknown("subscribe()", unknown);
    return this.#call(this.#joining, (id) => {
      if (presence !== null && since !== null) throw failure("malformed", "presence begins with the state: not with since");
      state ||= presence !== null;
      if (state && since !== null) throw failure("malformed", "subscribe with state, or with since, not both");
      const entry = { regions: writable(listOf(regions), since), since, state };
      for (const region of entry.regions) {
        this.#left.delete(region);
        if (this.#wanted.has(region)) continue;
        this.#wanted.set(region, null);
        this.#withState[state ? "add" : "delete"](region);
        if (presence !== null) this.#presence.set(region, presence);
      }
      return entry;
    }, (id) => this.#sayJoin(id));
  }

  /** Who is in a region that was subscribed to with presence: name → what it says of itself, as of what was handled. */
  present(region) {
    return Object.fromEntries(this.#rosters.get(region) ?? []);
  }

  /** Leave regions. */
  unsubscribe(regions) {
    return this.#call(this.#leaving, () => {
      regions = writable(listOf(regions));
      for (const region of regions) {
        this.#forget(region);
        this.#left.add(region);
      }
      for (const entry of this.#joining.values()) entry.regions = entry.regions.filter((region) => !regions.includes(region));
      return { regions };
    }, (id) => this.#say({ type: "unsubscribe", id, regions }), true);
  }

  /** Publish any JSON, or a Uint8Array; resolves with {region, position} when the event is durable.
   *  With a key, the event sets it, or deletes it with the payload null; onlyIf: where the key must have been set last.
   *  A list of regions: to all of them at once, or to none; resolves with positions, too, and onlyIf is {region: {key: …}}. */
  publish(region, payload, { key = null, onlyIf, ...unknown } = {}) {
    refuseUnknown("publish()", unknown);
    return this.#call(this.#publishes, (id) => {
      if (this.#publishes.size >= (this.#options.unansweredMax ?? 10_000)) {
        throw failure("busy", "too many publishes wait: publish more slowly", { retriable: true });
      }
      const where = typeof region === "string" ? { region } : { regions: [...region] };
      const head = { type: "publish", id, ...where };
      if (key !== null) head.key = key;
      if (onlyIf !== undefined) head.only_if = onlyIf;
      const entry = { region: where.region ?? where.regions[0], head, ...encoded(payload), sent: false, after: null };
      const text = textOf(entry);
      if (LONE_SURROGATE.test(text)) throw failure("invalid-payload", "half of a surrogate pair is no text");
      this.#checkSize(entry, text);
      return entry;
    }, (id) => this.#sayPublish(this.#publishes.get(id)));
  }

  /** Tell others the newest value of a key of a region, many times a second. It may be lost, and is without a
   *  connection; but no one gets it before the events that were published, or had come, before. */
  update(region, key, payload) {
    const { body, bytes } = encoded(payload);
    const head = { region, key };
    const text = textOf({ head, body });
    if (LONE_SURROGATE.test(text)) throw failure("invalid-payload", "half of a surrogate pair is no text");
    this.#checkSize({ bytes }, text);
    if (!this.#updates.size) queueMicrotask(() => this.#sendUpdates());
    this.#updates.set(JSON.stringify([region, key]), { head, body });
  }

  #sendUpdates() {
    let parts = [], size = 0;
    const send = () => {
      if (size && this.#ready) this.#send(`{"type":"updates","updates":[${parts}]}`);
      [parts, size] = [[], 0];
    };
    for (const { head, body } of this.#updates.values()) {
      const text = textOf({ head: { ...head, position: this.#wanted.get(head.region) ?? undefined }, body });
      const bytes = byteLength(text) + 1;
      if (size + bytes > (this.#limits.message_bytes ?? MESSAGE_BYTES_MAX) - 40) send();
      parts.push(text);
      size += bytes;
    }
    send();
    this.#updates.clear();
  }

  /** Read a page of a region's history; resolves with {events, next, more}. Continue with `after: next`. */
  async history(region, { after, limit } = {}) {
    writable([region]);
    const url = new URL(this.#url ?? this.#urls[0]);
    url.protocol = url.protocol.replace("ws", "http");
    url.pathname = url.pathname.replace(/socket$/, `regions/${encodeURIComponent(region)}/events`);
    if (after != null) url.searchParams.set("after", after);
    if (limit != null) url.searchParams.set("limit", limit);
    const token = await this.#token();
    let answer;
    try {
      const headers = token == null ? {} : { Authorization: `Bearer ${token}` };
      const response = await fetch(url, { headers, signal: AbortSignal.timeout(HISTORY_TIMEOUT_MS) });
      answer = await response.json();
      if (!answer.error) answer.events.forEach(decode);
    } catch (cause) {
      throw failure("unreachable", `no history of ${region}: ${cause.message}`, { retriable: true, cause });
    }
    if (answer.error) throw new GamecastError(answer.error);
    return answer;
  }

  /** Register a handler: "event", "gap", "state", "presence", "update", "error", or "status" ("open", "waiting", "closed"). Returns a
   *  function that removes it. */
  on(kind, handler) {
    return this.#inbox.on(kind, handler);
  }

  /** Close the connection; iteration ends after the events that have arrived. */
  close() {
    this.#end(failure("closed", "the client was closed"), false);
  }

  [Symbol.asyncIterator]() {
    return this.#inbox.iterate(() => this.close());
  }

  #newInbox() {
    return new Inbox((error, kind) => this.#report(error, kind), (kind) => {
      this.#wantsUpdates ||= kind === "update";
      // The hello asks for them.
      if (this.#wantsUpdates && !this.#getsUpdates && this.#socket) this.#drop("it is to get updates as well");
    });
  }

  /** Note a call in `waiting`, say it if there is a connection, and return a promise of its answer. */
  #call(waiting, begin, say, isDoneOffline = false) {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      if (this.#closed) throw this.#failure ?? failure("closed", "the client was closed");
      const entry = { ...begin(id), resolve, reject };
      if (isDoneOffline && !this.#ready) return resolve();
      waiting.set(id, entry);
      this.#limit(waiting, id, entry);
      if (this.#ready) say(id);
    });
  }

  async #token() {
    const { token, tokenTimeoutMs: timeoutMs = TOKEN_TIMEOUT_MS } = this.#options;
    if (typeof token !== "function") return token;
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        Promise.resolve(token()).then(resolve, reject);
        if (timeoutMs > TIMER_MS_MAX) return;
        timer = setTimeout(() => reject(new Error(`the token function did not answer for ${timeoutMs / 1000} s`)), timeoutMs);
        timer.unref?.();
      });
    } catch (cause) {
      throw failure("token", `no token: ${cause?.message ?? cause}`, { retriable: cause?.retriable ?? true, cause });
    } finally {
      clearTimeout(timer);
    }
  }

  async #open() {
    clearTimeout(this.#retry);
    this.#retry = null;
    if (this.#closed) return;
    let token;
    try {
      token = await this.#token();
    } catch (error) {
      if (!error.retriable) return this.#end(error);
      if (!this.#closed) this.#report(error);
      return this.#again(error);
    }
    if (this.#closed) return;
    const Socket = this.#options.WebSocket ?? Client.WebSocket ?? globalThis.WebSocket;
    if (!Socket) return this.#end(failure("unsupported", "no WebSocket here: install ws, use Node 22, or pass { WebSocket }"));
    this.#url = this.#urls[this.#attempt % this.#urls.length];
    let socket;
    try {
      socket = this.#socket = new Socket(this.#url, `gamecast.v${PROTOCOL_VERSION}`);
    } catch (cause) {
      return this.#end(failure("unsupported", `cannot open ${this.#url}: ${cause.message}`, { cause }));
    }
    this.#ask(CONNECT_TIMEOUT_MS);
    const hello = {
      type: "hello", protocol: PROTOCOL_VERSION, batch_ms: this.#options.batchMs ?? 0, token: token ?? undefined,
      message_bytes_max: this.#options.messageBytesMax ?? MESSAGE_BYTES_MAX, name: this.name ?? undefined,
      updates: this.#wantsUpdates || undefined,
    };
    this.#getsUpdates = this.#wantsUpdates;
    socket.onopen = () => socket.send(JSON.stringify(hello));
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      try {
        this.#hear(JSON.parse(data));
      } catch (cause) {
        // What it was may be lost: resume.
        const error = failure("protocol", `the server sent what is no message of the protocol: ${cause.message}`, { cause });
        this.#report(error);
        this.#attempt = Math.min(this.#attempt, 2);  // the server is there
        this.#drop(error.message);
      }
    };
    socket.onclose = ({ code, reason }) => { if (socket === this.#socket) this.#gone(code, reason); };
    // Node 20 reports no close if the connection was never established.
    socket.onerror = () => setTimeout(() => { if (socket === this.#socket && socket.readyState !== 1) this.#gone(1006, ""); });
  }

  #hear(said) {
    this.#heardAt = Date.now();
    // Whatever else a server says that does not welcome, it is no gateway.
    if (this.#ready || said.type === "welcome") this.#askedAt = 0;
    switch (said.type) {
      case "welcome": return this.#begin(said);
      case "events": return this.#deliver(said.events);
      case "updates":
        for (const update of said.updates.filter(({ region }) => this.#follows(region))) {
          decode(update);
          this.#inbox.tell("update", update);
          for (const [each, inbox] of this.#active) if (each.regions.includes(update.region)) inbox.tell("update", update);
        }
        return;
      case "acks":
        for (const ack of said.acks) {
          for (const [region, position] of placesOf(ack)) this.#acked.set(region, position);
          this.#settle(this.#publishes, ack.id, ack);
        }
        return;
      case "subscribed": return this.#subscribed(said);
      case "unsubscribed": return this.#settle(this.#leaving, said.id);
      case "error": return this.#refused(said);
    }
  }

  #begin(welcome) {
    this.name = welcome.name;
    this.data = welcome.data ?? null;
    this.#heartbeatMs = welcome.heartbeat_ms > 0 ? welcome.heartbeat_ms : HEARTBEAT_MS;
    this.#limits = welcome.limits ?? {};
    this.#trouble = null;
    // One message for all regions with known positions: two messages would have two cuts.
    const since = this.positions;
    const regions = Object.keys(since);
    if (regions.length) this.#say({ type: "subscribe", id: "resume", regions, since, presence: this.#presenceIn(regions) });
    const given = (welcome.subscribe ?? []).filter((region) => !this.#wanted.has(region) && !this.#left.has(region));
    if (given.length) this.subscribe(given).catch((error) => this.#report(error));
    for (const id of [...this.#joining.keys()]) this.#sayJoin(id, since);
    const waiting = [...this.#publishes.values()].sort((one, other) => other.sent - one.sent);
    this.#ready = true;
    this.#badToken = null;
    this.#openedAt = Date.now();
    this.#beating.unref?.();
    for (const entry of waiting) this.#sayPublish(entry);
    this.#become("open");
  }

  #sayJoin(id, resumed = {}) {
    const entry = this.#joining.get(id);
    // The answer to the resuming message is the answer to a join of these regions only.
    const left = entry.regions.filter((region) => this.#wanted.has(region) && !Object.hasOwn(resumed, region));
    entry.isResumed = left.length === 0;
    if (entry.isResumed && !entry.regions.some((region) => Object.hasOwn(resumed, region))) return this.#settle(this.#joining, id, {});
    if (entry.isResumed) return;
    let { since, state } = entry;
    if (since !== null && typeof since === "object") since = Object.fromEntries(left.map((region) => [region, since[region]]));
    this.#say({ type: "subscribe", id, regions: left, since: since ?? undefined, state: state || undefined, presence: this.#presenceIn(left) });
  }

  #presenceIn(regions) {
    const said = regions.filter((region) => this.#presence.has(region)).map((region) => [region, this.#presence.get(region)]);
    return said.length ? Object.fromEntries(said) : undefined;
  }

  #subscribed({ id, regions }) {
    for (const [region, position] of Object.entries(regions)) {
      checkPosition(position);
      if (!this.#follows(region)) continue;
      this.#joined.add(region);
      if (this.#wanted.get(region) === null) this.#wanted.set(region, position);
    }
    for (const [each, entry] of this.#joining) {
      if (each !== id && !(id === "resume" && entry.isResumed)) continue;
      const answered = entry.regions.map((region) => [region, Object.hasOwn(regions, region) ? regions[region] : this.#wanted.get(region)]);
      this.#settle(this.#joining, each, Object.fromEntries(answered.filter(([, position]) => position)));
    }
  }

  #checkSize({ bytes }, text) {
    const { message_bytes: messageMax = Infinity, payload_bytes: payloadMax = Infinity } = this.#limits;
    const over = bytes > payloadMax ? [bytes, "payload", payloadMax] : [byteLength(text), "message", messageMax];
    if (over[0] > over[2]) {
      throw failure("too-large", `a ${over[1]} of ${over[0]} bytes is over the gateway's limit of ${over[2]}: publish less at once`);
    }
  }

  #sayPublish(entry) {
    const { sent, region, head } = entry;
    try {
      if (!sent) entry.after = this.#wanted.get(region) ?? null;
      const acked = this.#acked.get(region);
      if (sent && acked && (entry.after === null || comparePositions(entry.after, acked) < 0)) entry.after = acked;
      // No position of the region was known when it was sent: it is unknown where to search for it.
      if (sent && entry.after === null) throw failure("", "the connection was lost, and the region is not subscribed to");
      const text = textOf(entry, sent ? { retry: true, after: entry.after } : {});
      this.#checkSize(entry, text);
      entry.isRetry = sent;
      entry.sent = true;
      this.#send(text);
    } catch (error) {
      this.#publishes.delete(head.id);
      entry.reject(sent ? uncertain(error.message) : error);
    }
  }

  #deliver(events) {
    for (const event of events) {
      if (this.#closed) return;
      if ("state" in event && !this.#isWhole(event)) continue;
      if (event.regions) this.#keepWanted(event);
      if (!this.#follows(event.region)) continue;
      for (const [region, position] of placesOf(event)) {
        checkPosition(position);
        if (this.#wanted.has(region)) this.#wanted.set(region, position);
      }
      decode(event);
      const kind = "state" in event ? "state" : "gap" in event ? "gap" : "presence" in event ? "presence" : "event";
      if (event.present) this.#rosters.set(event.region, new Map(Object.entries(event.present)));
      if (kind === "presence") this.#note(event);
      const regions = event.regions ?? [event.region];
      const own = [...this.#active].filter(([each]) => each.regions.some((region) => regions.includes(region))).map(([, inbox]) => inbox);
      // What is not handled yet waits for a handler: in its subscription, or here if it has none.
      const waits = ![this.#inbox, ...own].some((inbox) => inbox.isUsed);
      this.#inbox.offer(kind, event, waits && !own.length);
      for (const inbox of own) inbox.offer(kind, event, waits);
      const queueMax = this.#options.queueMax ?? QUEUE_MAX;
      if ([this.#inbox, ...own].some(({ size }) => size > queueMax)) {
        return this.#end(failure("too-slow", "the program read its events too slowly"));
      }
    }
  }

  /** Bring a region's roster up to date. */
  #note({ region, presence: { name, here, info } }) {
    const roster = this.#rosters.get(region) ?? new Map();
    if (here) roster.set(name, info);
    else roster.delete(name);
    this.#rosters.set(region, roster);
  }

  /** Collect the parts of a region's state; with the last one, the item has all of it. */
  #isWhole(item) {
    Object.values(item.state).forEach(decode);
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
    const kept = event.regions.filter((region) => this.#follows(region));
    if (kept.length === 0 || kept.length === event.regions.length) return;
    event.regions = kept;
    event.positions = Object.fromEntries(kept.map((region) => [region, event.positions[region]]));
    if (!kept.includes(event.region)) [event.region, event.position] = [kept[0], event.positions[kept[0]]];
  }

  /** Whether items of a region are for the program: until its unsubscribe is answered, they are of what it left. */
  #follows(region) {
    return this.#wanted.has(region) && ![...this.#leaving.values()].some(({ regions }) => regions.includes(region));
  }

  #refused(said) {
    const error = new GamecastError(said);
    for (const waiting of [this.#joining, this.#leaving, this.#publishes]) {
      if (!waiting.has(said.id)) continue;
      // Of a retry nothing is certain before it was looked for, as it is when a condition on a key fails.
      const isOpen = waiting.get(said.id).isRetry && error.definite && error.key === null;
      return this.#fail(waiting, said.id, isOpen ? uncertain(error.message) : error);
    }
    if (said.id === "resume") {
      if (said.retriable) return this.#drop(said.message, said.retry_after_ms);
      if (!this.#wanted.has(said.region)) return this.#beginAnew(error);
      // Without the region that it names, the others resume.
      this.#lose(said.region, error);
      this.#attempt = 0;
      return this.#drop(said.message);
    }
    this.lastError = error;
    this.#report(error);
  }

  /** Nothing can be resumed, as if the network does not know the positions: report a gap in each region, and follow it
   *  from now on. */
  #beginAnew(error) {
    const positions = Object.entries(this.positions);
    for (const [region, position] of positions) {
      const [epoch, sequence] = position.split("-");
      this.#deliver([{ region, position: null, gap: { first: `${epoch}-${+sequence + 1}`, last: null, reason: error.message } }]);
      if (!this.#wanted.has(region)) continue;  // the program left it
      this.#wanted.set(region, null);
      this.#joined.add(region);
    }
    for (const [id, { isResumed }] of [...this.#joining]) if (isResumed) this.#sayJoin(id);
    const asked = [...this.#joining.values()].flatMap(({ regions }) => regions);
    for (const [region] of positions) if (!asked.includes(region)) this.#joinAnew(region);
  }

  #joinAnew(region) {
    if (this.#closed || !this.#wanted.has(region)) return;
    this.subscribe(region, { state: this.#withState.has(region), presence: this.#presence.get(region) ?? null }).catch((error) => {
      if (!error.retriable) return this.#lose(region, error);
      setTimeout(() => this.#joinAnew(region), error.retryAfterMs ?? 1000);
    });
  }

  /** A region cannot be followed any longer; nor can a subscription that has no other. */
  #lose(region, error) {
    this.#forget(region);
    for (const [subscription, inbox] of this.#active) {
      if (!subscription.regions.includes(region) || subscription.regions.some((each) => this.#wanted.has(each))) continue;
      inbox.end(error);
    }
    error.region = region;
    this.#report(error);
  }

  #settle(waiting, id, value) {
    waiting.get(id)?.resolve(value);
    waiting.delete(id);
  }

  #fail(waiting, id, error) {
    const { regions, reject } = waiting.get(id);
    waiting.delete(id);
    if (waiting === this.#joining) {
      const pending = [...waiting.values()].flatMap((each) => each.regions);
      for (const region of regions) {
        if (!this.#joined.has(region) && !pending.includes(region)) this.#forget(region);
      }
    }
    reject(error);
  }

  #forget(region) {
    this.#wanted.delete(region);
    this.#joined.delete(region);
    this.#presence.delete(region);
    this.#rosters.delete(region);
  }

  /** Reject a call if there is no connection for too long. */
  #limit(waiting, id, entry) {
    const timeoutMs = this.#options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    if (this.#ready || !(timeoutMs <= TIMER_MS_MAX)) return;
    const deadline = entry.deadline = Date.now() + timeoutMs;
    const timer = setTimeout(() => {
      // It may have been answered, or the connection was restored and lost again, which sets another deadline.
      if (this.#ready || waiting.get(id) !== entry || entry.deadline !== deadline) return;
      const error = this.lastError = this.#unreachable(` for ${timeoutMs / 1000} s`);
      this.#fail(waiting, id, entry.sent ? uncertain(error.message) : error);
    }, timeoutMs);
    timer.unref?.();
  }

  #unreachable(since = "") {
    const why = this.#trouble ? ` (${this.#trouble})` : "";
    const message = `no gateway answers at ${this.#urls.join(" or ")}${since}${why}; the client keeps trying until close()`;
    return failure("unreachable", message, { retriable: true });
  }

  /** Give the connection up, and resume in another one. */
  #drop(reason, waitMs) {
    const socket = this.#socket;
    this.#gone(3000, reason, waitMs);
    socket?.close(3000);
  }

  #gone(code, reason, waitMs) {
    const wasReady = this.#ready;
    // A server that welcomes and closes at once is not there.
    if (wasReady && (code === 4010 || Date.now() - this.#openedAt > STEADY_MS)) this.#attempt = 0;
    this.#ready = false;
    this.#socket = null;
    this.#askedAt = 0;
    if (this.#closed) return;
    for (const id of [...this.#leaving.keys()]) this.#settle(this.#leaving, id);
    this.#beating.ref?.();
    // What a lost connection had sent may reach its gateway now, and take this one's name.
    const byItself = FINAL[code] === "superseded" && Date.now() - this.#lostAt < LOST_MS;
    this.#lostAt = code === 1006 || code === 3000 ? Date.now() : byItself ? 0 : this.#lostAt;
    if (FINAL[code] && !byItself) return this.#end(failure(FINAL[code], reason || "refused"));
    if (code === 4001 || code === 4010) {
      const error = failure(code === 4010 ? "expired" : "unauthorized", reason || "no good token");
      if (typeof this.#options.token !== "function") return this.#end(error);
      if ((code === 4001 || !wasReady) && error.message !== this.#badToken) {
        this.#badToken = error.message;
        this.#report(error);
      }
    }
    if (wasReady) {
      for (const waiting of [this.#joining, this.#publishes]) {
        for (const [id, entry] of waiting) this.#limit(waiting, id, entry);
      }
    }
    this.#again(reason || `closed with ${code}`, waitMs);
  }

  /** Connect again, after a while. `trouble`: the reason. */
  #again(trouble, waitMs = 0) {
    if (this.#closed) return;
    this.#trouble = trouble?.message ?? trouble ?? null;
    this.lastError = this.#unreachable();
    const wait = RECONNECT_MS[Math.min(this.#attempt, RECONNECT_MS.length - 1)];
    this.#attempt += 1;
    const delayMs = Math.max(+waitMs || 0, wait * (0.5 + Math.random()));
    this.#retry = setTimeout(() => this.#open(), Math.min(delayMs, TIMER_MS_MAX));
    this.#become("waiting", this.lastError);
  }

  /** The network may be another one: connect at once, or see whether the server is still there. */
  #wake() {
    if (this.#retry) this.#open();
    else if (this.#ready) this.#ping(PROBE_MS);
  }

  #beat() {
    const now = Date.now();
    const hasSlept = now - this.#beatAt > SLEEP_MS;
    this.#beatAt = now;
    if (this.#askedAt && now - this.#askedAt > this.#patienceMs) this.#drop("silent");
    else if (hasSlept) this.#wake();
    else if (this.#ready && !this.#askedAt && now - this.#heardAt > this.#heartbeatMs) this.#ping(this.#heartbeatMs);
  }

  #ping(patienceMs) {
    this.#ask(patienceMs);
    this.#say({ type: "ping" });
  }

  /** Expect to hear something within this time. */
  #ask(patienceMs) {
    this.#askedAt = Date.now();
    this.#patienceMs = patienceMs;
  }

  #say(message) {
    this.#send(JSON.stringify(message));
  }

  #send(text) {
    if (this.#socket?.readyState === 1) this.#socket.send(text);
  }

  #become(status, ...why) {
    this.status = status;
    this.#inbox.tell("status", status, ...why);
  }

  /** Report an error that belongs to no call. `kind`: of the handler that threw it. */
  #report(error, kind) {
    if (kind !== "error" && this.#inbox.has("error")) this.#inbox.tell("error", error);
    else console.error("gamecast:", error);
  }

  #end(error, isFailure = true) {
    if (this.#closed) return;
    this.#closed = true;
    this.#ready = false;
    this.#failure = isFailure ? error : null;
    clearInterval(this.#beating);
    clearTimeout(this.#retry);
    globalThis.removeEventListener?.("online", this.#online);
    this.#socket?.close(1000);
    this.#socket = null;
    let isTold = this.#inbox.has("status") || this.#inbox.iterates;
    for (const waiting of [this.#joining, this.#leaving, this.#publishes]) {
      for (const { reject, sent } of waiting.values()) reject(sent ? uncertain(error.message) : error);
      isTold ||= waiting.size > 0;
      waiting.clear();
    }
    for (const inbox of [this.#inbox, ...this.#active.values()]) inbox.end(this.#failure);
    if (isFailure && (this.#inbox.has("error") || !isTold)) this.#report(error);
    this.#become("closed", ...(isFailure ? [error] : []));
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

/** Regions, if a message can name them and `since`: the gateway closes at what is not Unicode. */
function writable(regions, since) {
  if (LONE_SURROGATE.test(JSON.stringify([regions, since]))) throw failure("invalid-region", "half of a surrogate pair is no text");
  return regions;
}

/** A client that resumes with what is no position is refused. */
function checkPosition(position) {
  if (!POSITION.test(position)) throw new TypeError(`${position} is no position`);
}

function listOf(regions) {
  return typeof regions === "string" ? [regions] : [...new Set(regions)];
}

function socketAddress(url) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace("http", "ws");
  if (!address.pathname.endsWith("/v1/socket")) address.pathname = `${address.pathname.replace(/\/$/, "")}/v1/socket`;
  return address.href;
}

function byteLength(text) {
  return new TextEncoder().encode(text).length;
}

/** The text of a publish: its payload is written once, when it is published. */
function textOf({ head, body }, more) {
  return `${JSON.stringify({ ...head, ...more }).slice(0, -1)},${body}}`;
}

/** The payload as a part of a message, and the bytes that the gateway counts. The gateway closes at what is not JSON. */
function encoded(payload) {
  if (payload instanceof Uint8Array) {
    let binary = "";
    for (let at = 0; at < payload.length; at += 8192) binary += String.fromCharCode(...payload.subarray(at, at + 8192));
    return { body: `"base64":"${btoa(binary)}"`, bytes: payload.length };
  }
  let text;
  try {
    text = JSON.stringify(payload === undefined ? null : payload);
    if (isDeep(payload, DEPTH_MAX)) throw new RangeError(`it is nested deeper than ${DEPTH_MAX}`);
    if (text === undefined) throw new TypeError("it is a function or a symbol");
  } catch (cause) {
    throw failure("invalid-payload", `the payload is no JSON: ${cause.message}`, { cause });
  }
  return { body: `"payload":${text}`, bytes: byteLength(text) };
}

function isDeep(value, left) {
  return typeof value === "object" && value !== null && (!left || Object.values(value).some((each) => isDeep(each, left - 1)));
}

/** Put bytes in the place of their base64. */
function decode(item) {
  if (!("base64" in item)) return;
  item.payload = Uint8Array.from(atob(item.base64), (letter) => letter.charCodeAt(0));
  delete item.base64;
}
