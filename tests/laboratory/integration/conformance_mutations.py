"""Bugs to plant in the JavaScript client, each a small change of its text: what the conformance kit must find."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """``old`` occurs once in the client, and becomes ``new``. ``scenario``: one that fails for it."""

    name: str
    scenario: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "a gap does not move the position",
        "resume-after-gap",
        "for (const [region, position] of placesOf(event)) {",
        "if (!event.gap) for (const [region, position] of placesOf(event)) {",
    ),
    Mutation(
        "an event of several regions moves one position",
        "resume-after-gap",
        "  if (positions) return Object.entries(positions);\n",
        "",
    ),
    Mutation(
        "regions are resumed one by one",
        "drops",
        'if (regions.length) this.#say({ type: "subscribe", id: "resume", regions, since, '
        "presence: this.#presenceIn(regions) });",
        "if (regions.length) for (const region of regions) {\n"
        '      this.#say({ type: "subscribe", id: "resume", regions: [region], since: { [region]: since[region] } });\n'
        "    }",
    ),
    Mutation(
        "the client resumes live, behind what it missed",
        "reset-within-message",
        'id: "resume", regions, since, presence: this.#presenceIn(regions) });',
        'id: "resume", regions });',
    ),
    Mutation(
        "the position is the one of the subscribe, not of the last event",
        "drops",
        "if (this.#wanted.has(region)) this.#wanted.set(region, position);",
        "if (this.#wanted.get(region) === null) this.#wanted.set(region, position);",
    ),
    Mutation(
        "the events of a message are reported from its end",
        "order",
        "    for (const event of events) {\n      if (this.#closed) return;",
        "    for (const event of events.reverse()) {\n      if (this.#closed) return;",
    ),
    Mutation(
        "the parts of a state are not put together",
        "state-in-parts",
        "item.part ? this.#states.get(item.region) ?? [] : [];",
        "[];",
    ),
    Mutation("an unsubscribed region is resumed", "unsubscribe", "    this.#wanted.delete(region);\n", ""),
    Mutation(
        "a publish is sent again as a new one",
        "retry",
        "sent ? { retry: true, after: entry.after } : {}",
        "{}",
    ),
    Mutation(
        "a retry is looked for behind the position of today",
        "retry",
        "if (!sent) entry.after =",
        "entry.after =",
    ),
    Mutation(
        "what has no ack is forgotten with the connection",
        "retry",
        "for (const entry of waiting) this.#sayPublish(entry);",
        "for (const entry of waiting) if (!entry.sent) this.#sayPublish(entry);",
    ),
    Mutation(
        "sizes are counted in letters",
        "too-large",
        'return { body: `"payload":${text}`, bytes: byteLength(text) };',
        'return { body: `"payload":${text}`, bytes: text.length };',
    ),
    Mutation(
        "the limits of the welcome are not known",
        "too-large",
        "this.#limits = welcome.limits ?? {};",
        "",
    ),
    Mutation("a superseded client connects again", "close-4009", ', 4009: "superseded"', ""),
    Mutation("every close is final", "close-1001", "if (FINAL[code] && ", "if ((FINAL[code] || code === 1001) && "),
    Mutation(
        "the client does not wait before it connects",
        "backoff",
        "Math.max(+waitMs || 0, wait * (0.5 + Math.random()))",
        "+waitMs || 0",
    ),
    Mutation(
        "retry_after_ms is not respected",
        "resume-refused-for-now",
        "this.#drop(said.message, said.retry_after_ms)",
        "this.#drop(said.message)",
    ),
    Mutation("what is no message ends the client", "junk", "this.#drop(error.message);", "this.#end(error);"),
    Mutation("a silent server is waited for", "silence", 'this.#drop("silent")', "void 0"),
    Mutation(
        "a retry is looked for behind what the client had before the acks",
        "retry-behind-an-ack",
        "for (const [region, position] of placesOf(ack)) this.#acked.set(region, position);",
        "",
    ),
    Mutation(
        "an ack of an event of several regions counts in the first",
        "retry-behind-an-ack",
        "for (const [region, position] of placesOf(ack)) this.#acked.set(region, position);",
        "this.#acked.set(ack.region, ack.position);",
    ),
    Mutation(
        "positions are compared as texts",
        "retry-behind-an-ack",
        "return epoch - otherEpoch || sequence - otherSequence;",
        "return one < other ? -1 : one > other ? 1 : 0;",
    ),
    Mutation(
        "a refused subscribe leaves regions that are joined",
        "subscribe-refused",
        "if (!this.#joined.has(region) && !pending.includes(region)) this.#forget(region);",
        "this.#forget(region);",
    ),
    Mutation(
        "the limits are those of the first welcome",
        "too-large",
        "this.#limits = welcome.limits ?? {};",
        "if (!this.#limits.message_bytes) this.#limits = welcome.limits ?? {};",
    ),
    Mutation(
        "a subscribe that is sent again has no since",
        "subscribe-unanswered",
        "since: since ?? undefined, state",
        "since: this.#ready ? since ?? undefined : undefined, state",
    ),
    Mutation(
        "a state that begins again keeps its first parts",
        "reset-within-state",
        "const entries = item.part ? this.#states.get(item.region) ?? [] : [];",
        "const entries = this.#states.get(item.region) ?? [];",
    ),
    Mutation(
        "the client waits as long after each failure",
        "backoff",
        "const RECONNECT_MS = [50, 100, 250, 500, 1000, 2000, 5000];",
        "const RECONNECT_MS = [150];",
    ),
    Mutation("a new name after a reconnect", "drops", "name: this.name ?? undefined,", "name: undefined,"),
)
