// One operator: what it computes, what waits, who shares it, what feeds it and whom it feeds.
import { useState } from "preact/hooks";
import { ask, offers, store } from "./store.js";
import { History, Pill, Table, Tile, bytes, count, html, link, rate, seconds, share } from "./parts.js";

export function neighbours(id) {
  const edges = [...store.edges.values()];
  return { inputs: edges.filter((e) => e.target === id), outputs: edges.filter((e) => e.source === id) };
}

// An operator for people: what it is, and for whom.
export function titleOf(o) {
  const [first, ...more] = o.queries;
  return `${o.kind}${first ? ` for ${first}${more.length ? ` and ${more.length} more` : ""}` : ""}`;
}

export function nameOf(id) {
  const operator = store.operators.get(id);
  if (operator) return titleOf(operator);
  const stream = store.streams.get(id);
  return stream ? `stream ${stream.name}` : id;
}

const anchor = (id) => (store.operators.has(id) ? html`<a href=${link.operator(id)}>${nameOf(id)}</a>` : nameOf(id));

// To another processor that answers; rows neither get lost nor come twice.
function Move({ operator }) {
  const [said, say] = useState(null);
  const others = [...store.processors.values()].filter((p) => p.id !== operator.processor && p.state === "running").map((p) => p.id);
  const go = (event) => {
    const to = event.target.value;
    event.target.value = "";
    if (to && confirm(`Move ${titleOf(operator)} to ${to}?`)) {
      ask("POST", "/api/actions", { action: "move", name: operator.id, to }).then((told) => say(told.done), (error) => say(`${error.error}${error.hint ? `; ${error.hint}` : ""}`));
    }
  };
  return html`<label>move to <select id="move" aria-label="move to" disabled=${!others.length} onChange=${go}>
      <option value="">${others.length ? "…" : "no other processor"}</option>${others.map((p) => html`<option key=${p} value=${p}>${p}</option>`)}</select></label>
    ${said && html`<span class="soft" id="moved" role="status">${said}</span>`}`;
}

export function Operator({ id }) {
  const o = store.operators.get(id);
  if (!o) return html`<main><p class="empty">There is no operator ${id} now. <a href="#/graph">The dataflow</a></p></main>`;
  const { inputs, outputs } = neighbours(id);
  const flow = (edges, end) => html`<${Table} rows=${edges} keyOf=${(e) => e[end]} empty=${end === "target" ? "only readers of results" : "none"} columns=${[
    { name: end === "source" ? "from" : "to", value: (e) => nameOf(e[end]), show: (e) => anchor(e[end]) },
    { name: "rows/s", number: true, value: (e) => e.rows_per_s, show: (e) => rate(e.rows_per_s) },
    { name: "bytes/s", number: true, value: (e) => e.bytes_per_s, show: (e) => bytes(Math.round(e.bytes_per_s)) },
    { name: "waiting", number: true, value: (e) => e.queue_rows, show: (e) => count(e.queue_rows) },
    { name: "pressure", number: true, value: (e) => e.pressure, show: (e) => share(e.pressure) },
  ]} />`;
  return html`<main>
    <div class="crumbs"><a href="#/graph">Dataflow</a> / operator on <a href=${link.processor(o.processor)}>${o.processor}</a></div>
    <div class="split"><h1 class="grow" title=${o.label}>${titleOf(o)} <${Pill} state=${o.state} />${o.group && html` <span class="soft" style="font-size:13px">runs in one job with ${[...store.operators.values()].filter((p) => p.group === o.group && p.id !== o.id).length} others</span>`}</h1>
      ${offers("move") && html`<${Move} operator=${o} />`}
      <a href="#/graph/${encodeURIComponent(o.id)}"><button>show in the dataflow</button></a></div>
    <div class="tiles">
      <${Tile} what="waiting" figure=${count(o.queue_rows)} unit="rows" more=${bytes(o.queue_bytes)} />
      <${Tile} what="oldest waits" figure=${o.queue_rows ? seconds(o.waiting_s) : "–"} />
      <${Tile} what="load" figure=${share(o.load)} more="of a core, lately" />
      <${Tile} what="work" figure=${seconds(o.cost_s)} more="${count(o.steps)} steps, ${o.steps ? seconds(o.cost_s / o.steps) : "–"} each" />
      <${Tile} what="rows in" figure=${rate(o.rows_in_per_s)} unit="/s" more="${count(o.rows_in)} so far" />
      <${Tile} what="rows out" figure=${rate(o.rows_out_per_s)} unit="/s" more="${count(o.rows_out)} so far" />
    </div>
    <div class="card"><h2>The last hour</h2><${History} kind="operator" name=${id} charts=${[["waiting_s", "oldest row waits", seconds], ["rows_in_per_s", "rows in/s", rate], ["step_s", "a step takes", seconds]]} /></div>
    <div class="card"><h2>Computes</h2><pre>${o.text || o.kind}</pre></div>
    <div class="columns">
      <div class="card"><h2>Reads</h2>${flow(inputs, "source")}</div>
      <div class="card"><h2>Feeds</h2>${flow(outputs, "target")}</div>
    </div>
    <div class="card"><h2>Works for ${o.queries.length} ${o.queries.length === 1 ? "query" : "queries"}</h2>
      <div class="row">${o.queries.slice(0, 200).map((q) => html`<a key=${q} class="pill" href=${link.query(q)}>${q}</a>`)}</div></div>
  </main>`;
}
