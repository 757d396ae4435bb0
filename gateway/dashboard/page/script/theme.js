// Light, dark, or as the system has it; code that draws on a canvas registers for changes.
import { byId, say } from "./dom.js";

const KEY = "gamecast-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];
const NEXT = { auto: "light", light: "dark", dark: "auto" };

export function onTheme(listener) {
  listeners.push(listener);
}

export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export function start() {
  const button = byId("theme");
  const show = () => {
    const chosen = document.documentElement.dataset.theme ?? "auto";
    say(button, `Theme: ${chosen === "auto" ? `auto (${dark.matches ? "dark" : "light"})` : chosen}`);
    listeners.forEach((listener) => listener());
  };
  button.addEventListener("click", () => {
    const chosen = NEXT[document.documentElement.dataset.theme ?? "auto"];
    if (chosen === "auto") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem(KEY);
    } else {
      document.documentElement.dataset.theme = chosen;
      localStorage.setItem(KEY, chosen);
    }
    show();
  });
  dark.addEventListener("change", show);
  show();
}
