// The page: what is shown, where it comes from, and how it is kept up to date.

const app = { runs: [], varying: [], sweep: null, shown: [], current: null, details: {}, curves: {}, sort: null, source: null, closed: false,
  colour: id => runColour(Math.max(0, app.shown.indexOf(id))) };
const LIMIT_WORDS = /^(?:the )?(.+?) (?:is|are) the limit/;
const narrow = matchMedia("(max-width: 620px)");
const SECTIONS = [["brief", "In brief"], ["graph", "Graph"], ["curves", "Curves"], ["workers", "Workers"], ["evaluations", "Evaluations"], ["settings", "Settings"], ["events", "Events"]];

const get = async (what, id) => (await fetch(id === undefined ? what : `${what}?id=${encodeURIComponent(id)}`)).json();
const filmAddress = film => DATA ? DATA.films[`${app.current}/${film.name}`] : `film/${encodeURIComponent(film.name)}?id=${encodeURIComponent(app.current)}`;
const settingOf = (detail, key) => { const found = detail.settings.find(([name]) => name === key); return found ? found[1] : undefined; };

async function load(id) {
  if (app.details[id]) return;
  const [detail, curves] = DATA ? [DATA.details[id], DATA.curves[id]] : await Promise.all([get("run", id), get("curves", id)]);
  app.details[id] = detail; app.curves[id] = curves;
}

// ---- what is shown

const underWay = detail => ["running", "created"].includes(detail.summary.state);
const describe = (count, noun) => count ? counted(count, noun) : null;
function purpose(detail) {
  const env = settingOf(detail, "env.id") || settingOf(detail, "env.use") || settingOf(detail, "env") || "an environment";
  const named = detail.settings.map(([key, value]) => [/^policies\.(.+?)\.algorithm(?:\.use)?$/.exec(key), value]).filter(([found, value]) => found && typeof value === "string");
  const use = named.length ? named[0][1] : settingOf(detail, "algorithm.use") || settingOf(detail, "algorithm");
  const learners = named.length > 1 ? ` trains ${named.length} policies (${named.map(([found]) => found[1]).join(", ")}) to act in ` : " trains a policy to act in ";
  const nodes = (detail.live.graph || { nodes: [] }).nodes;
  const count = role => nodes.filter(node => node.worker === role).reduce((sum, node) => sum + node.count, 0);
  const envs = settingOf(detail, "sampling.envs"), stop = ["env_steps", "updates", "seconds", "return"].map(key => [key, settingOf(detail, `stop.${key}`)]).filter(([, value]) => value);
  const parts = [describe(count("actor"), "actor"), describe(count("policy"), "policy worker"), describe(count("replay"), "replay"), describe(count("trainer"), "trainer"), describe(count("evaluator"), "evaluator")].filter(Boolean);
  const goals = { env_steps: x => `after ${whole(x)} env steps`, updates: x => `after ${whole(x)} updates`, seconds: x => `after ${clock(x)}`, return: x => `at a mean return of ${number(x)}` };
  return [h("p", { class: "says" }, use ? h("b", {}, String(use).split(":").at(-1).toUpperCase()) : "A policy", use ? learners : " acts in ", h("b", {}, String(env).split(":").at(-1)), "."),
    h("p", {}, envs ? `${counted(envs, "copy").replace("copys", "copies")} of it run in parallel. ` : "", parts.length ? `Workers: ${parts.join(", ")}.` : ""),
    stop.length ? h("p", { class: "quiet" }, `It ${underWay(detail) ? "ends" : "was to end"} ${stop.map(([key, value]) => goals[key](value)).join(" or ")}.`) : null];
}

// Does it learn? The return at the start, lately, and before that, against how much it wobbles, and the goal if there is one.
function verdict(ys, goal) {
  const values = ys.filter(y => y !== null && y !== undefined);
  if (values.length < 6) return ["unsure", "Too early to say", values.length ? "the first episodes have ended" : "fewer than 100 episodes have ended"];
  const part = Math.max(1, Math.floor(values.length / 8)), first = mean(values.slice(0, Math.ceil(part / 3))), last = mean(values.slice(-part)), before = mean(values.slice(-2 * part, -part));
  const range = Math.max(...values) - Math.min(...values) || 1e-9, top = Math.max(...values.slice(part - 1).map((_, i) => mean(values.slice(i, i + part)))), told = `${number(first)} → ${number(last)}`;
  if (goal && last >= goal) return ["yes", "Yes, it reached its goal", told];
  const gained = (last - first) / range, lately = (last - before) / range;
  if (top - last > .35 * range && last - first < .6 * range) return ["no", "It fell back", `from ${number(top)} at best to ${number(last)}`];
  if (gained > .25) return ["yes", lately > .03 ? "Yes, and still rising" : "Yes", told];
  if (gained < -.25) return ["no", "No, it got worse", told];
  return ["unsure", "Not yet", `${told}, within the usual variation`];
}

function learns(detail, curves) {
  const names = Object.keys(curves.columns).filter(name => /^episode\/return(\/|$)/.test(name));
  const goal = settingOf(detail, "expect.return") || settingOf(detail, "stop.return");
  const measured = curves.evaluations, evals = (measured["eval/return"] || []).filter((x, i) => x !== null && measured.env_steps[i] > 0);
  if (!names.length && evals.length) {
    const [kind, says, told] = verdict(evals, goal);
    return [h("div", { class: "big" }, number(evals.at(-1)), h("small", { class: "quiet" }, "return in evaluations")), h("p", {}, h("b", { class: kind }, says), h("span", { class: "quiet" }, `  ${told}`)), spark(evals, "var(--accent)")];
  }
  if (!names.length) return [h("p", { class: "says" }, "No episode has ended yet."), h("p", { class: "quiet" }, "The return is what the policy is rewarded with in one episode.")];
  const several = names.length > 1, ys = curves.columns[names[0]], [kind, says, told] = verdict(ys, goal), last = ys.filter(y => y !== null).at(-1);
  return [h("div", { class: "big" }, several ? names.map(name => number(curves.columns[name].filter(y => y !== null).at(-1))).join(" : ") : number(last), h("small", { class: "quiet" }, several ? names.map(name => name.split("/")[2]).join(" : ") : "return, mean of 100 episodes")),
    several ? h("p", { class: "quiet" }, "They play against each other: see the evaluations.") : h("p", {}, h("b", { class: kind }, says), h("span", { class: "quiet" }, `  ${told}`, goal ? `, goal ${number(goal)}` : "", evals.length ? `, last evaluation ${number(evals.at(-1))}` : "")),
    spark(ys, "var(--accent)")];
}

function limits(detail, curves) {
  const live = detail.live, [head, ...rest] = (live.advice || "").split("; "), [, what, how] = /^(.*?)(?:: (.*))?$/s.exec(head) || ["", head, ""];
  const rate = live.env_rate;
  return [h("div", { class: "big" }, rate === undefined ? "–" : whole(rate), h("small", { class: "quiet" }, "env steps a second")),
    live.advice ? h("p", {}, h("b", {}, what[0].toUpperCase() + what.slice(1)), how ? `: ${how}` : "", rest.length ? h("span", { class: "quiet" }, `; ${rest.join("; ")}`) : "") : h("p", { class: "quiet" }, "nothing to judge by yet"),
    spark(curves.columns["rate/env"] || [], "var(--busy)", { low: 0 })];
}

function drawBrief() {
  const detail = app.details[app.current], curves = app.curves[app.current], now = underWay(detail);
  const card = (title, body) => h("article", { class: "card" }, h("h2", {}, title), body);
  put(at("brief"), h("div", { class: "cards" }, card(now ? "What does this run do?" : "What did this run do?", purpose(detail)), card(now ? "Does it learn?" : "Did it learn?", learns(detail, curves)), card(now ? "What limits it?" : "What limited it?", limits(detail, curves))));
}

function drawGraphSection() {
  const detail = app.details[app.current], live = detail.live, running = detail.summary.state === "running";
  if (!live.graph) { put(at("graph-body"), h("p", { class: "quiet" }, "nothing has been reported yet")); return; }
  const open = at("graph-body").querySelector("details[open]") !== null;
  const dead = [...deaths(detail)].map(([process, event]) => ({ process, node: process.replace(/\/\d+$/, ""), restart: event.restart && running }));
  const limit = (LIMIT_WORDS.exec(live.advice || "") || [])[1];
  const named = limit && live.graph.nodes.map(node => [node.worker, node.name]).flat().find(name => limit === name || limit === `${name}s`);
  const causes = [...new Set((live.workers || []).flatMap(row => shares(row).map(([what]) => what)))];
  const table = streamTable(live);
  table.open = open;
  put(at("graph-body"), h("div", { class: "card" }, drawGraph(live, { dead, limit: named, running, upright: narrow.matches }),
    h("div", { class: "legend" }, causes.map(what => h("span", {}, h("i", { style: { background: causeColour(what) } }), h("b", {}, what), what === "busy" ? "" : ` ${causeMeaning(what)}`)))), table);
}

function drawHead() {
  const detail = app.details[app.current], { live, summary } = detail, [words, kind] = stateWords(summary.state);
  const pill = at("state");
  pill.textContent = words; pill.className = `pill ${kind}`;
  at("title").textContent = summary.experiment || live.experiment || app.current; document.title = `${at("title").textContent} · ${words} · srl`;
  const to = live.target ? ` of ${whole(live.target)}` : "", eta = live.eta && summary.state === "running" ? `, ${clock(live.eta)} to go` : "";
  at("clock").textContent = live.env_steps === undefined ? "" : `${whole(live.env_steps)}${to} env steps · ${clock(live.elapsed)}${eta}`;
  const part = live.progress === null || live.progress === undefined ? 0 : live.progress;
  at("progress").firstElementChild.style.width = `${100 * part}%`; at("progress").setAttribute("aria-valuenow", Math.round(100 * part));
}

const curveRuns = () => [app.current, ...app.shown.filter(id => id !== app.current)].filter(id => app.curves[id] && app.shown.includes(id)).map(id => {
  const run = app.runs.find(one => one.id === id);
  return { id, curves: app.curves[id], colour: app.colour(id), label: runLabel(run, app.varying), group: groupLabel(run, app.varying) };
});

function drawCurves(why) {
  const body = at("curves-body"), several = app.shown.length > 1, runs = curveRuns();
  let tools = body.querySelector(".tools"), place = body.querySelector("#charts");
  if (!place) { place = h("div", { id: "charts" }); }
  const held = why === "filter" && tools;
  const grouped = view.bands && several ? [...new Map(runs.slice().reverse().map(run => [run.group, run])).values()].reverse() : null;
  const chips = grouped ? h("div", { class: "chips" }, grouped.map(run => h("button", { onclick: () => focus(run.id) }, h("i", { class: "swatch", style: { background: run.colour } }), `${run.group} (${runs.filter(one => one.group === run.group).length} runs)`))) : several ? h("div", { class: "chips" }, curveRuns().map(run => h("button", { class: run.id === app.current ? "here" : "", onclick: () => focus(run.id) }, h("i", { class: "swatch", style: { background: run.colour } }), run.label))) : null;
  if (!held) tools = curveTools(drawCurves, several);
  if (!held) put(body, chips, tools, place);
  const thinned = Math.max(...runs.map(run => run.curves.thinned || 1));
  makeCurves(place, runs, (app.details[app.current].live.graph || { nodes: [] }).nodes.map(node => node.name));
  if (thinned > 1) place.append(h("p", { class: "quiet" }, `one point stands for about ${whole(thinned)} lines of metrics.jsonl`));
}
let figuresShown = "";
function curvesChanged() {
  const names = curveRuns().flatMap(run => [...Object.keys(run.curves.columns), ...Object.keys(run.curves.evaluations)]).join();
  if (names !== figuresShown) { figuresShown = names; drawCurves("figures"); } else redrawCurves();
}

function drawAll() {
  const detail = app.details[app.current], curves = app.curves[app.current];
  drawHead(); drawBrief(); drawGraphSection(); drawWorkers(at("workers-body"), detail); drawEvaluations(at("evaluations-body"), detail, curves, filmAddress);
  drawSettings(at("settings-body"), detail); drawEvents(at("events-body"), detail);
}
function drawRunsSection() {
  at("runs").hidden = app.runs.length < 2;
  if (app.runs.length > 1) drawRuns(at("runs-body"), app, { choose, focus });
}

// ---- choosing

async function focus(id) {
  if (!app.shown.includes(id)) app.shown = [...app.shown, id];
  await load(id);
  app.current = id; remember(); drawRunsSection(); drawAll(); figuresShown = ""; curvesChanged(); listen();
}
async function choose(id, on) {
  app.shown = on ? [...app.shown, id] : app.shown.filter(one => one !== id);
  if (!app.shown.length) app.shown = [app.current];
  if (on) await load(id);
  if (!app.shown.includes(app.current)) app.current = app.shown[0];
  remember(); drawRunsSection(); drawAll(); figuresShown = ""; curvesChanged(); listen();
}
const remember = () => history.replaceState(null, "", `#runs=${app.shown.map(encodeURIComponent).join(",")}&at=${encodeURIComponent(app.current)}`);

// ---- news

function take(news) {
  const detail = app.details[news.id], curves = app.curves[news.id];
  if (!detail) return;
  if (news.rows) {
    for (const row of news.rows) {
      const columns = curves.columns, length = (columns.wall || []).length;
      for (const name of Object.keys(row)) if (name !== "time" && name !== "nonfinite" && !(name in columns)) columns[name] = Array(length).fill(null);
      for (const name of Object.keys(columns)) columns[name].push(name in row ? row[name] : null);
    }
    if ((curves.columns.wall || []).length > 4000) { // every second one of the older half
      for (const [name, values] of Object.entries(curves.columns)) curves.columns[name] = values.filter((_, i) => i > 2000 || i % 2 === 0);
      curves.thinned = (curves.thinned || 1) + 1;
    }
    if (news.evaluations) curves.evaluations = news.evaluations;
  }
  if (news.live) {
    Object.assign(detail, { live: news.live, summary: news.summary, events: news.events, films: news.films, logs: news.logs });
    const run = app.runs.find(one => one.id === news.id);
    if (run) { const before = JSON.stringify([run.state]); Object.assign(run, news.summary, run.round ? { state: run.state } : {}); if (before !== JSON.stringify([run.state])) drawRunsSection(); }
  }
  pending.add(news.id);
  if (!drawing) { drawing = true; requestAnimationFrame(() => { drawing = false; if (pending.has(app.current)) drawAll(); curvesChanged(); pending.clear(); }); }
}
const pending = new Set();
let drawing = false;

function listen() {
  if (app.source) { app.source.close(); app.source = null; }
  if (DATA || app.closed || document.hidden) return;
  const ids = app.shown.filter(id => app.details[id]);
  for (const id of ids) app.curves[id].end = app.curves[id].end || 0;
  const query = ids.map(id => `id=${encodeURIComponent(id)}&seen=${encodeURIComponent(`${id}@${app.curves[id].end}`)}`).join("&");
  const source = app.source = new EventSource(`news?${query}`);
  source.onopen = () => { at("link").textContent = ""; };
  source.onmessage = message => { const news = JSON.parse(message.data); if (news.end) app.curves[news.id].end = news.end; take(news); };
  source.addEventListener("closed", () => { source.close(); app.closed = true; at("link").textContent = "the run has ended: this is its last state"; });
  source.onerror = () => { source.close(); at("link").textContent = "not connected"; clearTimeout(again); again = setTimeout(listen, 2000); };
}
let again = 0;
document.addEventListener("visibilitychange", listen); // a page that nobody sees asks for nothing

// ---- keys, sections, light and dark

const KEYS = [["1 … 8", "go to a section"], ["/", "find a figure"], ["x", "x axis: env steps, time, updates"], ["b", "bands over seeds"], ["0", "zoom out"], ["t", "light or dark"], ["?", "these keys"]];
function dark(is) { document.documentElement.dataset.theme = is ? "dark" : "light"; }
function switchTheme() { dark(document.documentElement.dataset.theme !== "dark"); if (app.current) { figuresShown = ""; curvesChanged(); } }
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
  const section = (app.runs.length > 1 ? [["runs"], ...SECTIONS] : SECTIONS)[Number(event.key) - 1];
  if (section && /[1-9]/.test(event.key)) go(section[0]);
  else if (event.key === "/") { event.preventDefault(); go("curves"); at("filter").focus(); }
  else if (event.key === "x") { const keys = Object.keys(AXES); view.axis = keys[(keys.indexOf(view.axis) + 1) % keys.length]; zoomTo(null); drawCurves("axis"); }
  else if (event.key === "b" && app.shown.length > 1) { view.bands = !view.bands; drawCurves("bands"); }
  else if (event.key === "0") zoomTo(null);
  else if (event.key === "t") switchTheme();
  else if (event.key === "?") at("keys").showModal();
});
function go(id) { const node = at(id); node.scrollIntoView(); node.tabIndex = -1; node.focus({ preventScroll: true }); }

function furnish() {
  dark(matchMedia("(prefers-color-scheme: dark)").matches);
  put(at("keys"), h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what))))), h("form", { method: "dialog" }, h("button", {}, "close")));
  at("help").addEventListener("click", () => at("keys").showModal());
  at("theme").addEventListener("click", switchTheme);
  const all = app.runs.length > 1 ? [["runs", "Runs"], ...SECTIONS] : SECTIONS;
  const links = new Map(all.map(([id, words]) => [id, h("a", { href: `#${id}`, onclick: event => { event.preventDefault(); go(id); } }, words)]));
  put(at("nav"), [...links.values()]);
  const seen = new Set();
  const here = new IntersectionObserver(entries => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const last = all.map(([id]) => id).filter(id => seen.has(id)).pop();
    for (const [id, link] of links) link.classList.toggle("here", id === last);
  }, { rootMargin: "-15% 0px -70% 0px" });
  for (const [id] of all) here.observe(at(id));
  narrow.addEventListener("change", () => drawGraphSection());
}

async function start() {
  const found = DATA || await get("runs");
  Object.assign(app, { runs: found.runs, varying: found.varying, sweep: found.sweep });
  const asked = new URLSearchParams(location.hash.slice(1)), known = id => app.runs.some(run => run.id === id);
  const wanted = (asked.get("runs") || "").split(",").map(decodeURIComponent).filter(known);
  app.shown = wanted.length ? wanted : found.shown;
  app.current = known(asked.get("at")) ? asked.get("at") : app.shown[0];
  furnish();
  if (!app.current) { at("title").textContent = "no runs yet"; return; }
  await Promise.all(app.shown.map(load));
  drawRunsSection(); drawAll(); curvesChanged(); listen();
  document.body.dataset.ready = "yes";
}
start().catch(error => { at("link").textContent = `this page could not be made: ${error.message}`; throw error; });
