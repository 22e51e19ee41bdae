// Curves: one chart for each figure, with a common cursor, several runs over one another, bands over seeds.

const AXES = { env_steps: "env steps", wall: "time", update: "updates" };
const view = { axis: "env_steps", smooth: 0, bands: false, zoom: null, filter: "", charts: [] };
const BAND_POINTS = 160, RESAMPLES = 200;

function short(x) {
  const size = Math.abs(x);
  for (const [unit, step] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (size >= step) return `${Number((x / step).toPrecision(3))}${unit}`;
  return size && size < 1e-3 ? x.toExponential(0) : String(Number(x.toPrecision(3)));
}
const axisText = x => x === null || x === undefined ? "" : view.axis === "wall" ? clock(x) : short(x);

// Points of one figure of one run, in the order of x.
function points(curves, name) {
  const measured = !(name in curves.columns) && name in curves.evaluations;
  const columns = measured ? curves.evaluations : curves.columns, ys = columns[name] || [];
  const xs = measured && view.axis !== "env_steps" ? columns.env_steps.map(x => between(curves.columns.env_steps || [], curves.columns[view.axis] || [], x)) : columns[view.axis] || [];
  const found = [];
  for (let i = 0; i < ys.length; i++) if (ys[i] !== null && ys[i] !== undefined && xs[i] !== null && xs[i] !== undefined) found.push([xs[i], ys[i]]);
  for (let i = 1; i < found.length; i++) if (found[i][0] < found[i - 1][0]) { found.sort((a, b) => a[0] - b[0]); break; }
  const x = [], y = [];
  let kept = 0, weight = 0;
  for (const [px, py] of found) {
    kept = view.smooth * kept + (1 - view.smooth) * py; // an exponential mean, without the pull of its zero start
    weight = view.smooth * weight + (1 - view.smooth);
    if (x.length && x[x.length - 1] === px) y[y.length - 1] = kept / weight;
    else { x.push(px); y.push(kept / weight); }
  }
  return { x, y, measured };
}

// The value at x on a line through these points; null outside.
function between(xs, ys, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return xs.length && x <= xs[0] ? ys[0] : xs.length ? ys[ys.length - 1] : null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  const part = xs[high] === xs[low] ? 0 : (x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + part * (ys[high] - ys[low]);
}

// Interquartile mean: the mean of the middle half, as rliable defines it.
function middleMean(values) {
  const sorted = values.slice().sort((a, b) => a - b), cut = Math.floor(sorted.length / 4);
  return mean(sorted.slice(cut, sorted.length - cut));
}
function bootstrap(values) {
  let state = 12345;
  const draw = n => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return Math.floor(state / 4294967296 * n); };
  const found = Array.from({ length: RESAMPLES }, () => middleMean(values.map(() => values[draw(values.length)]))).sort((a, b) => a - b);
  return [found[Math.floor(.025 * RESAMPLES)], found[Math.ceil(.975 * RESAMPLES) - 1]];
}

// [data, series] of uPlot for one figure.
function lines(name, runs) {
  const found = runs.map(run => ({ run, ...points(run.curves, name) })).filter(one => one.x.length);
  if (view.bands && runs.length > 1) return banded(found);
  const sparse = found.every(one => one.measured || one.x.length < 12);
  const series = found.map(one => ({ label: one.run.label, stroke: one.run.colour, width: 1.8, spanGaps: true, points: { show: sparse, size: 6, fill: one.run.colour } }));
  const data = found.length > 1 ? uPlot.join(found.map(one => [one.x, one.y])) : found.length ? [found[0].x, found[0].y] : [[]];
  return [data, series, []];
}

function banded(found) {
  const groups = new Map();
  for (const one of found) groups.set(one.run.group, [...(groups.get(one.run.group) || []), one]);
  const least = Math.min(...found.map(one => one.x[0])), most = Math.max(...found.map(one => one.x[one.x.length - 1]));
  const grid = Array.from({ length: BAND_POINTS }, (_, i) => least + (most - least) * i / (BAND_POINTS - 1));
  const data = [grid], series = [], bands = [];
  for (const [label, members] of groups) {
    const middle = [], low = [], high = [], colour = members[0].run.colour;
    for (const x of grid) {
      const values = members.filter(one => one.x[0] <= x && x <= one.x[one.x.length - 1]).map(one => between(one.x, one.y, x));
      const all = values.length === members.length, ends = all && values.length > 1 ? bootstrap(values) : [null, null];
      middle.push(all ? middleMean(values) : null); low.push(ends[0]); high.push(ends[1]);
    }
    const at = data.length;
    data.push(middle, high, low);
    series.push({ label: `${label} (${members.length})`, stroke: colour, width: 2, spanGaps: true, points: { show: false } },
      ...["", ""].map(() => ({ label: "", stroke: colour, width: .5, points: { show: false } })));
    bands.push({ series: [at + 1, at + 2], fill: colour + "2e" });
  }
  return [data, series, bands];
}

// What the workers of a node did over time, stacked.
function stacked(node, run) {
  const columns = run.curves.columns, xs = columns[view.axis] || [];
  const names = [`busy/${node}`, ...Object.keys(columns).filter(name => name.startsWith(`waits/${node}/`))].filter(name => columns[name]);
  const rows = xs.map((x, i) => [x, names.map(name => columns[name][i] || 0)]).filter(([x]) => x !== null).sort((a, b) => a[0] - b[0]);
  const data = [rows.map(([x]) => x), ...names.map((_, n) => rows.map(([, values]) => values.slice(0, n + 1).reduce((sum, y) => sum + y, 0)))];
  const series = names.map(name => { const what = name.split("/").slice(2).join("/") || "busy", colour = cssColour(causeColour(what)); return { label: what, stroke: colour, fill: colour, width: 0, points: { show: false } }; });
  data.splice(1, names.length, ...data.slice(1).reverse()); // the tallest first: the others are painted over it
  return [data, series.reverse(), []];
}

class Chart {
  constructor(name, words, build, { percentages = false } = {}) {
    Object.assign(this, { name, build, percentages, visible: false, stale: true, plot: null });
    this.value = h("output"); this.place = h("div"); this.told = h("div", { class: "told" });
    this.node = h("article", { class: "card chart", "data-figure": name }, h("h4", {}, h("span", {}, words.title), this.value), h("p", {}, words.about), this.place, this.told);
    watchSeen.observe(this.node);
  }

  refresh() {
    if (!this.visible) { this.stale = true; return; }
    this.stale = false;
    const [data, series, bands] = this.build();
    const shape = JSON.stringify([series.map(one => [one.label, one.stroke]), view.axis, this.place.clientWidth]);
    if (!this.plot || shape !== this.shape) {
      if (this.plot) this.plot.destroy();
      this.shape = shape;
      this.plot = new uPlot(this.options(series, bands), data, this.place);
      if (view.zoom) this.plot.setScale("x", view.zoom);
    } else {
      this.plot.setData(data, !view.zoom);
    }
    this.says(null);
  }

  options(series, bands) {
    const ink = colourOf("--soft"), line = colourOf("--faint"), chart = this;
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, DejaVu Sans, sans-serif" };
    const only = type => type === "mousemove" || type === "mouseleave";
    return {
      width: Math.max(200, this.place.clientWidth), height: 176, legend: { show: false }, padding: [10, 10, 0, 0], bands,
      cursor: { sync: { key: "srl", setSeries: false, scales: ["x", null], filters: { pub: only, sub: only } }, drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: this.percentages ? { range: [0, 1] } : { range: (u, low, high) => uPlot.rangeNum(low ?? 0, high ?? 1, .12, true) } },
      axes: [{ ...axis, size: 26, space: 70, values: (u, ticks) => ticks.map(axisText) }, { ...axis, size: 50, space: 34, values: (u, ticks) => ticks.map(x => this.percentages ? percent(x) : short(x)) }],
      series: [{}, ...series],
      hooks: {
        setCursor: [u => chart.says(u)],
        setSelect: [u => { if (u.select.width > 4) zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false); }],
        ready: [u => { u.over.addEventListener("dblclick", () => zoomTo(null)); u.over.addEventListener("mouseleave", () => { chart.told.style.display = "none"; }); }],
      },
    };
  }

  // The values at the cursor: of the first line in the head, of all in a plate beside the cursor.
  says(u) {
    const data = this.plot.data, index = u ? u.cursor.idx : null;
    const near = ys => { for (let d = 0; d < 400; d++) { for (const i of [index - d, index + d]) if (ys[i] !== null && ys[i] !== undefined) return ys[i]; } return null; };
    const last = ys => { for (let i = ys.length - 1; i >= 0; i--) if (ys[i] !== null && ys[i] !== undefined) return ys[i]; return null; };
    const told = this.plot.series.slice(1).map((one, n) => ({ label: one.label, colour: one._stroke || one.stroke, y: index === null || index === undefined ? last(data[n + 1]) : near(data[n + 1]) }));
    if (this.percentages) { told.reverse(); let below = 0; for (const one of told) { const y = one.y || 0; one.y = y - below; below = y; } }
    const text = y => this.percentages ? percent(y || 0) : this.name.startsWith("rss/") ? bytes(y || 0) : number(y);
    const main = told.filter(one => one.label);
    this.value.textContent = main.length === 1 || this.percentages ? text(main[0] && main[0].y) : "";
    const over = u && u.cursor.left >= 0 && u.over.matches(":hover");
    this.told.style.display = over ? "block" : "none";
    if (!over) return;
    put(this.told, h("div", { class: "quiet" }, `${axisText(data[0][index])} ${view.axis === "wall" ? "" : AXES[view.axis]}`),
      main.slice(0, 10).map(one => h("div", {}, h("i", { class: "swatch", style: { background: typeof one.colour === "function" ? one.colour() : one.colour } }), `${main.length > 1 ? `${one.label}  ` : ""}${text(one.y)}`)));
    const left = u.over.offsetLeft + u.cursor.left, wide = this.node.clientWidth;
    Object.assign(this.told.style, left > wide / 2 ? { left: "auto", right: `${wide - left + 4}px` } : { right: "auto", left: `${left + 34}px` });
    this.told.style.top = "58px";
  }
}

const watchSeen = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const chart = view.charts.find(one => one.node === entry.target);
    if (!chart) continue;
    chart.visible = entry.isIntersecting;
    if (chart.visible && chart.stale) chart.refresh();
  }
}, { rootMargin: "200px" });
const watchSize = new ResizeObserver(() => { for (const chart of view.charts) if (chart.plot && chart.place.clientWidth !== chart.plot.width) chart.refresh(); });

function zoomTo(range) {
  view.zoom = range;
  for (const chart of view.charts) if (chart.plot) { if (range) chart.plot.setScale("x", { min: range[0], max: range[1] }); else chart.plot.setData(chart.plot.data, true); }
  if (range) view.zoom = { min: range[0], max: range[1] };
}
const redrawCurves = () => { for (const chart of view.charts) chart.refresh(); };

// All charts anew: runs or figures have changed. `runs`: [{id, label, group, colour, curves}], the one in focus first.
function makeCurves(place, runs, nodes) {
  for (const chart of view.charts) { watchSeen.unobserve(chart.node); if (chart.plot) chart.plot.destroy(); }
  view.charts = [];
  const names = [...new Set(runs.flatMap(run => [...Object.keys(run.curves.columns), ...Object.keys(run.curves.evaluations)]))].filter(name => !HIDDEN.test(name));
  const groups = new Map(SHOWN_GROUPS.map(group => [group, []]));
  const order = name => FIGURES.findIndex(([pattern]) => pattern.test(name)) + 1 || 99;
  for (const name of names.sort((a, b) => order(a) - order(b) || a.localeCompare(b))) {
    const words = figureWords(name);
    if (view.filter && !`${name} ${words.title}`.toLowerCase().includes(view.filter.toLowerCase())) continue;
    const chart = new Chart(name, words, () => lines(name, runs));
    view.charts.push(chart); groups.get(words.group).push(chart);
  }
  const times = nodes.filter(node => runs.length && runs[0].curves.columns[`busy/${node}`] && !view.filter).map(node => {
    const chart = new Chart(`busy/${node}`, { title: `How ${node} spends its time`, about: "working and waiting, in the colours of the graph" }, () => stacked(node, runs[0]), { percentages: true });
    view.charts.push(chart);
    return chart;
  });
  const parts = [...groups].filter(([, charts]) => charts.length).flatMap(([group, charts]) => [h("h3", {}, group), h("div", { class: "charts" }, charts.map(chart => chart.node))]);
  if (times.length) parts.splice(2, 0, h("h3", {}, "Time"), h("div", { class: "charts" }, times.map(chart => chart.node)));
  put(place, parts.length ? parts : h("p", { class: "quiet" }, view.filter ? "no figure has this name" : "no figures yet: they come with the first updates"));
  watchSize.disconnect(); watchSize.observe(place);
}

function curveTools(changed, several) {
  const axis = h("span", { class: "set", role: "group", "aria-label": "x axis" }, Object.entries(AXES).map(([key, words]) =>
    h("button", { class: view.axis === key ? "on" : "", "aria-pressed": String(view.axis === key), "data-axis": key, onclick: () => { view.axis = key; zoomTo(null); changed("axis"); } }, words)));
  const smooth = h("label", {}, "smooth ", h("input", { type: "range", min: 0, max: .97, step: .01, value: view.smooth, oninput: event => { view.smooth = Number(event.target.value); redrawCurves(); } }));
  const bands = several ? h("button", { class: view.bands ? "on" : "", "aria-pressed": String(view.bands), title: "interquartile mean and 95 % interval over runs that differ in their seed only",
    onclick: () => { view.bands = !view.bands; changed("bands"); } }, "bands over seeds") : null;
  const filter = h("input", { type: "search", id: "filter", placeholder: "find a figure ( / )", "aria-label": "find a figure", value: view.filter, oninput: event => { view.filter = event.target.value; changed("filter"); } });
  return h("div", { class: "tools" }, h("span", {}, "x axis"), axis, smooth, bands, h("span", { class: "grow" }), filter);
}
