// The dataflow of all queries. Places come from the server; Cytoscape draws, zooms and answers clicks.
import { useEffect, useRef, useState } from "preact/hooks";
import { store } from "./store.js";
import { Pill, bytes, count, html, link, rate, seconds, share } from "./parts.js";
import { nameOf, neighbours } from "./page_operator.js";

const COLLAPSE_FROM = 600; // operators: more than this start as processors only, where there are several
const MOVE_SECONDS = 30; // a move is marked for this long
const FAMILY = { map: "map", join: "join", partial: "aggregate", combine: "aggregate", running: "aggregate", running_emit: "aggregate", stream: "stream" };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const familyOf = (kind) => FAMILY[kind] || "other";

let loading = null;
function library() {
  loading = loading || (window.cytoscape ? Promise.resolve() : new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/static/vendor/cytoscape.js";
    script.onload = done; script.onerror = failed;
    document.head.append(script);
  }));
  return loading;
}

// From calm to full: green, amber, red.
function heat(pressure) {
  const [low, high, part] = pressure < .5 ? [[46, 125, 79], [214, 138, 20], pressure * 2] : [[214, 138, 20], [190, 40, 30], pressure * 2 - 1];
  return `rgb(${low.map((v, i) => Math.round(v + (high[i] - v) * part)).join(",")})`;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function nodeData(o) {
  const shared = o.queries.length > 1 ? `  ×${o.queries.length}` : "";
  return { id: o.id, kind: familyOf(o.kind), label: `${o.kind}${shared}\n${short(o.text || o.label, 26)}\n${rate(o.rows_in_per_s)}/s${o.queue_rows ? ` · ${count(o.queue_rows)} wait` : ""}`,
    load: Math.min(1, o.load), state: o.state };
}
const streamData = (s) => ({ id: s.id, kind: "stream", label: `stream\n${short(s.name, 26)}\n${s.ended ? "ended" : `${rate(s.rows_per_s)}/s`}`, load: 0, state: "running" });
const edgeData = (e) => ({ id: `${e.source}\u0000${e.target}`, source: e.source, target: e.target, heat: heat(e.pressure), width: 1.2 + Math.min(5, Math.log10(1 + e.rows_per_s)) });

function elements(collapsed) {
  const nodes = [], edges = [];
  if (collapsed) {
    const of = new Map([...store.operators.values(), ...store.streams.values()].map((n) => [n.id, n.processor]));
    const sums = new Map();
    for (const e of store.edges.values()) {
      const [a, b] = [of.get(e.source), of.get(e.target)];
      if (!a || !b || a === b) continue;
      const key = `${a}\u0000${b}`, sum = sums.get(key) || { source: a, target: b, rows_per_s: 0, pressure: 0 };
      sum.rows_per_s += e.rows_per_s; sum.pressure = Math.max(sum.pressure, e.pressure);
      sums.set(key, sum);
    }
    const all = [...store.processors.values()];
    const round = Math.max(220, all.length * 45);
    all.forEach((p, i) => nodes.push({ group: "nodes", classes: "whole", data: { id: `p:${p.id}`, kind: "stream", load: p.load, state: p.state, label: `${p.id}\n${p.operators} operators\n${share(p.load)} busy` },
      position: { x: round * Math.cos(2 * Math.PI * i / all.length), y: round * Math.sin(2 * Math.PI * i / all.length) } }));
    for (const e of sums.values()) { const d = edgeData(e); edges.push({ group: "edges", data: { ...d, source: `p:${e.source}`, target: `p:${e.target}` } }); }
    return [...nodes, ...edges];
  }
  const several = store.processors.size > 1;
  if (several) for (const p of store.processors.values()) nodes.push({ group: "nodes", classes: "group", data: { id: `p:${p.id}`, label: p.id } });
  const put = (data, processor) => {
    const at = store.layout[data.id];
    if (at) nodes.push({ group: "nodes", data: several ? { ...data, parent: `p:${processor}` } : data, position: { x: at[0], y: at[1] } });
  };
  for (const s of store.streams.values()) put(streamData(s), s.processor);
  for (const o of store.operators.values()) put(nodeData(o), o.processor);
  const there = new Set(nodes.map((n) => n.data.id));
  for (const e of store.edges.values()) if (there.has(e.source) && there.has(e.target)) edges.push({ group: "edges", data: edgeData(e) });
  return [...nodes, ...edges];
}

function style() {
  return [
    { selector: "node", style: { shape: "round-rectangle", width: 176, height: 46, "background-color": colour("--card"), "border-width": "mapData(load, 0, 1, 1.5, 7)",
      "border-color": colour("--kind-other"), label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "font-size": 10, "line-height": 1.25, color: colour("--ink"),
      "min-zoomed-font-size": 6, "font-family": "system-ui, sans-serif" } },
    ...["map", "join", "aggregate", "other", "stream"].map((k) => ({ selector: `node[kind = "${k}"]`, style: { "border-color": colour(`--kind-${k}`) } })),
    { selector: 'node[kind = "stream"]', style: { "background-color": colour("--code"), shape: "rectangle" } },
    { selector: 'node[state = "paused"], node[state = "silent"], node[state = "lost"]', style: { "border-style": "dashed", opacity: .6 } },
    { selector: 'node[state = "moving"], node.moved', style: { "border-color": colour("--kind-join"), "border-style": "double", "border-width": 6, "background-color": colour("--accent-soft") } },
    { selector: "node.group", style: { shape: "round-rectangle", "background-color": colour("--ground"), "background-opacity": .6, "border-width": 1, "border-color": colour("--line"), label: "data(label)",
      "text-valign": "top", "font-size": 26, "font-weight": "bold", color: colour("--soft"), padding: 30, "min-zoomed-font-size": 5 } },
    { selector: "node.whole", style: { width: 200, height: 80, "font-size": 14 } },
    { selector: "edge", style: { width: "data(width)", "line-color": "data(heat)", "target-arrow-color": "data(heat)", "target-arrow-shape": "triangle", "arrow-scale": .8, "curve-style": "bezier", opacity: .85 } },
    { selector: ".dim", style: { opacity: .1 } },
    { selector: "node:selected", style: { "border-color": colour("--bad"), "border-width": 4 } },
  ];
}

const movedNow = () => new Set([...store.decisions.values()].filter((d) => d.kind === "move" && store.taken - d.at < MOVE_SECONDS).flatMap((d) => d.subjects.length ? d.subjects : [d.subject]));
const shapeNow = (collapsed) => `${collapsed}|${[...store.processors.keys()]}|${Object.keys(store.layout).length}|${store.edges.size}|${[...store.operators.values()].map((o) => o.id + o.processor).join()}`;

export function Graph({ focus }) {
  const box = useRef(null), cy = useRef(null), shape = useRef(""), drawn = useRef(0);
  const [chosen, choose] = useState(focus && !focus.startsWith("query:") ? focus : "");
  const [query, setQuery] = useState(focus.startsWith("query:") ? focus.slice(6) : "");
  const [text, setText] = useState("");
  const [collapsed, setCollapsed] = useState(store.operators.size > COLLAPSE_FROM && store.processors.size > 1 && !focus);
  const [ready, setReady] = useState(false);
  useEffect(() => { if (focus && !focus.startsWith("query:")) choose(focus); if (focus.startsWith("query:")) setQuery(focus.slice(6)); }, [focus]);
  useEffect(() => {
    let gone = false;
    library().then(() => {
      if (gone) return;
      const many = store.operators.size > 300;
      cy.current = window.cytoscape({ container: box.current, style: style(), elements: [], pixelRatio: many ? 1 : "auto",
        hideEdgesOnViewport: many, textureOnViewport: many, autoungrabify: true, boxSelectionEnabled: false, minZoom: .02, maxZoom: 3 });
      cy.current.on("tap", "node", (e) => { const id = e.target.id(); if (e.target.hasClass("whole")) location.hash = link.processor(id.slice(2)); else if (!e.target.hasClass("group")) choose(id); });
      cy.current.on("tap", (e) => { if (e.target === cy.current) choose(""); });
      window.millstreamGraph = cy.current; // for tests and the curious
      setReady(true);
    }).catch(() => {});
    const themed = () => cy.current && cy.current.style(style());
    addEventListener("themechange", themed);
    return () => { gone = true; removeEventListener("themechange", themed); if (cy.current) cy.current.destroy(); cy.current = null; shape.current = ""; delete window.millstreamGraph; };
  }, []);
  useEffect(() => {
    if (!ready || drawn.current === store.version) return;
    drawn.current = store.version;
    refresh(cy.current, shape, collapsed, chosen);
  });
  useEffect(() => { if (ready) { refresh(cy.current, shape, collapsed, chosen); dim(cy.current, query, text); } }, [ready, collapsed, query, text, store.operators.size]);
  useEffect(() => { if (ready && chosen) { const n = cy.current.$id(chosen); if (n.length && focus === chosen) cy.current.animate({ center: { eles: n }, zoom: 1.1 }, { duration: 250 }); cy.current.$(":selected").unselect(); n.select(); } }, [ready, chosen]);
  const several = store.processors.size > 1;
  return html`<main class="wide"><div class="graph"><div class="canvas" id="graph" ref=${box}></div>
    <div class="tools">
      <input type="search" id="find-node" placeholder="find an operator" value=${text} onInput=${(e) => setText(e.target.value)} />
      <select id="graph-query" value=${query} onChange=${(e) => setQuery(e.target.value)}><option value="">all queries</option>${[...store.queries.keys()].sort().map((q) => html`<option key=${q} value=${q}>${q}</option>`)}</select>
      ${several && html`<label><input type="checkbox" id="collapse" checked=${collapsed} onChange=${(e) => setCollapsed(e.target.checked)} />processors only</label>`}
      <button id="fit" onClick=${() => cy.current && cy.current.fit(undefined, 40)}>fit</button></div>
    <div class="legend">${[["map", "select"], ["join", "join"], ["aggregate", "aggregate"], ["other", "other"], ["stream", "stream"]].map(([k, n]) => html`<span key=${k}><i class="swatch" style="background:var(--kind-${k})"></i>${n}</span>`)}
      <span><i class="swatch" style="background:${heat(0)}"></i>flows</span><span><i class="swatch" style="background:${heat(.5)}"></i>waits</span><span><i class="swatch" style="background:${heat(1)}"></i>held back</span>
      <span>×n: shared by n queries; thick border: much work</span></div></div>
    ${chosen && html`<${Side} id=${chosen} close=${() => choose("")} />`}</main>`;
}

function refresh(graph, shape, collapsed, chosen) {
  const now = shapeNow(collapsed);
  if (now !== shape.current) {
    const first = !shape.current || shape.current.split("|")[0] !== String(collapsed);
    const before = new Map(graph.nodes().map((n) => [n.id(), { ...n.position() }]));
    shape.current = now;
    graph.batch(() => { graph.elements().remove(); graph.add(elements(collapsed)); });
    if (first) graph.fit(undefined, 40);
    else if (graph.nodes().length < 300) { // operators that moved are seen moving
      graph.nodes(":childless").forEach((n) => {
        const from = before.get(n.id()), to = { ...n.position() };
        if (from && (from.x !== to.x || from.y !== to.y)) { n.position(from); n.animate({ position: to }, { duration: 700 }); }
      });
    }
    if (chosen) graph.$id(chosen).select();
    return;
  }
  if (collapsed) return;
  const moved = movedNow();
  graph.batch(() => {
    for (const o of store.operators.values()) {
      const n = graph.$id(o.id);
      if (!n.length) continue;
      const data = nodeData(o);
      if (n.data("label") !== data.label || n.data("load") !== data.load || n.data("state") !== data.state) n.data(data);
      if (n.hasClass("moved") !== moved.has(o.id)) n.toggleClass("moved", moved.has(o.id));
    }
    for (const s of store.streams.values()) { const n = graph.$id(s.id), d = streamData(s); if (n.length && n.data("label") !== d.label) n.data(d); }
    for (const e of store.edges.values()) {
      const d = edgeData(e), edge = graph.$id(d.id);
      if (edge.length && (edge.data("heat") !== d.heat || Math.abs(edge.data("width") - d.width) > .15)) edge.data({ heat: d.heat, width: d.width });
    }
  });
}

function dim(graph, query, text) {
  const q = store.queries.get(query), wanted = text.toLowerCase();
  graph.batch(() => {
    graph.elements().removeClass("dim");
    if (!q && !wanted) return;
    const ids = q ? new Set(q.operators) : null;
    const keep = graph.nodes(":childless").filter((n) => {
      const o = store.operators.get(n.id());
      const mine = !ids || ids.has(n.id()) || (!o && n.outgoers("node").some((m) => ids.has(m.id())));
      const named = !wanted || (o ? `${o.label} ${o.text} ${o.queries.join(" ")}` : nameOf(n.id())).toLowerCase().includes(wanted);
      return mine && named;
    });
    graph.elements().not(keep).not(keep.edgesWith(keep)).not(".group").addClass("dim");
    if (keep.length) graph.animate({ fit: { eles: keep, padding: 80 } }, { duration: 250 });
  });
}

function Side({ id, close }) {
  const o = store.operators.get(id), s = store.streams.get(id);
  const x = html`<button class="plainly" aria-label="close" onClick=${close} style="float:right">✕</button>`;
  if (s) return html`<aside class="side" id="details">${x}<h1>${s.name}</h1><dl class="facts"><dt>source</dt><dd>${s.source}</dd><dt>rows</dt><dd>${count(s.rows)} (${rate(s.rows_per_s)}/s)</dd><dt>late, rejected</dt><dd>${count(s.late)}, ${count(s.rejected)}</dd></dl></aside>`;
  if (!o) return html`<aside class="side" id="details">${x}<p class="empty">It is gone.</p></aside>`;
  const { inputs, outputs } = neighbours(id);
  const list = (edges, end) => edges.map((e) => html`<div key=${e[end]}>${store.operators.has(e[end]) ? html`<a href=${link.operator(e[end])}>${nameOf(e[end])}</a>` : nameOf(e[end])} <span class="soft">${rate(e.rows_per_s)}/s${e.queue_rows ? `, ${count(e.queue_rows)} wait` : ""}</span></div>`);
  return html`<aside class="side" id="details">${x}<h1><a href=${link.operator(id)}>${o.label}</a></h1><${Pill} state=${o.state} />
    <dl class="facts"><dt>waiting</dt><dd>${count(o.queue_rows)} rows, ${bytes(o.queue_bytes)}</dd><dt>oldest</dt><dd>${o.queue_rows ? seconds(o.waiting_s) : "–"}</dd>
      <dt>load</dt><dd>${share(o.load)} of a core</dd><dt>work</dt><dd>${seconds(o.cost_s)} in ${count(o.steps)} steps</dd><dt>in, out</dt><dd>${rate(o.rows_in_per_s)}/s, ${rate(o.rows_out_per_s)}/s</dd>
      <dt>processor</dt><dd><a href=${link.processor(o.processor)}>${o.processor}</a></dd>${o.group && html`<dt>runs with</dt><dd>${o.group}</dd>`}</dl>
    <h2>Computes</h2><pre>${o.text}</pre><h2 style="margin-top:14px">Reads</h2>${list(inputs, "source")}
    ${outputs.length > 0 && html`<h2 style="margin-top:14px">Feeds</h2>${list(outputs, "target")}`}
    <h2 style="margin-top:14px">For ${o.queries.length} ${o.queries.length === 1 ? "query" : "queries"}</h2><div class="row">${o.queries.slice(0, 60).map((q) => html`<a key=${q} class="pill" href=${link.query(q)}>${q}</a>`)}</div></aside>`;
}
