// Making elements, and numbers for people.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "value" || name === "checked" || name === "muted") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const at = id => document.getElementById(id);
const put = (node, ...children) => node.replaceChildren(...children.flat(3).filter(child => child !== null && child !== false && child !== undefined));

const whole = x => Math.round(x).toLocaleString("en");
function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (typeof x !== "number") return String(x);
  const size = Math.abs(x);
  if (size >= 1e9) return `${(x / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${(x / 1e6).toPrecision(3)} M`;
  if (size >= 1000 || (Number.isInteger(x) && size < 1e6)) return whole(x);
  if (size !== 0 && size < 1e-3) return x.toExponential(1).replace(".0e", "e");
  return String(Number(x.toPrecision(3)));
}
function bytes(x) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (x < 1000) return `${unit === "B" || x >= 100 ? Math.round(x) : x.toFixed(1)} ${unit}`;
    x /= 1000;
  }
  return `${x.toFixed(1)} TB`;
}
const percent = x => `${Math.round(100 * x)} %`;
function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const two = x => String(Math.floor(x)).padStart(2, "0");
  const days = Math.floor(seconds / 86400);
  return `${days ? `${days} d ` : ""}${two((seconds % 86400) / 3600)}:${two((seconds / 60) % 60)}:${two(seconds % 60)}`;
}
const counted = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
const mean = values => values.reduce((sum, x) => sum + x, 0) / values.length;
const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const cssColour = text => text.startsWith("var(") ? colourOf(text.slice(4, -1)) : text;

const RUN_COLOURS = ["#2f7fd9", "#e2763b", "#2e9e68", "#b04fb5", "#c9a227", "#1fa3b8", "#d2496a", "#7a6fd0", "#7f9b2f", "#8a6a54"];
const runColour = index => RUN_COLOURS[index % RUN_COLOURS.length];

// a bar of coloured shares: [[what, part], ...]
function shares(row) {
  const parts = [["busy", row.busy || 0], ...Object.entries(row.waits || {})].filter(([, part]) => part > 0.004);
  return parts;
}
function bar(row) {
  const told = shares(row).map(([what, part]) => `${what} ${percent(part)}`).join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": told, title: told },
    shares(row).map(([what, part]) => h("i", { style: { width: `${100 * part}%`, background: causeColour(what) } })));
}

function spark(values, colour, { low = null } = {}) {
  const points = values.map((y, x) => [x, y]).filter(([, y]) => y !== null && y !== undefined);
  if (points.length < 2) return s("svg", { class: "spark", viewBox: "0 0 300 44" });
  const ys = points.map(([, y]) => y), top = Math.max(...ys), bottom = low === null ? Math.min(...ys) : low;
  const place = ([x, y]) => `${(300 * x / (values.length - 1)).toFixed(1)},${(41 - 38 * (y - bottom) / (top - bottom || 1)).toFixed(1)}`;
  const path = points.map(place).join(" L");
  const [first, last] = [points[0], points[points.length - 1]].map(place);
  return s("svg", { class: "spark", viewBox: "0 0 300 44", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { d: `M${first.split(",")[0]},44 L${path} L${last.split(",")[0]},44Z`, fill: colour, opacity: .13 }),
    s("path", { d: `M${path}`, fill: "none", stroke: colour, "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
}
