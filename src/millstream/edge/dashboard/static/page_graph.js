// The dataflow of all queries. Places come from the server; a canvas draws, zooms and answers clicks.
import { useEffect, useRef, useState } from "preact/hooks";
import { GraphCanvas } from "./graph_canvas.js";
import { store } from "./store.js";
import { Pill, bytes, count, html, link, rate, seconds, share } from "./parts.js";
import { nameOf, neighbours, titleOf } from "./page_operator.js";

const COLLAPSE_FROM = 600; // operators: more than this start as processors only, where there are several
const ANIMATE_MOST = 400; // operators: more than this jump to their new places
const MOVE_SECONDS = 30; // a move is marked for this long
const FAMILY = { map: "map", join: "join", partial: "aggregate", combine: "aggregate", running: "aggregate", running_emit: "aggregate" };
const familyOf = (kind) => FAMILY[kind] || "other";

let paint = {};
function readColours() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  paint = { ink: of("--ink"), soft: of("--soft"), line: of("--line"), group: of("--ground"), chosen: of("--accent"), marked: of("--accent-soft"), card: of("--card"), code: of("--code") };
  for (const k of ["map", "join", "aggregate", "other", "stream"]) paint[k] = of(`--kind-${k}`);
  return paint;
}

// From calm to full, in steps: green, amber, red.
export function heat(pressure) {
  const p = Math.round(pressure * 10) / 10;
  const [low, high, part] = p < .5 ? [[46, 125, 79], [214, 138, 20], p * 2] : [[214, 138, 20], [190, 40, 30], p * 2 - 1];
  return `rgb(${low.map((v, i) => Math.round(v + (high[i] - v) * part)).join(",")})`;
}

const namesOf = (o) => (o.queries.length > 1 ? `${o.queries[0]} +${o.queries.length - 1}` : o.queries[0] || "");
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const thickness = (rows) => 1 + Math.min(4, Math.log10(1 + rows));
const movedNow = () => new Set([...store.decisions.values()].filter((d) => d.kind === "move" && store.taken - d.at < MOVE_SECONDS).flatMap((d) => (d.subjects.length ? d.subjects : [d.subject])));

function wholeProcessors() {
  const of = new Map([...store.operators.values(), ...store.streams.values()].map((n) => [n.id, n.processor])), sums = new Map();
  for (const e of store.edges.values()) {
    const a = of.get(e.source), b = of.get(e.target);
    if (!a || !b || a === b) continue;
    const sum = sums.get(`${a}\u0000${b}`) || { a: `p:${a}`, b: `p:${b}`, rows: 0, pressure: 0, direct: true };
    sum.rows += e.rows_per_s; sum.pressure = Math.max(sum.pressure, e.pressure);
    sums.set(`${a}\u0000${b}`, sum);
  }
  const all = [...store.processors.values()], round = Math.max(260, all.length * 60);
  const nodes = all.map((p, i) => ({ id: `p:${p.id}`, large: true, x: 1.5 * round * Math.sin(2 * Math.PI * i / all.length), y: -round * Math.cos(2 * Math.PI * i / all.length), border: paint.aggregate, fill: paint.card, weight: p.load,
    dashed: p.state === "silent" || p.state === "lost", lines: [p.id, `${count(p.operators)} operators`, `${share(p.load)} busy`] }));
  return [nodes, [...sums.values()].map((e) => ({ ...e, colour: heat(e.pressure), width: thickness(e.rows) })), []];
}

function everything() {
  const nodes = [], several = store.processors.size > 1, moved = movedNow();
  for (const s of store.streams.values()) {
    const at = store.layout[s.id];
    if (at) nodes.push({ id: s.id, x: at[0], y: at[1], group: s.processor, square: true, border: paint.stream, fill: paint.code, weight: 0, brief: s.name, lines: ["stream", short(s.name, 28), s.ended ? "ended" : `${rate(s.rows_per_s)}/s`] });
  }
  for (const o of store.operators.values()) {
    const at = store.layout[o.id];
    if (!at) continue;
    nodes.push({ id: o.id, x: at[0], y: at[1], group: o.processor, border: paint[familyOf(o.kind)], fill: paint.card, weight: Math.min(1, o.load), dashed: o.state === "paused", marked: o.state === "moving" || moved.has(o.id),
      brief: namesOf(o) || o.kind, lines: [`${o.kind}${o.queries.length > 1 ? `  ×${o.queries.length}` : ""}${o.group ? "  ⊂ one job" : ""}`, short(o.text || o.label, 32), `${short(namesOf(o), 26)}${o.queries.length ? " · " : ""}${rate(o.rows_in_per_s)}/s${o.queue_rows ? ` · ${count(o.queue_rows)} wait` : ""}`] });
  }
  const edges = [...store.edges.values()].map((e) => ({ a: e.source, b: e.target, colour: heat(e.pressure), width: thickness(e.rows_per_s) }));
  return [nodes, edges, several ? [...store.processors.values()].map((p) => ({ id: p.id, label: p.id })) : []];
}

export function Graph({ focus }) {
  const box = useRef(null), graph = useRef(null);
  const asked = focus.startsWith("query:") ? focus.slice(6) : "";
  const [chosen, choose] = useState(asked ? "" : focus);
  const [query, setQuery] = useState(asked);
  const [text, setText] = useState("");
  const [collapsed, setCollapsed] = useState(store.operators.size > COLLAPSE_FROM && store.processors.size > 1 && !focus);
  useEffect(() => { if (asked) setQuery(asked); else if (focus) choose(focus); }, [focus]);
  useEffect(() => {
    graph.current = new GraphCanvas(box.current, (id) => { if (id.startsWith("p:")) location.hash = link.processor(id.slice(2)); else choose(id); });
    window.millstreamGraph = graph.current; // for tests and the curious
    const themed = () => { graph.current.colours = readColours(); graph.current.soon(); };
    themed();
    addEventListener("themechange", themed);
    return () => { removeEventListener("themechange", themed); graph.current.destroy(); delete window.millstreamGraph; };
  }, []);
  useEffect(() => graph.current.show(...(collapsed ? wholeProcessors() : everything()), store.operators.size < ANIMATE_MOST), [store.version, collapsed]);
  useEffect(() => graph.current.fit(), [collapsed, store.loaded]);
  useEffect(() => {
    const kept = collapsed ? null : wantedNodes(query, text);
    graph.current.keep(kept);
    if (kept && kept.size) graph.current.fit(kept);
  }, [query, text, collapsed]);
  useEffect(() => { graph.current.choose(chosen); if (chosen && chosen === focus) graph.current.centre(chosen); }, [chosen]);
  return html`<main class="wide"><div class="graph"><canvas id="graph" class="canvas" tabindex="0" aria-label="dataflow: drag to move, wheel to zoom, click for details" ref=${box}></canvas>
    <div class="tools">
      <input type="search" id="find-node" placeholder="find an operator" value=${text} onInput=${(e) => setText(e.target.value)} />
      <select id="graph-query" aria-label="query" value=${query} onChange=${(e) => setQuery(e.target.value)}><option value="">all queries</option>${[...store.queries.keys()].sort().map((q) => html`<option key=${q} value=${q}>${q}</option>`)}</select>
      ${store.processors.size > 1 && html`<label><input type="checkbox" id="collapse" checked=${collapsed} onChange=${(e) => setCollapsed(e.target.checked)} />processors only</label>`}
      <button id="fit" onClick=${() => graph.current.fit()}>fit</button></div>
    <div class="legend">${[["map", "select"], ["join", "join"], ["aggregate", "aggregate"], ["other", "other"], ["stream", "stream"]].map(([k, n]) => html`<span key=${k}><i class="swatch" style="background:var(--kind-${k})"></i>${n}</span>`)}
      <span><i class="swatch" style="background:${heat(0)}"></i>flows</span><span><i class="swatch" style="background:${heat(.5)}"></i>waits</span><span><i class="swatch" style="background:${heat(1)}"></i>held back</span>
      <span>×n: shared by n queries; ⊂: runs in one job with others; thick border: much work; dashed blue-green: just moved</span></div></div>
    ${chosen && html`<${Side} id=${chosen} close=${() => choose("")} />`}</main>`;
}

// The nodes of a query, and those that a text names; null for all.
function wantedNodes(query, text) {
  const q = store.queries.get(query), wanted = text.toLowerCase();
  if (!q && !wanted) return null;
  const mine = q ? new Set(q.operators) : null, kept = new Set();
  for (const o of store.operators.values()) {
    if ((!mine || mine.has(o.id)) && (!wanted || `${o.label} ${o.text} ${o.queries.join(" ")}`.toLowerCase().includes(wanted))) kept.add(o.id);
  }
  for (const e of store.edges.values()) if (store.streams.has(e.source) && kept.has(e.target)) kept.add(e.source);
  return kept;
}

const together = (o) => [...store.operators.values()].filter((p) => p.group === o.group && p.id !== o.id).length;

function Side({ id, close }) {
  const o = store.operators.get(id), s = store.streams.get(id);
  const x = html`<button class="plainly" aria-label="close" onClick=${close} style="float:right">✕</button>`;
  if (s) return html`<aside class="side" id="details">${x}<h1><a href=${link.stream(s.name)}>${s.name}</a></h1><dl class="facts"><dt>source</dt><dd>${s.source}</dd><dt>rows</dt><dd>${count(s.rows)} (${rate(s.rows_per_s)}/s)</dd><dt>late, rejected</dt><dd>${count(s.late)}, ${count(s.rejected)}</dd></dl></aside>`;
  if (!o) return html`<aside class="side" id="details">${x}<p class="empty">It is gone.</p></aside>`;
  const { inputs, outputs } = neighbours(id);
  const list = (edges, end) => edges.map((e) => html`<div key=${e[end]}>${store.operators.has(e[end]) ? html`<a href=${link.operator(e[end])}>${nameOf(e[end])}</a>` : nameOf(e[end])} <span class="soft">${rate(e.rows_per_s)}/s${e.queue_rows ? `, ${count(e.queue_rows)} wait` : ""}</span></div>`);
  return html`<aside class="side" id="details">${x}<h1 title=${o.label}><a href=${link.operator(id)}>${titleOf(o)}</a></h1><${Pill} state=${o.state} />
    <dl class="facts"><dt>waiting</dt><dd>${count(o.queue_rows)} rows, ${bytes(o.queue_bytes)}</dd><dt>oldest</dt><dd>${o.queue_rows ? seconds(o.waiting_s) : "–"}</dd>
      <dt>load</dt><dd>${share(o.load)} of a core</dd><dt>work</dt><dd>${seconds(o.cost_s)} in ${count(o.steps)} steps</dd><dt>in, out</dt><dd>${rate(o.rows_in_per_s)}/s, ${rate(o.rows_out_per_s)}/s</dd>
      <dt>processor</dt><dd><a href=${link.processor(o.processor)}>${o.processor}</a></dd>${o.group && html`<dt>runs in one job with</dt><dd>${together(o)} other operators</dd>`}</dl>
    <h2>Computes</h2><pre>${o.text}</pre><h2 style="margin-top:14px">Reads</h2>${list(inputs, "source")}
    ${outputs.length > 0 && html`<h2 style="margin-top:14px">Feeds</h2>${list(outputs, "target")}`}
    <h2 style="margin-top:14px">For ${o.queries.length} ${o.queries.length === 1 ? "query" : "queries"}</h2><div class="row">${o.queries.slice(0, 60).map((q) => html`<a key=${q} class="pill" href=${link.query(q)}>${q}</a>`)}</div></aside>`;
}
