// Writes dist/ from the client that the gateway serves: ESM and CommonJS, for browsers and for Node, with types.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const here = new URL(".", import.meta.url);
const source = new URL("../../gateway/client/", here);
const dist = new URL("dist/", here);

// Node has a global WebSocket since version 22; before, the package `ws` has one.
const NODE = (load) => `if (!globalThis.WebSocket) {
  try {
    Client.WebSocket = ${load};
  } catch {
    // connect() says what to install, unless it is given a WebSocket.
  }
}
`;

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
const files = {
  "gamecast.js": "gamecast.js",
  "gamecast.d.ts": "gamecast.d.ts",
  "gamecast.d.cts": "gamecast.d.ts",
  "messages.d.ts": "messages.d.ts",
};
for (const [to, from] of Object.entries(files)) {
  copyFileSync(new URL(from, source), new URL(to, dist));
}
copyFileSync(new URL("../../LICENSE", here), new URL("LICENSE", here));
writeFileSync(new URL("gamecast.cjs", dist), commonJs(readFileSync(new URL("gamecast.js", source), "utf8")));
writeFileSync(new URL("node.js", dist), `import { createRequire } from "node:module";
import { Client } from "./gamecast.js";

${NODE('createRequire(import.meta.url)("ws")')}
export * from "./gamecast.js";
`);
writeFileSync(new URL("node.cjs", dist), `"use strict";
const client = require("./gamecast.cjs");
const { Client } = client;

${NODE('require("ws")')}
module.exports = client;
`);

/** The client imports nothing and exports only declarations, so its exports are all that differs. */
function commonJs(text) {
  const names = [];
  const body = text.replace(/^export (function|class|const) (\w+)/gm, (_, kind, name) => {
    names.push(name);
    return `${kind} ${name}`;
  });
  if (/^(export|import)\b/m.test(body)) throw new Error("gamecast.js has an import or an export that build.mjs does not know");
  return `"use strict";\n${body}\nmodule.exports = { ${names.join(", ")} };\n`;
}
