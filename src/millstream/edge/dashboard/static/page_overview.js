// Everything in one look; the slowest query and its cause are one click away each.
import { useState } from "preact/hooks";
import { over, store } from "./store.js";
import { Chart, CostBar, Pill, Table, Tile, bytes, count, eventTime, html, link, plural, rate, seconds, share } from "./parts.js";

export function slowestOf(queries) {
  const running = queries.filter((q) => ["running", "stalled", "done"].includes(q.state));
  const late = running.some((q) => q.delay_s > 0.5); // equals stay in the order of the table below: no flicker
  const worked = (q) => q.cost_s_own + q.cost_s_shared; // nothing works now: who did most of it all
  const works = running.some((q) => q.load_own + q.load_shared > 0);
  const weight = late ? (q) => q.delay_s || 0 : over() || !works ? worked : (q) => q.load_own + q.load_shared;
  return running.sort((a, b) => weight(b) - weight(a))[0];
}

export function Overview() {
  const o = store.overview;
  const queries = [...store.queries.values()];
  const streams = [...store.streams.values()];
  const processors = [...store.processors.values()];
  const failed = queries.filter((q) => q.state === "failed").length;
  const errors = o.alarms.filter((a) => a.severity === "error").length;
  const points = store.history;
  const column = (i) => points.map((p) => p[i]);
  return html`<main><h1 class="unseen">Overview</h1>
    <div class="tiles">
      <${Tile} what="rows in" figure=${rate(o.rows_in_per_s)} unit="/s" more="${count(o.rows_in)} so far" />
      <${Tile} what="rows out" figure=${rate(o.rows_out_per_s)} unit="/s" more="${count(o.rows_out)} so far" />
      <${Tile} what="backlog" figure=${count(o.backlog_rows)} unit="rows" more=${bytes(o.backlog_bytes)} />
      <${Tile} what="watermark lag" figure=${seconds(o.watermark_lag_s)} more="event time, at most" />
      <${Tile} what="queries" figure=${count(queries.length)} more=${failed ? `${failed} failed` : "none failed"} bad=${failed > 0} />
      ${o.saved_s > 0 && html`<${Tile} what="saved by sharing" figure=${share(o.saved_part)} more="${seconds(o.saved_s)} of work; ${count(o.steps)} jobs instead of ${count(o.jobs_alone)}" href="#/graph" />`}
      <${Tile} what="processors" figure=${processors.length} more="${count(store.operators.size)} operators" href="#/processors" />
      <${Tile} what="alarms" figure=${o.alarms.length} more=${errors ? `${errors} of them errors` : "no errors"} bad=${errors > 0} />
    </div>
    <div class="columns thirds">
      <div>
        <${Slowest} query=${slowestOf(queries)} />
        <div class="card"><h2>Rows a second</h2>
          <${Chart} series=${[{ label: "in" }, { label: "out" }]} data=${[column(0), column(1), column(2)]} /></div>
      </div>
      <div>
        <div class="card"><h2>Alarms</h2><${Alarms} alarms=${o.alarms} /></div>
        <div class="card"><h2>Backlog</h2><${Chart} height=${110} series=${[{ label: "rows waiting", show: count }]} data=${[column(0), column(3)]} /></div>
      </div>
    </div>
    <div class="card"><${Queries} queries=${queries} /></div>
    <div class="card"><h2>Streams</h2><${Table} id="streams" rows=${streams} keyOf=${(s) => s.id} empty="no stream is declared" columns=${[
      { name: "stream", value: (s) => s.name, show: (s) => html`<a href=${link.stream(s.name)}>${s.name}</a>` },
      { name: "source", value: (s) => s.source, show: (s) => s.source },
      { name: "rows", number: true, value: (s) => s.rows, show: (s) => count(s.rows) },
      { name: "rows/s", number: true, value: (s) => s.rows_per_s, show: (s) => rate(s.rows_per_s) },
      { name: "late", number: true, value: (s) => s.late, show: (s) => count(s.late) },
      { name: "rejected", number: true, value: (s) => s.rejected, show: (s) => count(s.rejected) },
      { name: "watermark", value: (s) => s.watermark || "", show: (s) => (s.ended ? "ended" : eventTime(s.watermark)) },
      { name: "processor", value: (s) => s.processor, show: (s) => html`<a href=${link.processor(s.processor)}>${s.processor}</a>` },
    ]} /></div>
  </main>`;
}

function Slowest({ query }) {
  if (!query) return html`<div class="card"><p class="empty">No query is running.</p></div>`;
  const behind = query.delay_s > 0.5;
  return html`<a class="card slow" id="slowest" href=${link.query(query.name)}>
    <div class="soft">${behind ? "slowest query" : over() ? `${store.overview.state}; the query that worked most` : "nothing waits; the query that works most"}</div>
    <b>${query.name}</b>${behind && html` is ${seconds(query.delay_s)} behind`}
    <div class="why">${query.cause || "no work so far"}</div></a>`;
}

function alarmWords(a) {
  const words = [];
  if (a.since > 0) words.push(`since ${new Date(a.since * 1000).toLocaleTimeString()}`);
  if (a.culprit && !a.sentence.includes(a.culprit)) words.push(`because ${a.culprit}`);
  if (a.queries.length && a.subject_kind !== "query") words.push(`concerns ${a.queries.slice(0, 3).join(", ")}${a.queries.length > 3 ? " …" : ""}`);
  return [...words, a.todo].filter(Boolean).join("; ");
}

export function Alarms({ alarms }) {
  if (!alarms.length) return html`<p class="empty">Nothing needs attention.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="alarms" style="max-height:230px"><ul class="plain" id="alarms">${alarms.slice(0, 50).map((a, i) => html`<li key=${i} class="alarm">
    <span class="mark ${a.severity}">${a.severity}</span>
    <span>${a.subject_kind && link[a.subject_kind] ? html`<a href=${link[a.subject_kind](a.subject)}>${a.sentence}</a>` : a.sentence}
      <span class="why">${alarmWords(a)}</span></span></li>`)}</ul>
    ${alarms.length > 50 && html`<p class="empty">and ${alarms.length - 50} more</p>`}</div>`;
}

function Queries({ queries }) {
  const [text, setText] = useState("");
  const wanted = text.toLowerCase();
  const rows = wanted ? queries.filter((q) => (q.name + " " + q.cql + " " + q.state).toLowerCase().includes(wanted)) : queries;
  const most = Math.max(1e-9, ...queries.map((q) => q.load_own + q.load_shared));
  const stands = (q) => q.state === "failed" || q.state === "stalled"; // these come first, whatever waits for others
  const goals = (q) => q.goals.filter((g) => g.met === false).length;
  return html`<div class="split"><h2 class="grow" style="margin:0">${plural(queries.length, "query", "queries")}</h2>
      <input type="search" id="find-query" placeholder="find a query" value=${text} onInput=${(e) => setText(e.target.value)} /></div>
    <${Table} id="queries" rows=${rows} keyOf=${(q) => q.name} sort=${{ column: 2, down: true }} empty="no query" columns=${[
      { name: "query", value: (q) => q.name, show: (q) => html`<a href=${link.query(q.name)}>${q.name}</a>` },
      { name: "state", value: (q) => q.state, show: (q) => html`<${Pill} state=${q.state} />` },
      { name: "behind", number: true, title: "how long the oldest row that waits for it has been here", value: (q) => (stands(q) ? 1e9 : 0) + (q.delay_s || 0), show: (q) => seconds(q.delay_s) },
      { name: "rows", number: true, value: (q) => q.rows, show: (q) => count(q.rows) },
      { name: "rows/s", number: true, value: (q) => q.rows_per_s, show: (q) => rate(q.rows_per_s) },
      { name: "load", number: true, title: "seconds of work a second: own, and its part of shared work", value: (q) => q.load_own + q.load_shared,
        show: (q) => html`${share(q.load_own + q.load_shared)}<${CostBar} own=${q.load_own} shared=${q.load_shared} most=${most} />` },
      { name: "operators", number: true, value: (q) => q.operators.length, show: (q) => q.operators.length },
      { name: "goals", value: goals, show: (q) => (!q.goals.length || stands(q) ? "" : goals(q) ? html`<${Pill} state="failed">${goals(q)} missed<//>` : html`<${Pill} state="running">met<//>`) },
      { name: "watermark", value: (q) => q.watermark || "", show: (q) => (q.watermark === "end" ? "end" : eventTime(q.watermark)) },
      { name: "held up by", value: (q) => q.cause, show: (q) => (q.cause_operator && q.state !== "failed"
        ? html`<a href=${link.operator(q.cause_operator)} title=${q.cause}>${q.cause}</a>` : html`<span title=${q.reason || q.cause}>${q.reason || q.cause || ""}</span>`) },
    ]} />`;
}
