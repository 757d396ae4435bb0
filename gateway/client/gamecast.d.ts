/** A client of the gamecast gateway, for browsers and Node. */

/** The version of the wire protocol. */
export const PROTOCOL_VERSION: 1;

/** What JSON can represent, or bytes. Your own type of events goes into `connect<MyEvent>(…)`. */
export type Payload = null | boolean | number | string | Payload[] | { [key: string]: Payload } | Uint8Array;
/** `epoch-sequence`: an event's place in its region. */
export type Position = `${number}-${number}`;
export type Since = number | Position | { [region: string]: number | Position };

export interface GamecastEvent<P = unknown> {
  region: string;
  position: Position;
  sender: string;
  /** By the publisher's clock. */
  sent_at_ms: number;
  payload: P;
  /** The key that the event names, if it names one. */
  key?: string;
  /** Of an event of several regions: those that this client follows. */
  regions?: string[];
  /** Of an event of several regions: its position in each of these. */
  positions?: { [region: string]: Position };
}

/** Stands in the place of events that will not come. */
export interface GamecastGap {
  region: string;
  /** Null if the number of missing events is unknown. */
  position: Position | null;
  /** Of an event of several regions that cannot be read. */
  regions?: string[];
  positions?: { [region: string]: Position };
  gap: { first: Position; last: Position | null; reason: string };
}

/** A value that an event gave a key. */
export interface StateValue<P = unknown> {
  /** Where the key was set, as `onlyIf` takes it. */
  position: Position;
  sender: string;
  sent_at_ms: number;
  /** Missing if it cannot be represented as JSON; then there is `gap`. */
  payload?: P;
  gap?: { first: Position; last: Position | null; reason: string };
}

/** The keys of a region as they are at its place among the events; it comes first after `subscribe` with `state`. */
export interface GamecastState<P = unknown> {
  region: string;
  /** As of which it is: all events of the region that follow are later. */
  position: Position;
  state: { [key: string]: StateValue<P> };
  /** The network has lost keys of the region. */
  incomplete?: true;
  /** With `presence`: name to what it says of itself. */
  present?: { [name: string]: { [key: string]: Payload } };
}

/** Somebody arrives in a region, or leaves it, in its place among the events: nothing more of that stay follows. */
export interface GamecastPresence {
  region: string;
  position: Position;
  presence: {
    name: string;
    /** Whether it arrives. */
    here: boolean;
    /** What it says of itself; of a leave, what it had said, if that is known. */
    info: { [key: string]: Payload };
  };
}

/** The newest value of a key, by one sender; others may have been lost. */
export interface GamecastUpdate<P = unknown> {
  region: string;
  key: string;
  sender: string;
  /** By the sender's clock. */
  sent_at_ms: number;
  /** Up to where its sender had seen the region: an event behind that is news to it. */
  position: Position;
  payload: P;
}

export interface Receipt {
  /** Of an event of several regions: the first. */
  region: string;
  position: Position;
  /** Of an event of several regions: its position in each; only in the first if `repeated`. */
  positions?: { [region: string]: Position };
  /** Whether it had been published before the connection was lost. */
  repeated?: true;
}

export interface Options {
  /** A token, or a function that returns one; it is called for each connection and each page of history. If it throws,
   *  "error" reports it and the client tries again, or ends if what it threw has `retriable: false`. */
  token?: string | null | (() => string | null | undefined | Promise<string | null | undefined>) | undefined;
  /** After so long without an answer, the token function has failed (30,000); `Infinity`: it is waited for. */
  tokenTimeoutMs?: number | undefined;
  /** By which others know this sender. */
  name?: string | undefined;
  /** Gather events for so long before they are sent; 0 to 1000. */
  batchMs?: number | undefined;
  /** Bytes of a message with several events or acks, at most (16 MiB), within the gateway's own limit. */
  messageBytesMax?: number | undefined;
  /** Publishes without an answer, at most (10,000). */
  unansweredMax?: number | undefined;
  /** Events that the program has not taken, at most (100,000). */
  queueMax?: number | undefined;
  /** After so long without a connection, `subscribe` and `publish` reject (10,000); `Infinity`: they wait. */
  connectTimeoutMs?: number | undefined;
  /** The class to use instead of the global one. */
  WebSocket?: unknown | undefined;
}

export type Status = "open" | "waiting" | "closed";

export class GamecastError extends Error {
  readonly code: string;
  /** What was asked for has certainly not happened. */
  readonly definite: boolean;
  /** The same may succeed later. */
  readonly retriable: boolean;
  readonly retryAfterMs: number | null;
  /** Of "key-conflict": the region of the key. Of "error": the region that is not followed any longer. */
  readonly region: string | null;
  /** Of "key-conflict": the key whose condition does not hold. */
  readonly key: string | null;
  /** Of "key-conflict": where the key was set last; null if it is not set. */
  readonly position: Position | null;
}

/** What an event says of keys of its region. */
export interface About {
  /** The event sets this key, or deletes it with the payload null. */
  key?: string | null | undefined;
  /** Publish only if the key was last set at this position; null: only if it is not set. Or of some keys; of several
   *  regions, of some keys of each. */
  onlyIf?: Position | null | { [key: string]: Position | null } | { [region: string]: { [key: string]: Position | null } } | undefined;
}

/** A page of a region's history. */
export interface HistoryPage<P = unknown> {
  region: string;
  events: (GamecastEvent<P> | GamecastGap)[];
  /** Where the next page begins: pass it as `after`. */
  next: Position;
  /** Whether there are events after `next`. */
  more: boolean;
}

export type SubscribeOptions =
  | { since?: Since | null | undefined; state?: false | undefined; presence?: null | undefined }
  | {
      since?: null | undefined;
      state?: boolean;
      /** What others see of this client in the regions, and it of them; "watch": only the latter. The state comes first. */
      presence?: { [key: string]: Payload } | "watch" | null | undefined;
    };

export interface Handlers<P = unknown> {
  event: (event: GamecastEvent<P>) => unknown;
  gap: (gap: GamecastGap) => unknown;
  state: (state: GamecastState<P>) => unknown;
  presence: (presence: GamecastPresence) => unknown;
  /** If the client is connected already, the first such handler makes it connect again. */
  update: (update: GamecastUpdate<P>) => unknown;
}

export interface ClientHandlers<P = unknown> extends Handlers<P> {
  /** What failed and belongs to no call: a handler that threw, a token function, a message of the server, a region that
   *  cannot be resumed, and the error that ended the client. Without a handler it is written to the console. */
  error: (error: unknown) => unknown;
  /** `reason`: why the client waits, or what ended it. */
  status: (status: Status, reason?: GamecastError) => unknown;
}

/** Regions with handlers of their own; attach these before `subscribe`. Leaving its iteration unsubscribes. */
export class Subscription<P = unknown, State = never> implements AsyncIterable<GamecastEvent<P> | GamecastGap | State> {
  private constructor();
  readonly regions: string[];
  /** Join the regions. The options replace those of `client.subscription`. */
  subscribe(options?: SubscribeOptions): Promise<{ [region: string]: Position }>;
  /** Leave the regions that no other subscription has. */
  unsubscribe(): Promise<void>;
  /** To all regions of the subscription at once. */
  publish(payload: P, about?: About): Promise<Receipt>;
  /** Returns a function that removes the handler. */
  on<Kind extends keyof Handlers>(kind: Kind, handler: Handlers<P>[Kind]): () => void;
  [Symbol.asyncIterator](): AsyncIterableIterator<GamecastEvent<P> | GamecastGap | State>;
}

/** `P`: the payloads of the events. `State`: `GamecastState<P>` if you iterate and subscribe with `state`. */
export class Client<P = unknown, State = never> implements AsyncIterable<GamecastEvent<P> | GamecastGap | State> {
  constructor(urls: string | string[], options?: Options);
  name: string | null;
  /** What the game's backend has for this client, as its connect hook answered; null if it said nothing. */
  data: Payload;
  readonly status: Status;
  /** Why the last attempt to connect failed, or what the gateway refused last that belongs to no call. */
  lastError?: GamecastError;
  readonly positions: { [region: string]: Position };
  /** Regions with handlers of their own. Call `subscribe()` of what it returns to join them. */
  subscription<Q extends P = P>(regions: string | Iterable<string>, options?: SubscribeOptions): Subscription<Q, State>;
  /** With `state`, the keys of each region come first, as a `GamecastState` in its place among the events. */
  subscribe(regions: string | Iterable<string>, options?: SubscribeOptions): Promise<{ [region: string]: Position }>;
  unsubscribe(regions: string | Iterable<string>): Promise<void>;
  /** Who is in a region that was subscribed to with `presence`, as of what was handled. */
  present(region: string): { [name: string]: { [key: string]: Payload } };
  /** To one region, or to several at once. */
  publish(region: string | Iterable<string>, payload: P, about?: About): Promise<Receipt>;
  /** Tell others the newest value of a key of a region, many times a second: it may be lost, and nothing is stored. But
   *  no one gets it before the events that were published, or had come, before. */
  update(region: string, key: string, payload: P): void;
  /** Read a page of events that the network still has, over HTTP. */
  history(region: string, options?: { after?: Position | undefined; limit?: number | undefined }): Promise<HistoryPage<P>>;
  /** Returns a function that removes the handler. Events that came before the first "event" handler are given to it. */
  on<Kind extends keyof ClientHandlers>(kind: Kind, handler: ClientHandlers<P>[Kind]): () => void;
  close(): void;
  [Symbol.asyncIterator](): AsyncIterableIterator<GamecastEvent<P> | GamecastGap | State>;
}

/** Connect to a gateway, or to one of several of the same network. */
export function connect<P = unknown, State = never>(urls: string | string[], options?: Options): Client<P, State>;

/** Compare two positions of one region: negative when the first comes before the second. */
export function comparePositions(one: Position, other: Position): number;
