// The graph of a run as a picture: where every box and arrow goes, and what is written on them.

const BOX = { wide: 214, high: 108, gap: 18, asked: 54, gutter: 204, lane: 34, edge: 26 };

// Boxes that share a process stand in one frame. Inline everything does, and one frame around all says so.
function framesOf(graph) {
  const byName = Object.fromEntries(graph.nodes.map(node => [node.name, node]));
  const home = node => { while (node.inside && byName[node.inside]) node = byName[node.inside]; return node.name; };
  const frames = new Map();
  for (const node of graph.nodes) {
    const key = graph.mode === "inline" ? node.name : home(node);
    if (!frames.has(key)) frames.set(key, { name: key, nodes: [], layer: 0 });
    frames.get(key).nodes.push(node);
  }
  return [...frames.values()];
}

// One arrow for each pair of groups and kind of stream; streams of several policies between the same two share it.
function arrowsOf(graph, frames) {
  const frameOf = new Map(frames.flatMap(frame => frame.nodes.map(node => [node.name, frame])));
  const arrows = new Map();
  for (const stream of graph.streams)
    for (const from of stream.gives)
      for (const to of stream.takes) {
        const key = `${stream.kind} ${from} ${to}`;
        if (!arrows.has(key)) arrows.set(key, { kind: stream.kind, from, to, streams: [], source: frameOf.get(from), target: frameOf.get(to) });
        arrows.get(key).streams.push(stream.name);
      }
  return [...arrows.values()];
}

// Layers by the longest way of experience and questions; what only takes weights stands behind who gives them.
function layer(frames, arrows) {
  const ways = arrows.filter(arrow => arrow.kind !== "param" && arrow.source !== arrow.target);
  for (let round = 0; round < frames.length; round++)
    for (const { source, target } of ways) if (target.layer <= source.layer && source.layer < frames.length) target.layer = source.layer + 1;
  const placed = new Set(ways.flatMap(({ source, target }) => [source, target]));
  for (const { kind, source, target } of arrows)
    if (kind === "param" && !placed.has(target) && target !== source) target.layer = Math.max(target.layer, source.layer + 1);
}

function place(frames, arrows, upright) {
  for (const frame of frames) {
    const asked = arrows.some(arrow => arrow.source === frame && arrow.target === frame && arrow.from !== arrow.to);
    frame.pad = frame.nodes.length > 2 ? 24 : frame.nodes.length > 1 ? 12 : 0;
    let y = frame.pad;
    frame.boxes = frame.nodes.map((node, index) => {
      if (index) y += asked ? BOX.asked : BOX.gap;
      const box = { node, x: frame.pad, y, wide: BOX.wide, high: BOX.high };
      y += BOX.high;
      return box;
    });
    frame.wide = BOX.wide + 2 * frame.pad;
    frame.high = y + frame.pad + (frame.pad ? 18 : 0); // room for the words under the boxes
  }
  const layers = [];
  for (const frame of frames) (layers[frame.layer] = layers[frame.layer] || []).push(frame);
  const rows = layers.filter(Boolean);
  let size;
  if (upright) {
    let y = BOX.edge;
    const wide = Math.max(...frames.map(frame => frame.wide));
    for (const frame of rows.flat()) {
      Object.assign(frame, { x: BOX.edge + (wide - frame.wide) / 2, y });
      y += frame.high + 74;
    }
    size = { wide: BOX.edge + wide, high: y - 74 + BOX.edge };
  } else {
    const heights = rows.map(row => row.reduce((sum, frame) => sum + frame.high, 0) + 44 * (row.length - 1));
    const high = Math.max(...heights);
    let x = BOX.edge + 34;
    rows.forEach((row, index) => {
      let y = BOX.edge + (high - heights[index]) / 2;
      const wide = Math.max(...row.map(frame => frame.wide));
      for (const frame of row) { Object.assign(frame, { x, y, row: index }); y += frame.high + 44; }
      x += wide + BOX.gutter;
    });
    size = { wide: x - BOX.gutter + BOX.edge, high: high + 2 * BOX.edge };
  }
  for (const frame of frames) for (const box of frame.boxes) Object.assign(box, { x: box.x + frame.x, y: box.y + frame.y });
  return size;
}

// Ways of the arrows: straight to a neighbour, else through lanes below (upright: beside) everything.
function route(frames, arrows, size, upright) {
  const boxes = new Map(frames.flatMap(frame => frame.boxes.map(box => [box.node.name, box])));
  const order = frames.slice().sort((a, b) => a.y - b.y);
  const used = new Map();
  const port = (name, side) => { const key = `${name} ${side}`, n = used.get(key) || 0; used.set(key, n + 1); return n; };
  const lanes = new Map();
  for (const arrow of arrows) {
    const from = boxes.get(arrow.from), to = boxes.get(arrow.to);
    const inFrame = arrow.source === arrow.target;
    const near = upright ? Math.abs(order.indexOf(arrow.source) - order.indexOf(arrow.target)) === 1
      && (from.y < to.y ? from === arrow.source.boxes.at(-1) && to === arrow.target.boxes[0] : false)
      : arrow.target.row === arrow.source.row + 1;
    const below = !inFrame && !upright && arrow.source.row === arrow.target.row;
    if (inFrame && Math.abs(arrow.source.boxes.indexOf(from) - arrow.source.boxes.indexOf(to)) !== 1) { // past the boxes between, or back to the same
      const y1 = from.y + from.high - 30, y2 = to.y + 30, x = from.x + from.wide + 13;
      arrow.path = `M${from.x + from.wide},${y1} H${x} V${y2} H${to.x + to.wide}`;
      arrow.label = null;
    } else if (inFrame || below || (upright && near)) {
      const shift = port(arrow.from, "down") * 40;
      const [top, bottom] = from.y < to.y ? [from, to] : [to, from];
      const x = top.x + top.wide / 2 - 34 + shift;
      const [y1, y2] = from.y < to.y ? [top.y + top.high, bottom.y] : [bottom.y, top.y + top.high];
      arrow.path = `M${x},${y1} L${x},${y2}`;
      arrow.label = { x: x + 10, y: (y1 + y2) / 2, align: "start", rows: 2, bare: inFrame };
      if (y2 - y1 > 90) arrow.label = null; // a box is between
    } else if (near) {
      const y1 = from.y + 26 + 22 * port(arrow.from, "right"), y2 = to.y + 26 + 22 * port(arrow.to, "left");
      const x1 = from.x + from.wide, x2 = to.x, middle = (x1 + x2) / 2;
      arrow.path = `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
      arrow.label = { x: middle, y: (y1 + y2) / 2, align: "middle", rows: 4 };
    } else {
      const key = `${arrow.from} ${arrow.streams.join()}`;
      if (!lanes.has(key)) lanes.set(key, { number: lanes.size, arrows: [] });
      lanes.get(key).arrows.push(arrow);
    }
  }
  for (const lane of lanes.values()) {
    lane.arrows.forEach((arrow, index) => {
      const from = boxes.get(arrow.from), to = boxes.get(arrow.to);
      if (upright) {
        const x = size.wide + 18 + 26 * lane.number;
        const y1 = from.y + 24 + 14 * (lane.number % 4), y2 = to.y + 46 + 12 * (lane.number % 3);
        arrow.path = `M${from.x + from.wide},${y1} H${x} V${y2} H${to.x + to.wide}`;
        arrow.label = index ? null : { x: x + 5, y: (y1 + y2) / 2, align: "middle", rows: 1, turned: true };
      } else {
        const y = size.high + 6 + BOX.lane * lane.number;
        const x1 = from.x + from.wide / 2 + 46 - 18 * (lane.number % 5), last = from === arrow.source.boxes.at(-1);
        const x2 = arrow.target.x - 16 - 9 * (lane.number % 3), y2 = to.y + to.high - 22 - 12 * (lane.number % 3);
        const start = last ? `M${x1},${from.y + from.high}` : `M${from.x + from.wide},${from.y + from.high - 16} h${12 + 6 * lane.number}`;
        arrow.path = `${start} V${y} H${x2} V${y2} H${to.x}`;
        arrow.label = index ? null : { x: (x1 + x2) / 2, y, align: "middle", rows: 1 };
      }
    });
  }
  const crowd = arrows.filter(arrow => arrow.label && arrow.label.rows === 4).sort((a, b) => a.label.x - b.label.x || a.label.y - b.label.y);
  if (crowd.length > 3) crowd.forEach((arrow, index) => { // no room for three lines each: one line, and none over another
    arrow.label.rows = 2;
    const above = crowd[index - 1];
    if (above && above.label.x === arrow.label.x) arrow.label.y = Math.max(arrow.label.y, above.label.y + 52);
  });
  if (lanes.size && upright) size.wide += 12 + 26 * lanes.size;
  if (lanes.size && !upright) size.high += 6 + BOX.lane * lanes.size;
}

function streamLines(arrow, live) {
  const rows = (live.streams || []).filter(row => arrow.streams.includes(row.name));
  const sum = key => rows.reduce((total, row) => total + (row[key] || 0), 0);
  const lines = [[["tspan", { class: "what" }, STREAMS[arrow.kind]]]];
  if (!rows.length) return { lines, lost: [], items: 0, rows };
  const rate = `${number(sum("items"))}/s`;
  lines.push([`${rate} · ${bytes(sum("bytes"))}/s`]);
  const facts = [];
  const slots = sum("slots");
  if (slots && arrow.kind === "sample") facts.push(`queue ${number(sum("queue"))} of ${slots}`);
  const ages = rows.map(row => row.staleness).filter(Boolean);
  if (ages.length) facts.push(`${number(mean(ages.map(age => age[1])))} updates old`.replace(/^1 updates/, "1 update"));
  if (facts.length) lines.push([facts.join(" · ")]);
  const lost = rows.flatMap(row => Object.entries(row.drops || {}).filter(([why, n]) => n && why !== "stop" && why !== "barrier"));
  return { lines, lost: lost.map(([why, n]) => `${whole(n)} lost: ${why}`), items: sum("items"), rows, fill: slots ? sum("queue") / slots : null };
}

function drawArrow(arrow, live, running) {
  const { lines, lost, items, rows } = streamLines(arrow, live);
  const title = rows.map(row => `${row.name} (${row.kind}): ${STREAM_MEANING[row.kind]}`).join("\n");
  const ends = arrow.kind === "infer" || arrow.kind === "sum" ? { "marker-start": "url(#tip)" } : {};
  const path = s("path", { d: arrow.path, class: `edge ${arrow.kind} ${running && !items ? "idle" : ""}`, "marker-end": "url(#tip)", ...ends,
    "stroke-width": (1.4 + Math.min(2.2, Math.log10(1 + items) * .6)).toFixed(2) }, s("title", {}, title));
  if (!arrow.label) return [path];
  const { x, y, align, rows: room, turned, bare } = arrow.label;
  const told = room === 1 ? [lines.map(line => typeof line[0] === "string" ? line[0] : STREAMS[arrow.kind]).join("  ")]
    : room === 2 ? [STREAMS[arrow.kind], ...lines.slice(1).map(line => line[0])].slice(0, 2) : [STREAMS[arrow.kind], ...lines.slice(1).map(line => line[0])];
  const all = [...told.map(text => [text, "dim"]), ...lost.map(text => [text, "lost"])];
  const high = 16 * all.length, wide = Math.max(...all.map(([text]) => text.length)) * 6.3 + 10;
  const left = align === "middle" ? x - wide / 2 : x - 4;
  const group = s("g", { class: "label", transform: turned ? `rotate(90 ${x} ${y})` : null },
    bare ? null : s("rect", { class: "plate", x: left, y: y - high / 2, width: wide, height: high, rx: 4 }),
    all.map(([text, kind], index) => s("text", { class: kind, x, y: y - high / 2 + 12 + 16 * index, "text-anchor": align }, text)));
  return [path, group];
}

function drawBox(box, live, { dead, limit, starting }) {
  const { node, x, y, wide, high } = box;
  const row = (live.workers || []).find(one => one.kind === node.name) || { waits: {} };
  const inner = wide - 24;
  const most = shares(row).sort((a, b) => b[1] - a[1])[0];
  const parts = shares(row);
  let left = x + 12;
  const segments = parts.map(([what, part]) => {
    const rect = s("rect", { x: left, y: y + 46, width: Math.max(0, inner * part), height: 11, fill: causeColour(what) }, s("title", {}, `${what} ${percent(part)}: ${causeMeaning(what)}`));
    left += inner * part;
    return rect;
  });
  const says = dead.length ? `${dead.length === node.count ? "" : `${dead.length} of ${node.count} `}${dead[0].restart ? "died, starts again" : "died"}`
    : !row.kind || !most ? (starting ? "starting" : "no report yet")
    : most[0] === "busy" ? `${percent(row.busy)} busy` : `${most[0] === "credit" || most[0] === "free slot" ? "held back by" : "waits for"} ${most[0]} ${percent(most[1])}`;
  const uses = row.kind ? (row.inside ? `in the process of ${row.inside}` : `${row.cpu.toFixed(2)} cores · ${bytes(row.rss || 0)}`) : "";
  const again = row.restarts ? ` · ${row.restarts} restarted` : "";
  return s("g", { class: "node", "data-node": node.name },
    s("rect", { class: `box ${dead.length ? "bad" : limit ? "limit" : ""}`, x, y, width: wide, height: high, rx: 10 }),
    s("text", { class: "name", x: x + 12, y: y + 22 }, s("title", {}, node.name), node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name, node.count > 1 ? ` × ${node.count}` : ""),
    s("text", { class: "dim", x: x + 12, y: y + 38 }, ROLES[node.worker] || node.worker.split(":").at(-1), limit && !dead.length ? s("tspan", { fill: "var(--warn)", "font-weight": 650 }, "  the limit") : null),
    s("rect", { class: "gauge", x: x + 12, y: y + 46, width: inner, height: 11, rx: 3 }), segments,
    s("text", { class: dead.length ? "lost" : "", x: x + 12, y: y + 76 }, says),
    s("text", { class: "dim", x: x + 12, y: y + 94 }, uses + again));
}

function drawGraph(live, { dead, limit, running, upright }) {
  const graph = live.graph;
  const frames = framesOf(graph), arrows = arrowsOf(graph, frames);
  layer(frames, arrows);
  const size = place(frames, arrows, upright);
  route(frames, arrows, size, upright);
  const drawn = arrows.map(arrow => drawArrow(arrow, live, running)); // no line crosses words
  const high = size.high + 12, one = graph.mode === "inline";
  const tip = s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
    s("path", { class: "tip", d: "M0,0.6 L8,4 L0,7.4 Z" }));
  return s("svg", { class: one ? "graph one" : "graph", viewBox: `0 0 ${size.wide + 12} ${high}`, role: "img", "aria-label": `graph of the run: ${graph.nodes.map(node => node.name).join(", ")}`,
    style: { maxWidth: `${Math.round((size.wide + 12) * 1.12)}px`, margin: "0 auto" } },
    s("defs", {}, tip),
    one ? s("g", {}, s("rect", { class: "frame", x: 6, y: 4, width: size.wide, height: high - 8, rx: 14 }), s("text", { class: "dim", x: 18, y: 20 }, "all in one process")) : null,
    frames.filter(frame => frame.nodes.length > 1).map(frame => s("g", {},
      s("rect", { class: "frame", x: frame.x, y: frame.y, width: frame.wide, height: frame.high, rx: 14 }),
      s("text", { class: "dim", x: frame.x + frame.wide / 2, y: frame.y + frame.high - 10, "text-anchor": "middle" },
        frame.nodes[0].count > 1 ? `together in each of ${frame.nodes[0].count} processes` : "together in one process"))),
    drawn.map(([path]) => path),
    frames.flatMap(frame => frame.boxes.map(box => drawBox(box, live, { dead: dead.filter(one => one.node === box.node.name), limit: limit === box.node.worker || limit === box.node.name, starting: running }))), drawn.map(([, label]) => label || null));
}

function streamTable(live) {
  const rows = (live.streams || []).map(row => {
    const drops = Object.entries(row.drops || {}).filter(([, n]) => n).map(([why, n]) => `${why} ${whole(n)}`).join(", ");
    return h("tr", {}, h("td", {}, row.name), h("td", {}, STREAM_MEANING[row.kind]), h("td", { class: "num" }, `${number(row.items)}/s`),
      h("td", { class: "num" }, `${bytes(row.bytes)}/s`), h("td", { class: "num" }, row.slots ? `${number(row.queue)} of ${row.slots}` : "–"),
      h("td", { class: "num" }, row.staleness ? row.staleness.map(number).join(" / ") : "–"), h("td", {}, drops || "none"));
  });
  return h("details", {}, h("summary", {}, "All streams in numbers"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["stream", "carries", "items", "bytes", "queue", "updates old: least / mean / most", "dropped"].map((text, n) => h("th", { class: n > 1 && n < 6 ? "num" : "" }, text)))),
    h("tbody", {}, rows))));
}
