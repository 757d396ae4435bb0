// The JavaScript client as a program that `gamecast gateway-conformance` drives: docs/conformance.md.
//
//   gamecast gateway-conformance -- node --experimental-websocket clients/javascript/conformance.mjs [gamecast.js]
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [file] = process.argv.slice(2);
const client = file ? pathToFileURL(file) : new URL("../../gateway/client/gamecast.js", import.meta.url);
const { connect } = await import(client);

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));

/** An item as the protocol has it: bytes as base64 again. */
function written({ payload, state, ...item }) {
  if (state) return { ...item, state: Object.fromEntries(Object.entries(state).map(([key, value]) => [key, written(value)])) };
  if (payload instanceof Uint8Array) return { ...item, base64: base64(payload) };
  return payload === undefined ? item : { ...item, payload };
}

const { GAMECAST_URL: url, GAMECAST_TOKEN: token, GAMECAST_NAME: name } = process.env;
const game = connect(url, { token, name });
for (const kind of ["event", "gap", "state"]) game.on(kind, (item) => say({ [kind]: written(item) }));
game.on("status", (status, reason) => say({ status, code: reason?.code }));
game.on("error", ({ code, message }) => say({ error: { code, message } }));

const COMMANDS = {
  subscribe: ({ regions, since, state }) => game.subscribe(regions, { since, state }),
  unsubscribe: ({ regions }) => game.unsubscribe(regions),
  publish({ region, regions, payload, base64: text, key, only_if: onlyIf }) {
    return game.publish(regions ?? region, text === undefined ? payload : bytes(text), { key, onlyIf });
  },
};

async function carryOut(command) {
  const { do: what, id } = command;
  if (what === "close") {
    game.close();
    say({ done: id });
    process.stdin.destroy();
    // A WebSocket waits long for the close of a server that is silent.
    return setTimeout(() => process.exit(), 1000).unref();
  }
  if (!COMMANDS[what]) return say({ unsupported: id });
  try {
    const answer = await COMMANDS[what](command);
    say(what === "publish" ? { receipt: id, region: answer.region, position: answer.position } : { done: id });
  } catch ({ code, message, definite, retriable }) {
    say({ refused: id, code, message, definite, retriable });
  }
}

createInterface({ input: process.stdin }).on("line", (line) => carryOut(JSON.parse(line)));
say({ ready: "@gamecast/client" });
