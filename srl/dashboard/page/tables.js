// Workers, evaluations, settings, events: what is best read as text.

// Process -> how it died, of those that are dead now.
function deaths(detail) {
  const dead = new Map();
  for (const event of detail.events || []) {
    if (event.event === "bound") dead.delete(event.process);
    if (event.event === "died") dead.set(event.process, event);
  }
  return dead;
}

function restarts(detail) {
  const found = new Map();
  for (const event of detail.events || []) if (event.event === "died" && event.restart) found.set(event.process, (found.get(event.process) || 0) + 1);
  return found;
}

function drawWorkers(place, detail) {
  const live = detail.live, dead = deaths(detail), again = restarts(detail), over = detail.summary.state !== "running";
  const open = new Set([...place.querySelectorAll("tr.log:not([hidden])")].map(row => row.dataset.of));
  const known = new Set((live.members || []).map(one => one.process));
  const lost = [...dead.keys()].filter(name => !known.has(name)).map(name => ({ name, process: name, alive: false, waits: {}, busy: 0, cpu: 0, rss: 0 }));
  const rows = [...(live.members || []), ...lost].flatMap(one => {
    const death = dead.get(one.process), node = one.name.replace(/\/\d+$/, "");
    const group = (live.workers || []).find(row => row.kind === node) || { waits: {} };
    const waits = Object.entries(one.waits || {}).map(([what, whom]) => `${what}${whom && whom.length && whom.length <= 3 ? ` (${whom.join(", ")})` : ""}`).join(", ");
    const [state, kind] = death ? [death.restart && !over ? `${death.how}, starting again` : death.how || "died", "bad"] : over ? ["ended", ""] : !one.alive ? ["ended", ""] : again.get(one.process) ? [`running, ${again.get(one.process)} × restarted`, "warn"] : ["running", "running"];
    const shown = { busy: one.busy, waits: Object.fromEntries(Object.entries(group.waits || {}).map(([what, part]) => [what, part * (1 - one.busy) / Math.max(1e-9, 1 - group.busy)])) };
    const inside = one.process !== one.name;
    const log = (detail.logs || {})[one.process];
    const last = log && !inside ? log[log.length - 1] : "";
    const text = h("tr", { class: "log", "data-of": one.name, hidden: !open.has(one.name) }, h("td", { colspan: 7 }, h("pre", { class: "log" }, (log || []).join("\n"))));
    const button = log && !inside ? h("button", { "aria-expanded": String(open.has(one.name)), onclick: event => { text.hidden = !text.hidden; event.target.setAttribute("aria-expanded", String(!text.hidden)); } }, "log") : null;
    return [h("tr", { class: kind === "bad" ? "bad" : "", "data-worker": one.name }, h("td", {}, h("b", {}, one.name)), h("td", {}, h("span", { class: `state ${kind}` }, state)),
      h("td", {}, bar(shown)), h("td", { class: "num" }, percent(one.busy)), h("td", { class: "num" }, inside ? `in ${one.process}` : one.cpu.toFixed(2)), h("td", { class: "num" }, inside ? "" : bytes(one.rss)),
      h("td", {}, waits || (over || death ? "" : "nothing: works"), last ? h("div", { class: "quiet" }, last.slice(0, 120), " ", button) : null)), log && !inside ? text : null];
  });
  put(place, rows.length ? h("div", { class: "card scroll" }, h("table", {}, h("thead", {}, h("tr", {}, [["worker"], ["state"], ["time lately"], ["busy", 1], ["cores", 1], ["memory", 1], ["waits now for"]].map(([text, right]) => h("th", { class: right ? "num" : "" }, text)))), h("tbody", {}, rows)))
    : h("p", { class: "quiet" }, "no worker has reported yet"));
}

function filmNode(address, film) {
  const picture = /\.(gif|png)$/.test(film.name);
  const source = address(film);
  const shown = !source ? h("p", { class: "quiet" }, "too large for this file: it is in videos/ of the run folder") : picture ? h("img", { src: source, alt: film.name, loading: "lazy" })
    : h("video", { src: source, controls: true, loop: true, muted: true, playsinline: true, preload: "metadata" });
  return h("figure", {}, shown, h("figcaption", {}, film.env_steps !== null ? `after ${whole(film.env_steps)} env steps` : film.name, ` · ${bytes(film.bytes)}`));
}

function drawEvaluations(place, detail, curves, address) {
  const table = curves.evaluations || {}, names = Object.keys(table).filter(name => name !== "env_steps"), steps = table.env_steps || [];
  const key = JSON.stringify([steps.length, detail.films.map(film => [film.name, film.bytes])]);
  if (place.dataset.key === key) return; // a film that plays is left alone
  place.dataset.key = key;
  const shown = names.slice(0, 6), rows = steps.map((step, i) => [step, i]).reverse().slice(0, 12);
  const best = table["eval/return"] ? Math.max(...table["eval/return"].filter(x => x !== null)) : null;
  const figures = steps.length ? h("div", { class: "card scroll", style: { maxWidth: `${260 + 190 * shown.length}px` } }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "num" }, "after env steps"), shown.map(name => h("th", { class: "num" }, figureWords(name).title)))),
    h("tbody", {}, rows.map(([step, i]) => h("tr", {}, h("td", { class: "num" }, whole(step)), shown.map(name => h("td", { class: "num" }, name === "eval/return" && table[name][i] === best ? h("b", { class: "yes", title: "the best so far" }, number(table[name][i])) : number(table[name][i]))))))),
    steps.length > 12 ? h("p", { class: "quiet" }, `the newest 12 of ${steps.length}; all are in the curves`) : null) : h("p", { class: "quiet" }, "no evaluation yet");
  const films = detail.films.length ? h("div", { class: "films" }, detail.films.slice(0, 12).map(film => filmNode(address, film))) : h("p", { class: "quiet" }, "no films: evaluation.film_every=1 records one at every evaluation");
  put(place, figures, films);
}

function drawSettings(place, detail, others) {
  const held = place.querySelector("input");
  if (place.dataset.of === detail.id && held) return;
  place.dataset.of = detail.id;
  const filter = h("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting" });
  const own = h("input", { type: "checkbox", checked: true });
  const body = h("tbody");
  const show = () => put(body, detail.settings.filter(([key, value, from]) => key.includes(filter.value) && (!own.checked || from !== "default" || filter.value)).map(([key, value, from]) =>
    h("tr", {}, h("td", {}, h("code", {}, key)), h("td", {}, h("code", {}, typeof value === "string" ? value : JSON.stringify(value))), h("td", { class: `from ${from === "command line" ? "own" : ""}` }, from === "auto" ? "chosen for this machine" : from))));
  filter.addEventListener("input", show); own.addEventListener("change", show); show();
  const facts = rows => h("table", {}, h("tbody", {}, rows.map(([label, text]) => h("tr", {}, h("th", {}, label), h("td", {}, h("pre", {}, text))))));
  put(place, h("div", { class: "tools" }, filter, h("label", {}, own, " without defaults")),
    h("div", { class: "two" }, h("div", { class: "card scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "setting"), h("th", {}, "value"), h("th", {}, "from"))), body)),
      h("div", {}, h("div", { class: "card scroll" }, facts(detail.live.plan || [])), h("details", {}, h("summary", {}, "Machine and versions"), h("div", { class: "card scroll" }, facts(detail.machine || []))))));
}

function drawEvents(place, detail) {
  const start = (detail.events[0] || {}).time || 0;
  const words = event => event.text || Object.entries(event).filter(([key]) => key !== "time" && key !== "event").map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  const rows = detail.events.slice(-60).reverse().map(event => h("tr", { class: event.event === "died" ? "bad" : "" }, h("td", { class: "num" }, clock(event.time - start)), h("td", {}, event.event), h("td", {}, words(event))));
  put(place, detail.live.result ? h("pre", { class: "log card" }, detail.live.result) : null,
    rows.length ? h("div", { class: "card scroll" }, h("table", {}, h("tbody", {}, rows))) : h("p", { class: "quiet" }, "nothing yet"));
}
