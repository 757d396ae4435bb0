// The way to the gateway: a token where it asks for one, requests, and the stream of states.
const KEY = "gamecast-token";
const SILENT_MS = 25_000; // the gateway sends more often while somebody watches: then the stream is opened again
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

export class Refused extends Error {
  constructor(status, told) {
    super(told?.message ?? `the gateway answered ${status}`);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export async function ask(place, query = {}) {
  const response = await request(`data/${place}?${new URLSearchParams(query)}`);
  return response.json();
}

// Calls `state` with each state, and `link` with how the connection is: live, lost (why, and until when) or refused.
export async function follow({ state, link }) {
  for (let failures = 0; ; ) {
    try {
      await listen((document) => {
        failures = 0;
        link({ is: "live" });
        state(document);
      });
      throw new Error("the gateway has ended the stream");
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        await link({ is: "refused", why: error.message });
        failures = 0;
        continue;
      }
      const wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
      link({ is: "lost", why: error instanceof TypeError ? "the gateway cannot be reached" : error.message, wait });
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

async function listen(heard) {
  const controller = new AbortController();
  let silence;
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => controller.abort(new Error("the gateway has fallen silent")), SILENT_MS);
  };
  try {
    alive();
    const response = await request("data/live", controller.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) heard(JSON.parse(part.slice(6)));
    }
  } finally {
    clearTimeout(silence);
    controller.abort();
  }
}

async function request(url, signal) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  const response = await fetch(url, { headers, signal, cache: "no-store" });
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Refused(response.status, told.error);
  }
  return response;
}
