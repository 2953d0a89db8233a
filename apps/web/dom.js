// Small pieces of the page. Text is always set as text, never as HTML.

export const byId = (id) => document.getElementById(id);

// element("td.number", "12"); a class follows each point.
export function element(what, text = "", children = []) {
  const [name, ...classes] = what.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  if (text !== "") made.textContent = text;
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => whole.format(value);
export const short = (value) => (value >= 1000 ? whole.format(value) : digits.format(value));
export const percent = (share) => `${digits.format(100 * share)} %`;

export function seconds(value) {
  if (value < 1e-3) return `${digits.format(value * 1e6)} \u00b5s`;
  if (value < 1) return `${digits.format(value * 1e3)} ms`;
  return `${digits.format(value)} s`;
}
