// Processors: load, memory, the scheduling algorithm and its scores over time, connections, segments.
import { useState } from "preact/hooks";
import { ask, offers, store } from "./store.js";
import { Chart, Goals, History, Pill, Table, Tile, bytes, clock, count, html, link, rate, share } from "./parts.js";
import { Operators } from "./page_query.js";

const meter = (part) => html`<div class="meter"><i class=${part > .95 ? "full" : ""} style="width:${Math.min(100, part * 100)}%"></i></div>`;

// Why there are no scores: who switches between algorithms without scoring them is not alone.
export function unscored(p) {
  const tried = new Set(p.scores.map((s) => s.algorithm));
  if (tried.size > 1) return `${tried.size} algorithms were in charge by turns; ${p.selector || "whoever chooses"} keeps no scores.`;
  return `${p.algorithm || "One algorithm"} is the only candidate: nothing is scored.`;
}

export function Processors() {
  const all = [...store.processors.values()];
  return html`<main><h1>Processors</h1><div class="card"><${Table} id="processors" rows=${all} keyOf=${(p) => p.id} limit=${200} columns=${[
    { name: "processor", value: (p) => p.id, show: (p) => html`<a href=${link.processor(p.id)}>${p.id}</a>` },
    { name: "state", value: (p) => p.state, show: (p) => html`<${Pill} state=${p.state} />` },
    { name: "load", number: true, value: (p) => p.load, show: (p) => html`${share(p.load)}${meter(p.load)}` },
    { name: "memory", number: true, value: (p) => p.memory_bytes, show: (p) => bytes(p.memory_bytes) },
    { name: "operators", number: true, value: (p) => p.operators, show: (p) => count(p.operators) },
    { name: "steps/s", number: true, value: (p) => p.steps_per_s, show: (p) => rate(p.steps_per_s) },
    { name: "schedules by", value: (p) => p.algorithm || "", show: (p) => p.algorithm || "–" },
    { name: "segments", number: true, value: (p) => p.segment_bytes, show: (p) => `${count(p.segments)} (${bytes(p.segment_bytes)})` },
    { name: "heard of", value: (p) => p.seen, show: (p) => clock(p.seen) },
    { name: "address", value: (p) => p.address, show: (p) => p.address },
  ]} /></div></main>`;
}

// What can be done with a processor as it stands now; each asks once more before it is done.
const WAYS = {
  drain: { label: "drain", when: (p) => p.state === "running", sure: (p) => `Drain ${p.id}? It gives its operators to the others and gets nothing new.` },
  undrain: { label: "take it back", when: (p) => p.state === "draining", sure: (p) => `Let ${p.id} take part again?` },
  remove_lost: { label: "give it up as lost", when: (p) => p.state === "silent" || p.state === "lost",
    sure: (p) => `Give ${p.id} up? Only if its home is gone for good: its queries begin again elsewhere, with a mark.` },
};

function Actions({ processor }) {
  const [said, say] = useState(null);
  const act = (action) => {
    if (!confirm(WAYS[action].sure(processor))) return;
    ask("POST", "/api/actions", { action, name: processor.id }).then((told) => say(told.done), (error) => say(`${error.error}${error.hint ? `; ${error.hint}` : ""}`));
  };
  const possible = Object.keys(WAYS).filter((action) => offers(action) && WAYS[action].when(processor));
  return html`${possible.map((action) => html`<button key=${action} id=${action} onClick=${() => act(action)}>${WAYS[action].label}</button>`)}
    ${said && html`<span class="soft" id="done" role="status">${said}</span>`}`;
}

export function Processor({ id }) {
  const p = store.processors.get(id);
  if (!p) return html`<main><p class="empty">There is no processor ${id} now. <a href="#/processors">All processors</a></p></main>`;
  const operators = [...store.operators.values()].filter((o) => o.processor === id);
  const scored = p.scores.filter((s) => Object.keys(s.scores).length);
  const names = [...new Set(scored.flatMap((s) => Object.keys(s.scores)))].sort();
  const used = p.memory_bytes_max ? p.memory_bytes / p.memory_bytes_max : 0;
  return html`<main>
    <div class="crumbs"><a href="#/processors">Processors</a></div>
    <div class="split"><h1 class="grow">${p.id} <${Pill} state=${p.state} /> <span class="soft" style="font-size:13px">last heard of at ${clock(p.seen)}</span></h1>
      <${Actions} processor=${p} /></div>
    <div class="tiles">
      <${Tile} what="load" figure=${share(p.load)} more=${html`of ${p.slots} slots${meter(p.load)}`} />
      <${Tile} what="memory" figure=${bytes(p.memory_bytes)} more=${html`of ${bytes(p.memory_bytes_max)}${meter(used)}`} />
      <${Tile} what="schedules by" figure=${html`<span style="font-size:16px">${p.algorithm || "–"}</span>`} more="chosen by ${p.selector || "–"}" />
      <${Tile} what="steps" figure=${count(p.steps)} more="${rate(p.steps_per_s)} a second" />
      <${Tile} what="segments" figure=${count(p.segments)} more=${bytes(p.segment_bytes)} />
      <${Tile} what="ledger" figure=${bytes(p.ledger_bytes)} more="epoch ${p.epoch}" />
      <${Tile} what="operators" figure=${count(p.operators)} more=${p.address} />
    </div>
    <div class="card"><h2>The last hour</h2><${History} kind="processor" name=${id} charts=${[["load", "load", share], ["steps_per_s", "steps/s", rate], ["segment_bytes", "segments", bytes]]} /></div>
    <div class="columns">
      <div class="card" id="scores"><h2>Scores of the scheduling algorithms</h2>
        ${names.length ? html`<${Chart} max=${1} series=${names.map((label) => ({ label, show: (v) => v.toFixed(2) }))}
          data=${[scored.map((s) => s.at), ...names.map((n) => scored.map((s) => s.scores[n] ?? null))]} />`
        : html`<p class="empty">${unscored(p)}</p>`}
        <${Table} rows=${p.scores.filter((s, i, all) => !i || s.algorithm !== all[i - 1].algorithm).slice(-8).reverse()} keyOf=${(s) => s.at} empty="no review yet" columns=${[
          { name: "since", show: (s) => clock(s.at) }, { name: "in charge", show: (s) => s.algorithm },
        ]} /></div>
      <div>
        <div class="card"><h2>Goals</h2><${Goals} goals=${p.goals} empty="none" /></div>
        <div class="card"><h2>Connections</h2><${Table} rows=${p.connections} keyOf=${(c) => c.peer + c.direction} empty="none: this processor works alone" columns=${[
          { name: "with", value: (c) => c.peer, show: (c) => html`<a href=${link.processor(c.peer)}>${c.peer}</a>` },
          { name: "", unseen: "direction", show: (c) => (c.direction === "in" ? "pulls from" : "gives to") },
          { name: "streams", number: true, value: (c) => c.streams, show: (c) => c.streams },
          { name: "rows/s", number: true, value: (c) => c.rows_per_s, show: (c) => rate(c.rows_per_s) },
          { name: "bytes/s", number: true, value: (c) => c.bytes_per_s, show: (c) => bytes(Math.round(c.bytes_per_s)) },
          { name: "behind", number: true, value: (c) => c.behind_rows, show: (c) => count(c.behind_rows) },
        ]} /></div>
      </div>
    </div>
    <div class="card"><h2>Operators</h2><${Operators} operators=${operators} limit=${100} /></div>
  </main>`;
}
