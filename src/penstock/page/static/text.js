// How numbers, times and money are written.

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.abs(seconds);
  if (s < 0.0005) return "0 s";
  if (s < 1) return `${Math.round(seconds * 1000)} ms`;
  if (s < 10) return `${(+seconds.toFixed(1))} s`;
  // Rounded before it is taken apart: 2 h 59.9 min are 3 h, and not 2 h 60 min.
  const whole = Math.round(s), minutes = Math.round(s / 60);
  if (whole < 60) return `${Math.round(seconds)} s`;
  if (whole < 600) return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${whole / 60} min`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60), rest = minutes % 60;
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return rest ? `${hours} h ${rest} min` : `${hours} h`;
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)} k`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  if (size < 0.005) return "<0.01";
  return `${+value.toPrecision(3)}`;
}

export function money(value, currency = "") {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 2 : 4;
  // 0.20 and not 0.2: an amount has its cents, unless it is whole.
  const least = Number.isInteger(+value.toFixed(digits)) ? 0 : Math.min(2, digits);
  return `${value.toLocaleString("en", { minimumFractionDigits: least, maximumFractionDigits: digits })} ${currency}`.trim();
}

export const percent = (ratio) => (ratio === null || ratio === undefined ? "–" : `${+(ratio * 100).toFixed(1)} %`);

export function instant(film, at) {
  // Real runs have a time of day; simulated ones only the time since they began.
  if (film.start > 1e9) return new Date(at * 1000).toLocaleTimeString("en-GB");
  return duration(Math.max(0, at - film.start));
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) made.append(child);
  return made;
}

export function svg(tag, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

// Writes only what has changed: a thousand units are updated every second.
export function put(node, text) {
  if (node.lastText !== text) { node.textContent = text; node.lastText = text; }
}
export function style(node, name) {
  if (node.lastClass !== name) { node.setAttribute("class", name); node.lastClass = name; }
}
