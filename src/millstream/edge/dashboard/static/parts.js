// Small pieces that every page uses: figures for people, tables, charts, links.
import { h } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);

export const link = {
  query: (name) => `#/query/${encodeURIComponent(name)}`,
  operator: (id) => `#/operator/${encodeURIComponent(id)}`,
  processor: (id) => `#/processor/${encodeURIComponent(id)}`,
  stream: (name) => `#/stream/${encodeURIComponent(name)}`,
};

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10000) return Math.round(value).toLocaleString("en");
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 2 : value / size < 100 ? 1 : 0)} ${unit}`;
  }
  return String(value);
}
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : count(value);
}
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${value} B`;
}
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${(value / 86400).toFixed(1)} d`;
}
export const share = (value) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(value < .1 ? 1 : 0)} %`);
export const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB") : "–");
export const eventTime = (text) => (text ? text.replace("T", " ").replace(/(\.\d{3})\d*/, "$1").replace("Z", "") : "–");
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + "s"}`;

const STATES = { running: "good", done: "", busy: "good", finished: "", failed: "bad", lost: "bad", silent: "bad", stalled: "bad", parked: "warn",
  paused: "warn", moving: "warn", starting: "warn", waiting: "warn" };
export const Pill = ({ state, children }) => html`<span class="pill ${STATES[state] ?? ""}">${children || state}</span>`;

export function Tile({ what, figure, unit, more, href, bad }) {
  const inner = html`<div class="what">${what}</div>
    <div class="figure">${figure}${unit ? html` <small>${unit}</small>` : ""}</div>
    <div class="more ${bad ? "bad" : ""}">${more || "\u00a0"}</div>`;
  return href ? html`<a class="tile" href=${href}>${inner}</a>` : html`<div class="tile">${inner}</div>`;
}

// columns: {name, value(row) for sorting, show(row), number, title}
const FEW = 3; // columns that fit on a phone; of more, each row becomes a block there
export function Table({ columns, rows, sort, limit = 100, empty = "none", keyOf, id }) {
  const [by, setBy] = useState(sort || { column: 0, down: false });
  const [all, setAll] = useState(false);
  const column = columns[by.column] || columns[0];
  const sorted = column.value ? [...rows].sort((a, b) => {
    const x = column.value(a) ?? -Infinity, y = column.value(b) ?? -Infinity;
    const order = typeof x === "string" || typeof y === "string" ? String(x).localeCompare(String(y)) : x - y;
    return by.down ? -order : order;
  }) : rows;
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const shown = all ? sorted : sorted.slice(0, limit);
  const change = (index) => setBy({ column: index, down: by.column === index ? !by.down : Boolean(columns[index].number) });
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${id || columns[0].name}><table id=${id} class=${columns.length > FEW ? "many" : ""}><thead><tr>${columns.map((c, i) => html`
    <th key=${c.name} class="${c.number ? "number" : ""} ${c.value ? "sorts" : ""}" title=${c.title || ""}
      aria-sort=${by.column === i ? (by.down ? "descending" : "ascending") : "none"}
      >${c.value && c.name ? html`<button class="heading" onClick=${() => change(i)}>${c.name}${by.column === i ? (by.down ? " ▾" : " ▴") : ""}</button>` : c.name || html`<span class="unseen">${c.unseen || "more"}</span>`}</th>`)}</tr></thead>
    <tbody>${shown.map((row, i) => html`<tr key=${keyOf ? keyOf(row) : i}>${columns.map((c) => html`
      <td key=${c.name} data-name=${c.name} class="${c.number ? "number" : ""} ${c.wrap ? "" : "name"}">${c.show(row)}</td>`)}</tr>`)}</tbody></table></div>
    ${rows.length > limit && html`<p class="empty"><button onClick=${() => setAll(!all)}>
      ${all ? "show fewer" : `show all ${rows.length} (${limit} are shown)`}</button></p>`}`;
}

const PALETTE = ["--accent", "--kind-join", "--warn", "--kind-map", "--bad", "--kind-other", "--good"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: [{label, show(value)}], data: [times, values, values, ...]
export function Chart({ series, data, height = 170, max }) {
  const box = useRef(null);
  const plot = useRef(null);
  const labels = series.map((s) => s.label).join("|");
  const theme = document.documentElement.dataset.theme;
  useEffect(() => {
    if (!window.uPlot || !box.current) return undefined;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    plot.current = new window.uPlot({
      width: box.current.clientWidth || 500, height, cursor: { y: false }, legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, max ?? Math.max(high || 0, 1e-9) * 1.05] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock), space: 90 }, { ...axis, size: 62, values: (_, ticks) => ticks.map((t) => (series[0].show || rate)(t)) }],
      series: [{ value: (_, v) => (v === null ? "–" : clock(v)) }, ...series.map((s, i) => ({ label: s.label,
        stroke: colour(PALETTE[i % PALETTE.length]), width: 1.75, spanGaps: true, points: { show: false },
        value: (_, v) => (v === null || v === undefined ? "–" : (s.show || rate)(v)) }))],
    }, data, box.current);
    const resized = new ResizeObserver(() => plot.current && box.current && plot.current.setSize({ width: box.current.clientWidth, height }));
    resized.observe(box.current);
    return () => { resized.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [labels, theme, Boolean(window.uPlot)]);
  useEffect(() => {
    if (!plot.current) return;
    plot.current.setData(data);
    if (plot.current.cursor.idx == null) plot.current.setLegend({ idx: data[0].length - 1 }); // nobody points: the latest
  });
  return html`<div class="chart" style="height:${height + 32}px" ref=${box}></div>`;
}

// The last hour of one thing, as the server has kept it: it is there again when the page is loaded anew.
export function History({ kind, name, charts }) {
  const [told, set] = useState(null);
  useEffect(() => {
    let stopped = false, timer = 0;
    const look = () => fetch(`/api/history/${kind}/${encodeURIComponent(name)}`).then((r) => (r.ok ? r.json() : null)).catch(() => null)
      .then((found) => { if (stopped) return; if (found) set(found); timer = setTimeout(look, 10000); });
    look();
    return () => { stopped = true; clearTimeout(timer); };
  }, [kind, name]);
  if (!told) return html`<p class="empty">waiting for the first answer …</p>`;
  if (told.at.length < 2) return html`<p class="empty">a point every ten seconds: the first ones are on their way</p>`;
  return html`<div class="history">${charts.map(([figure, label, show]) => html`<div key=${figure}><${Chart} height=${96} series=${[{ label, show }]} data=${[told.at, told[figure]]} /></div>`)}</div>`;
}

const WORDS = /(--[^\n]*|\/\*[\s\S]*?\*\/)|('(?:[^']|'')*'?)|(\b\d+(?:\.\d+)?\b)|\b(SELECT|FROM|WHERE|GROUP|BY|HAVING|JOIN|ON|AND|OR|NOT|AS|UNION|ALL|DISTINCT|CASE|WHEN|THEN|ELSE|END|IN|IS|NULL|LIKE|BETWEEN|RANGE|ROWS|SLIDE|ALIGN|START|NOW|UNBOUNDED|PARTITION|ISTREAM|DSTREAM|RSTREAM|CREATE|STREAM|QUERY|COUNT|SUM|AVG|MIN|MAX|SECONDS?|MINUTES?|HOURS?|DAYS?|MILLISECONDS?)\b/gi;

export function coloured(text) {
  const pieces = [];
  let last = 0;
  for (const m of text.matchAll(WORDS)) {
    if (m.index > last) pieces.push(text.slice(last, m.index));
    const kind = m[1] ? "note" : m[2] ? "text" : m[3] ? "number" : "key";
    pieces.push(html`<span class="word-${kind}">${m[0]}</span>`);
    last = m.index + m[0].length;
  }
  pieces.push(text.slice(last));
  return pieces;
}

export const Cql = ({ text }) => html`<pre class="cql">${coloured(text)}</pre>`;

export function Rows({ results, label = "rows", empty = "no rows yet", wait = "waiting for the first answer …" }) {
  if (!results) return html`<p class="empty">${wait}</p>`;
  if (!results.rows.length) return html`<p class="empty">${empty}</p>`;
  const numeric = results.columns.map((_, j) => results.rows.some((row) => typeof row[j] === "number"));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="results"><thead><tr>${results.columns.map((c, j) => html`<th key=${c} class=${numeric[j] ? "number" : ""}>${c}</th>`)}</tr></thead>
    <tbody>${results.rows.map((row, i) => html`<tr key=${results.numbers ? results.numbers[i] : i} class=${results.numbers ? "fresh" : ""}>
      ${row.map((v, j) => html`<td key=${j} class="${typeof v === "number" ? "number" : ""} name">${cell(v)}</td>`)}</tr>`)}</tbody></table></div>`;
}
const cell = (v) => (v === null || v === undefined ? html`<span class="soft">null</span>`
  : typeof v === "number" && !Number.isInteger(v) ? Number(v.toPrecision(7)) : typeof v === "object" ? JSON.stringify(v) : String(v).replace(/(\d)\+00:00$/, "$1"));

export function Goals({ goals, empty }) {
  if (!goals.length) return html`<p class="empty">${empty}</p>`;
  return html`<table><thead><tr><th>statistic</th><th>wish</th><th class="number">measured</th><th><span class="unseen">met</span></th></tr></thead><tbody>
    ${goals.map((g) => html`<tr key=${g.statistic}><td>${g.statistic}</td><td>${g.wish}</td>
      <td class="number">${g.value === null ? "not yet" : rate(g.value)}</td>
      <td>${g.met === true ? html`<${Pill} state="running">${g.misses_in_s != null ? `met; at this rate missed in ${Math.round(g.misses_in_s)} s` : "met"}<//>` : g.met === false ? html`<${Pill} state="failed">missed<//>` : ""}</td></tr>`)}
  </tbody></table>`;
}

// Cost as a bar: what only this query needs, and its part of what is shared.
export function CostBar({ own, shared, most }) {
  const scale = most > 0 ? 100 / most : 0;
  return html`<div class="meter" title="own ${share(own)}, shared ${share(shared)} of a core">
    <i style="width:${own * scale}%"></i><i class="shared" style="width:${shared * scale}%"></i></div>`;
}
