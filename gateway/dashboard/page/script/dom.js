// Elements, made of texts only: nothing that comes from the network is ever read as HTML.

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Texts change every other second, and screen readers should hear of those alone that did.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function table(caption, columns, rows) {
  const head = make("tr", {}, ...columns.map(({ title, text }) => make("th", { scope: "col", class: text && "text" }, title)));
  const body = rows.map((row) =>
    make("tr", {}, ...columns.map(({ value, text, mark }) => {
      const shown = value(row);
      return make("td", { class: [text && "text", mark?.(row)].filter(Boolean).join(" ") || null }, shown);
    })),
  );
  return make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
}
