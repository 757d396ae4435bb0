/** A client of the gamecast gateway, for browsers and Node (22, or with `WebSocket` given). */

export type Payload = null | boolean | number | string | Payload[] | { [key: string]: Payload } | Uint8Array;
/** `epoch-sequence`: an event's place in its region. */
export type Position = `${number}-${number}`;
export type Since = number | Position | { [region: string]: number | Position };

export interface GamecastEvent {
  region: string;
  position: Position;
  sender: string;
  /** By the publisher's clock. */
  sent_at_ms: number;
  payload: Payload;
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
export interface StateValue {
  /** Where the key was set, as `onlyIf` takes it. */
  position: Position;
  sender: string;
  sent_at_ms: number;
  /** Missing if it cannot be represented as JSON; then there is `gap`. */
  payload?: Payload;
  gap?: { first: Position; last: Position | null; reason: string };
}

/** The keys of a region as they are at its place among the events; it comes first after `subscribe` with `state`. */
export interface GamecastState {
  region: string;
  /** As of which it is: all events of the region that follow are later. */
  position: Position;
  state: { [key: string]: StateValue };
  /** The network has lost keys of the region. */
  incomplete?: true;
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
  /** A token, or what gets one; it is asked again for each connection. */
  token?: string | (() => string | Promise<string>);
  /** By which others know this sender. */
  name?: string;
  /** Gather events for so long before they are sent; 0 to 1000. */
  batchMs?: number;
  /** Bytes of a message with several events, at most; the gateway's own limit unless this is lower. */
  messageBytesMax?: number;
  /** Publishes without an answer, at most (10,000). */
  unansweredMax?: number;
  /** Events that the program has not taken, at most (100,000). */
  queueMax?: number;
  /** After so long without a connection, `subscribe` and `publish` reject (10,000); `Infinity`: they wait. */
  connectTimeoutMs?: number;
  /** Where there is no global one. */
  WebSocket?: unknown;
}

export type Status = "open" | "waiting" | "closed";

export class GamecastError extends Error {
  readonly code: string;
  /** What was asked for has certainly not happened. */
  readonly definite: boolean;
  /** The same may succeed later. */
  readonly retriable: boolean;
  readonly retryAfterMs: number | null;
  /** Of "key-conflict": the region of the key. */
  readonly region: string | null;
  /** Of "key-conflict": the key whose condition does not hold. */
  readonly key: string | null;
  /** Of "key-conflict": where the key was set last; null if it is not set. */
  readonly position: Position | null;
}

/** What an event says of keys of its region. */
export interface About {
  /** The event sets this key, or deletes it with the payload null. */
  key?: string | null;
  /** Publish only if the key was last set at this position; null: only if it is not set. Or of some keys; of several
   *  regions, of some keys of each. */
  onlyIf?: Position | null | { [key: string]: Position | null } | { [region: string]: { [key: string]: Position | null } };
}

/** `Client<GamecastState>` is the type of a client that subscribes with `state`: its iteration has states, too. */
export class Client<State = never> implements AsyncIterable<GamecastEvent | GamecastGap | State> {
  name: string | null;
  /** What the game's backend has for this client, as its connect hook answered; null if it said nothing. */
  data: Payload;
  /** Why the last attempt to connect failed, or what the gateway refused last that belongs to no call. */
  lastError?: GamecastError;
  readonly positions: { [region: string]: Position };
  /** With `state`, the keys of each region come first, as a `GamecastState` in its place among the events. */
  subscribe(
    regions: string | Iterable<string>,
    options?: { since?: Since | null; state?: false } | { since?: null; state: boolean },
  ): Promise<{ [region: string]: Position }>;
  unsubscribe(regions: string | Iterable<string>): Promise<void>;
  /** To one region, or to several at once. */
  publish(region: string | Iterable<string>, payload: Payload, about?: About): Promise<Receipt>;
  on(kind: "event", handler: (event: GamecastEvent) => void): () => void;
  on(kind: "gap", handler: (gap: GamecastGap) => void): () => void;
  on(kind: "state", handler: (state: GamecastState) => void): () => void;
  on(kind: "status", handler: (status: Status) => void): () => void;
  close(): void;
  [Symbol.asyncIterator](): AsyncIterator<GamecastEvent | GamecastGap | State>;
}

/** Connect to a gateway, or to one of several of the same network. */
export function connect<State = never>(urls: string | string[], options?: Options): Client<State>;

/** Compare two positions of one region: negative when the first comes before the second. */
export function comparePositions(one: Position, other: Position): number;
