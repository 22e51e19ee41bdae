// Several runs: a table to choose from, and their settings and results as parallel coordinates.

const valueText = value => value === undefined || value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);

function runLabel(run, varying) {
  const parts = varying.filter(key => key in run.settings).map(key => `${key.split(".").at(-1)} ${valueText(run.settings[key])}`);
  return parts.length && parts.length < 5 ? parts.join(", ") : run.folder;
}
const groupLabel = (run, varying) => varying.filter(key => key !== "seed" && key in run.settings).map(key => `${key.split(".").at(-1)} ${valueText(run.settings[key])}`).join(", ") || run.experiment || run.folder;

// What runs are judged by: the figure of their sweep, else the return.
const judgedBy = app => app.sweep && app.sweep.metric !== "episode/return" ? app.sweep.metric : "return";
const scoreOf = run => typeof run.score === "number" ? run.score : run.mean_return;

function drawRuns(place, app, { choose, focus }) {
  const varying = app.varying.filter(key => !["name"].includes(key)), shown = varying.slice(0, 6), halving = app.runs.some(run => run.round);
  if (!app.sort && app.sweep) app.sort = { key: "score", way: -1 };
  const sorted = app.runs.slice();
  const rank = run => app.sort.key === "score" ? [run.round || 0, scoreOf(run) ?? -Infinity] : [app.sort.key in run ? run[app.sort.key] : run.settings[app.sort.key]];
  if (app.sort) sorted.sort((a, b) => { const xs = rank(a), ys = rank(b), i = xs.findIndex((x, at) => x !== ys[at]); return i < 0 ? 0 : (xs[i] > ys[i] ? 1 : -1) * app.sort.way; });
  const head = (key, text, right) => h("th", { class: right ? "num" : "" }, h("button", { onclick: () => { app.sort = { key, way: app.sort && app.sort.key === key ? -app.sort.way : -1 }; drawRuns(place, app, { choose, focus }); } }, text));
  const rows = sorted.slice(0, 200).map(run => {
    const on = app.shown.includes(run.id), [state, kind] = stateWords(run.state);
    const mark = h("input", { type: "checkbox", checked: on, "aria-label": `show ${run.id} in the curves`, onclick: event => event.stopPropagation(), onchange: event => choose(run.id, event.target.checked) });
    return h("tr", { class: `pick ${run.id === app.current ? "here" : ""}`, "data-run": run.id, onclick: () => focus(run.id) },
      h("td", {}, mark, " ", on ? h("i", { class: "swatch", style: { background: app.colour(run.id) } }) : null), h("td", {}, h("button", { style: { border: 0, padding: 0, background: "none" }, onclick: event => { event.stopPropagation(); focus(run.id); } }, h("b", {}, run.experiment || "?"), " ", h("span", { class: "quiet" }, run.folder))),
      h("td", {}, h("span", { class: `state ${kind === "good" ? "" : kind}` }, state)), shown.map(key => h("td", { class: "num" }, valueText(run.settings[key]))),
      h("td", { class: "num" }, run.env_steps === undefined ? "" : whole(run.env_steps)), halving ? h("td", { class: "num" }, run.round || "") : null, h("td", { class: "num" }, number(scoreOf(run))), h("td", { class: "num" }, clock(run.seconds)));
  });
  const held = place.querySelector(".many"), top = held ? held.scrollTop : 0;
  put(place, parallel(app, focus), h("div", { class: "card scroll many" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}), head("created", "run"), head("state", "state"), shown.map(key => head(key, key, true)), head("env_steps", "env steps", true), halving ? head("round", "round", true) : null, head("score", judgedBy(app), true), head("seconds", "time", true))), h("tbody", {}, rows)),
    app.sweep && app.sweep.refused ? h("p", { class: "quiet" }, `${counted(app.sweep.refused, "run")} of the sweep did not start`) : null,
    sorted.length > 200 ? h("p", { class: "quiet" }, `200 of ${sorted.length} runs`) : null));
  place.querySelector(".many").scrollTop = top;
}

// One axis for each setting in which the runs differ, the last one for the return; one line for each run.
function parallel(app, focus) {
  const swept = (app.sweep ? app.sweep.axes : []).filter(key => key !== "seed" && new Set(app.runs.map(run => valueText(run.settings[key]))).size > 1);
  const keys = (swept.length ? swept : app.varying.filter(key => key !== "name" && key !== "seed")).slice(0, 8), title = judgedBy(app);
  const runs = app.runs.filter(run => typeof scoreOf(run) === "number" && keys.every(key => key in run.settings));
  if (!keys.length || runs.length < 3 || new Set(runs.map(run => run.experiment)).size > 1) return null;
  const wide = 1100, high = 250, top = 34, foot = 222;
  const axes = [...keys.map(key => ({ key, title: key, of: run => run.settings[key] })), ...(new Set(runs.map(run => run.round)).size > 1 ? [{ key: "round", title: "round", of: run => run.round || 0 }] : []), { key: "return", title, of: scoreOf }].map((axis, index, all) => {
    const x = 60 + (wide - 150) * index / Math.max(1, all.length - 1), values = runs.map(axis.of);
    if (values.every(value => typeof value === "number")) {
      const low = Math.min(...values), most = Math.max(...values), log = low > 0 && most / low > 30;
      const scale = value => { const [a, b, v] = log ? [Math.log(low), Math.log(most), Math.log(value)] : [low, most, value]; return b === a ? (top + foot) / 2 : foot - (foot - top) * (v - a) / (b - a); };
      return { ...axis, x, y: run => scale(axis.of(run)), ticks: [...new Set([low, ...(values.length && new Set(values).size <= 6 ? values : []), most])].map(value => [scale(value), number(value)]) };
    }
    const kinds = [...new Set(values.map(valueText))].sort(), scale = text => kinds.length === 1 ? (top + foot) / 2 : foot - (foot - top) * kinds.indexOf(text) / (kinds.length - 1);
    return { ...axis, x, y: run => scale(valueText(axis.of(run))), ticks: kinds.slice(0, 12).map(text => [scale(text), text.slice(0, 18)]) };
  });
  const results = runs.map(scoreOf), least = Math.min(...results), most = Math.max(...results);
  const colour = run => { const part = most === least ? 1 : (scoreOf(run) - least) / (most - least); return `color-mix(in oklab, var(--good) ${Math.round(100 * part)}%, var(--slabs))`; };
  const aside = new Map(runs.map((run, i) => [run, (i / Math.max(1, runs.length - 1) - .5) * 14])); // runs with equal settings stand side by side
  const height = (axis, run) => (axis.y(run) + (axis.key === "return" ? 0 : aside.get(run))).toFixed(1);
  const curve = run => axes.map((axis, i) => { const y = height(axis, run); if (!i) return `M${axis.x},${y}`; const middle = (axes[i - 1].x + axis.x) / 2; return `C${middle},${height(axes[i - 1], run)} ${middle},${y} ${axis.x},${y}`; }).join(" ");
  const picture = s("svg", { class: "parallel", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "settings and return of every run" },
    axes.map(axis => [s("line", { class: "axis", x1: axis.x, x2: axis.x, y1: top, y2: foot }), s("text", { x: axis.x, y: 16, "text-anchor": "middle", "font-weight": 650 }, axis.title)]),
    runs.slice().sort((a, b) => scoreOf(a) - scoreOf(b)).map(run => s("path", { d: curve(run), stroke: colour(run), class: run.id === app.current ? "here" : "", "data-run": run.id, onclick: () => focus(run.id) }, s("title", {}, `${run.folder}\n${keys.map(key => `${key} ${valueText(run.settings[key])}`).join("\n")}\n${title} ${number(scoreOf(run))}`))),
    axes.map(axis => axis.ticks.map(([y, text]) => s("text", { x: axis.x + 7, y: y + 4 }, text))));
  return h("div", { class: "card", style: { marginBottom: "14px" } }, h("b", {}, `Settings against ${title}`), h("span", { class: "quiet" }, "  one line for each run, greener is better; click one to see it"), picture);
}
