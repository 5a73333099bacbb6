// One stream: what comes, who reads it, what was put aside and why, and its last hour.
import { useState } from "preact/hooks";
import { ask, store } from "./store.js";
import { History, Rows, Table, Tile, count, eventTime, html, link, rate } from "./parts.js";
import { Alarms } from "./page_overview.js";
import { titleOf } from "./page_operator.js";
import { useResults } from "./page_query.js";

const SAMPLE = 20;

export function Stream({ name }) {
  const stream = [...store.streams.values()].find((s) => s.name === name);
  const [rejected] = useResults(`${name}.rejected`);
  const [late] = useResults(`${name}.late`);
  const [sample, setSample] = useState(null);
  const [said, say] = useState("");
  if (!stream) return html`<main><p class="empty">There is no stream ${name} now. <a href="#/">All streams</a></p></main>`;
  const readers = [...store.edges.values()].filter((e) => e.source === stream.id).map((e) => store.operators.get(e.target)).filter(Boolean);
  const queries = [...new Set(readers.flatMap((o) => o.queries))].sort();
  const alarms = store.overview.alarms.filter((a) => a.subject_kind === "stream" && a.subject === name);
  const look = () => {
    say("looking …");
    ask("POST", "/api/preview", { cql: `SELECT * FROM ${/^\w+$/.test(name) ? name : `\`${name}\``}`, rows: SAMPLE })
      .then((found) => { setSample(found); say(""); }, (error) => say(error.error || "no sample can be had now"));
  };
  return html`<main>
    <div class="crumbs"><a href="#/">Overview</a> / stream</div>
    <div class="split"><h1 class="grow">${name}</h1><a href="#/graph/${encodeURIComponent(stream.id)}"><button>show in the dataflow</button></a></div>
    <div class="tiles">
      <${Tile} what="rows" figure=${count(stream.rows)} more="${rate(stream.rows_per_s)} a second" />
      <${Tile} what="late" figure=${count(stream.late)} more="older than lateness allows" bad=${stream.late > stream.rows} />
      <${Tile} what="rejected" figure=${count(stream.rejected)} more="malformed or without time" bad=${stream.rejected > 0} />
      <${Tile} what="watermark" figure=${html`<span style="font-size:15px">${stream.ended ? "ended" : eventTime(stream.watermark)}</span>`} more=${stream.source} />
    </div>
    ${alarms.length > 0 && html`<div class="card"><h2>Alarms</h2><${Alarms} alarms=${alarms} /></div>`}
    <div class="card"><h2>The last hour</h2><${History} kind="stream" name=${name} charts=${[["rows_per_s", "rows/s", rate], ["rejected", "rejected so far", count], ["late", "late so far", count]]} /></div>
    <div class="card" id="sample"><div class="split"><h2 class="grow">Sample</h2><button onClick=${look}>look at some rows</button></div>
      ${said ? html`<p class="empty">${said}</p>` : html`<${Rows} label="sample" results=${sample} wait="rows that are still at hand are shown when you ask for them" empty="no row is at hand: what every query has read is gone" />`}</div>
    <div class="card" id="rejected"><h2>Rejected rows, with reasons</h2><${Rows} label="rejected rows" results=${rejected} empty=${stream.rejected ? "they came before anybody looked on: the run's folder has them" : "none"} /></div>
    <div class="card" id="late"><h2>Late rows</h2><${Rows} label="late rows" results=${late} empty=${stream.late ? "they came before anybody looked on: the run's folder has them" : "none"} /></div>
    <div class="card"><h2>Columns</h2><${Table} rows=${stream.columns} keyOf=${(c) => c[0]} empty="not known here" columns=${[{ name: "column", show: (c) => c[0] }, { name: "type", show: (c) => c[1] }]} /></div>
    <div class="card"><h2>Read by ${queries.length} ${queries.length === 1 ? "query" : "queries"}</h2>
      <div class="row">${queries.map((q) => html`<a key=${q} class="pill" href=${link.query(q)}>${q}</a>`)}</div>
      <div class="soft">${readers.map((o) => html`<div key=${o.id}><a href=${link.operator(o.id)}>${titleOf(o)}</a></div>`)}</div></div>
  </main>`;
}
