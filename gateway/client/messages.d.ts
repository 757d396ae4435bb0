/** The messages of the gateway's protocol, as they are on the wire: see docs/messages.md. Generated. */

/** `epoch-sequence`. */
export type Position = `${number}-${number}`;

/** What JSON can represent. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type ErrorCode =
  | "malformed"
  | "invalid-region"
  | "invalid-payload"
  | "invalid-key"
  | "too-large"
  | "unauthorized"
  | "expired"
  | "forbidden"
  | "origin"
  | "denied"
  | "backend-down"
  | "rate"
  | "limit"
  | "busy"
  | "unreachable"
  | "uncertain"
  | "order"
  | "key-conflict"
  | "too-many-keys"
  | "not-together"
  | "conflict"
  | "superseded"
  | "too-slow"
  | "not-found"
  | "internal";

/** An event is published, durably. */
export interface Ack {
  /** Of an event of several regions: the first. */
  region: string;
  position: Position;
  /** That of the message that this answers; missing if it had none. */
  id?: number | string;
  /** Of an event of several regions: its position in each; only in the first if repeated. */
  positions?: { [key: string]: Position };
  /** It had been published before the connection was lost. */
  repeated?: true;
}

/** Events are published. */
export interface Acks {
  type: "acks";
  acks: Ack[];
}

/** Why not. */
export interface ErrorBody {
  code: ErrorCode;
  /** For people. */
  message: string;
  /** The same may succeed later. */
  retriable: boolean;
  /** What was asked for has certainly not happened. */
  definite: boolean;
  retry_after_ms?: number;
  /** Of key-conflict: the key's region; of forbidden: the region. */
  region?: string;
  /** Of key-conflict: the key whose condition does not hold. */
  key?: string;
  /** Of key-conflict: where the key was set last; null: not set. */
  position?: Position | null;
}

/** A message is refused; or, without an id, the session, before it is closed. */
export interface ErrorMessage {
  code: ErrorCode;
  /** For people. */
  message: string;
  /** The same may succeed later. */
  retriable: boolean;
  /** What was asked for has certainly not happened. */
  definite: boolean;
  retry_after_ms?: number;
  /** Of key-conflict: the key's region; of forbidden: the region. */
  region?: string;
  /** Of key-conflict: the key whose condition does not hold. */
  key?: string;
  /** Of key-conflict: where the key was set last; null: not set. */
  position?: Position | null;
  type: "error";
  /** That of the message that this answers; missing if it had none. */
  id?: number | string;
}

/** An event of a region that the client follows: exactly one of payload and base64. */
export interface Event {
  region: string;
  position: Position;
  sender: string;
  /** In milliseconds since 1970, by the publisher's clock. */
  sent_at_ms: number;
  payload?: Json;
  base64?: string;
  /** The key that the event names, if it names one. */
  key?: string;
  /** Of an event of several regions: those that the client follows. */
  regions?: string[];
  /** Of an event of several regions: its position in each of these. Keep all of them. */
  positions?: { [key: string]: Position };
}

/** Events, gaps and states, in their order, across regions too. */
export interface Events {
  type: "events";
  events: (Event | Gap | State | PresenceItem)[];
}

/** An event is not published. */
export interface Failed {
  region: string;
  error: ErrorBody;
  /** The HTTP status that it would have had alone. */
  status: number;
}

/** Stands in the place of events that will not come. */
export interface Gap {
  region: string;
  /** Where the region goes on after it; null: not known. */
  position: Position | null;
  gap: Missing;
  /** Of an event of several regions that JSON cannot represent. */
  regions?: string[];
  positions?: { [key: string]: Position };
}

/** The first message of a session. In a running session: a new token. */
export interface Hello {
  type: "hello";
  /** The version of the protocol. */
  protocol?: 1;
  /** A signed token; not needed with an Authorization header, or if the gateway has no keys. */
  token?: string | null;
  /** The token's sub, or this, ~ and any text. Left out: one is generated. */
  name?: string | null;
  /** How long to collect events, or until a message is full. 0: send what arrived during the last send. */
  batch_ms?: number;
  /** The largest message of several events or acks to receive, within the gateway's limit. Left out: 60,000. A larger single event comes alone. */
  message_bytes_max?: number | null;
  /** Whether to receive the updates of the regions that the session follows. */
  updates?: boolean;
}

/** What a session may do at most. */
export interface Limits {
  /** Of one message that the client sends. */
  message_bytes: number;
  /** Of one event, as JSON or bytes. */
  payload_bytes: number;
  messages_per_array: number;
  /** That the session follows. */
  regions: number;
  /** Publishes without an ack, until the socket is not read. */
  unanswered: number;
}

/** Which events will not come, and why. */
export interface Missing {
  first: Position;
  /** Null: it is not known how many are missing. */
  last: Position | null;
  reason: string;
}

/** A part of a region's history, in order. */
export interface Page {
  region: string;
  events: (Event | Gap)[];
  /** Where the next page begins: pass it as after. */
  next: Position;
  /** Whether there are events after next. */
  more: boolean;
}

/** Answer this. */
export interface Ping {
  type: "ping";
  id?: number | string | null;
}

/** An event to publish, and where: exactly one of region and regions. */
export interface PlacedPublication {
  /** Any JSON, nested 64 deep at most. */
  payload?: Json;
  /** Bytes, in base64. */
  base64?: string;
  /** The event sets this key of the region, or, with the payload null, deletes it. */
  key?: string | null;
  /** Publish only if the key was last set at this position; null: only if it is not set. Or of some keys: {key: position}. Of an event with regions: {region: {key: position}}. */
  only_if?: Position | { [key: string]: Position | { [key: string]: Position | null } | null } | null;
  region?: string;
  /** Publish to all of these regions at once, or to none. */
  regions?: string[];
}

/** The answer to a ping. */
export interface Pong {
  type: "pong";
  /** That of the message that this answers; missing if it had none. */
  id?: number | string;
}

/** Who arrives or leaves. */
export interface Presence {
  name: string;
  /** Whether it arrives. */
  here: boolean;
  /** What it says of itself; of a leave, what it had said, if that is known. */
  info: Json;
}

/** Somebody arrives in a region, or leaves it. After a leave, nothing more of that stay comes. */
export interface PresenceItem {
  region: string;
  position: Position;
  presence: Presence;
}

/** An event to publish. */
export interface Publication {
  /** Any JSON, nested 64 deep at most. */
  payload?: Json;
  /** Bytes, in base64. */
  base64?: string;
  /** The event sets this key of the region, or, with the payload null, deletes it. */
  key?: string | null;
  /** Publish only if the key was last set at this position; null: only if it is not set. Or of some keys: {key: position}. Of an event with regions: {region: {key: position}}. */
  only_if?: Position | { [key: string]: Position | { [key: string]: Position | null } | null } | null;
}

/** Several events to publish. */
export interface Publications {
  events: PlacedPublication[];
}

/** Publish an event. */
export interface Publish {
  /** Any JSON, nested 64 deep at most. */
  payload?: Json;
  /** Bytes, in base64. */
  base64?: string;
  /** The event sets this key of the region, or, with the payload null, deletes it. */
  key?: string | null;
  /** Publish only if the key was last set at this position; null: only if it is not set. Or of some keys: {key: position}. Of an event with regions: {region: {key: position}}. */
  only_if?: Position | { [key: string]: Position | { [key: string]: Position | null } | null } | null;
  region?: string;
  /** Publish to all of these regions at once, or to none. */
  regions?: string[];
  type: "publish";
  id?: number | string | null;
  /** The event may have been published before the connection was lost: publish it once. */
  retry?: boolean;
  /** Of a retry: the region's latest position that the client had when it first sent the event. With regions: that of the first. */
  after?: Position | null;
}

/** An event is published, durably. */
export interface Receipt {
  /** Of an event of several regions: the first. */
  region: string;
  position: Position;
  /** Of an event of several regions: its position in each. */
  positions?: { [key: string]: Position };
}

/** The body of every answer with an error status. */
export interface Refused {
  error: ErrorBody;
}

/** One result an event, in their order. */
export interface Results {
  results: (Receipt | Failed)[];
}

/** Tell others the newest values of keys. There is no answer, unless it is refused: they may be lost. */
export interface SendUpdates {
  type: "updates";
  updates: SentUpdate[];
  id?: number | string | null;
}

/** The newest value of a key, for those who follow the region. */
export interface SentUpdate {
  /** Any JSON, nested 64 deep at most. */
  payload?: Json;
  /** Bytes, in base64. */
  base64?: string;
  region: string;
  key: string;
  /** The region's latest position that the client has, if it follows it. */
  position?: Position | null;
}

/** The keys of a region, or a part of them, as they are at this place among the events. */
export interface State {
  region: string;
  /** As of which it is: all later items of the region are behind it. Null in all parts but the last. */
  position: Position | null;
  /** Key to value. */
  state: { [key: string]: StateValue };
  /** Its number, if there are several: begin with nothing at 0. */
  part?: number;
  /** Whether another part follows. */
  more?: boolean;
  /** Where the client asked for presence: name to what it says of itself. In the last part. */
  present?: { [key: string]: Json };
  /** The network has lost keys that no event has named since. */
  incomplete?: true;
}

/** What a key is set to: one of payload, base64 and gap. */
export interface StateValue {
  /** Where the key was set, as only_if takes it. */
  position: Position;
  sender: string;
  /** In milliseconds since 1970, by the publisher's clock. */
  sent_at_ms: number;
  payload?: Json;
  base64?: string;
  /** JSON cannot represent the value. */
  gap?: Missing;
}

/** How a gateway is. */
export interface Status {
  gateway: string;
  status: "alive" | "ready" | "leaving" | "unreachable";
  /** What is wrong with the keys for tokens, if anything. */
  keys?: string;
}

/** The data of one server-sent event. */
export interface Streamed {
  events: (Event | Gap | State | PresenceItem)[];
}

/** Follow regions. */
export interface Subscribe {
  type: "subscribe";
  regions: string[];
  id?: number | string | null;
  /** First come the events after these positions: {region: position} for each of the regions. 0: from the oldest event; another integer: from that epoch. A single value applies to all regions. */
  since?: number | Position | { [key: string]: number | Position } | null;
  /** First comes the state of the regions' keys. Not together with since. */
  state?: boolean;
  /** Regions, with state or since, where others see that this client is there, and what it says of itself; it hears who else arrives and leaves. "watch": only that. */
  presence?: { [key: string]: { [key: string]: Json } | "watch" } | null;
}

/** The regions are followed: every event after these positions comes. */
export interface Subscribed {
  type: "subscribed";
  regions: { [key: string]: Position };
  /** That of the message that this answers; missing if it had none. */
  id?: number | string;
}

/** Follow regions no longer. */
export interface Unsubscribe {
  type: "unsubscribe";
  regions: string[];
  id?: number | string | null;
}

/** No event of these regions follows. */
export interface Unsubscribed {
  type: "unsubscribed";
  regions: string[];
  /** That of the message that this answers; missing if it had none. */
  id?: number | string;
}

/** The newest value of a key, by one sender: exactly one of payload and base64. */
export interface UpdateItem {
  region: string;
  key: string;
  sender: string;
  /** In milliseconds since 1970, by the publisher's clock. */
  sent_at_ms: number;
  /** Up to where its sender had seen the region: a later event is news to it. */
  position: Position;
  payload?: Json;
  base64?: string;
}

/** Updates, after the events that their senders had seen or published before. Others may have been lost. */
export interface Updates {
  type: "updates";
  updates: UpdateItem[];
}

/** The session has begun, or goes on with a new token. */
export interface Welcome {
  type: "welcome";
  protocol: 1;
  gateway: string;
  session: string;
  /** By which others know this sender. */
  name: string;
  heartbeat_ms: number;
  /** When the token expires; null: never. */
  expires_at_ms: number | null;
  /** As in the hello, within the gateway's limit. */
  message_bytes_max: number;
  limits: Limits;
  /** From the game's backend, if its connect hook gave any. */
  data?: Json;
  /** Regions to follow, from the game's backend. */
  subscribe?: string[];
}

export type ClientMessage = Hello | Subscribe | Unsubscribe | Publish | SendUpdates | Ping;
export type ServerMessage = Welcome | Subscribed | Unsubscribed | Acks | Pong | Events | Updates | ErrorMessage;
export type Item = Event | Gap | State | PresenceItem;
