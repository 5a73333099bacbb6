// One query: its text, plan, what it shares, cost, goals, results as they come, errors with their row.
import { useEffect, useState } from "preact/hooks";
import { titleOf } from "./page_operator.js";
import { Plan } from "./plan_lines.js";
import { ask, offers, over, store } from "./store.js";
import { Cql, Goals, History, Pill, Rows, Table, Tile, count, eventTime, html, link, rate, seconds, share } from "./parts.js";

const SHOWN = 30;

export function useResults(name) {
  const [results, set] = useState(null);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    let stopped = false, timer = 0, last = 0, kept = [], numbers = [];
    const look = async () => {
      try {
        const got = await ask("GET", `/api/queries/${encodeURIComponent(name)}/results?after=${last}`);
        if (stopped) return;
        const first = got.last - got.rows.length + 1;
        kept = [...got.rows.slice().reverse(), ...kept].slice(0, SHOWN);
        numbers = [...got.rows.map((_, i) => first + i).reverse(), ...numbers].slice(0, SHOWN);
        last = got.last;
        set({ columns: got.columns, rows: kept, numbers, last: got.last });
        setTrouble("");
      } catch (error) {
        if (!stopped) setTrouble(error.error || "the results cannot be read now");
      }
      if (!stopped) timer = setTimeout(look, 1000);
    };
    look();
    return () => { stopped = true; clearTimeout(timer); };
  }, [name]);
  return [results, trouble];
}

export function Query({ name }) {
  const query = store.queries.get(name);
  const [results, trouble] = useResults(name);
  const [said, say] = useState(null);
  if (!query) return html`<main><p class="empty">There is no query ${name} now. <a href="#/">All queries</a></p></main>`;
  const operators = query.operators.map((id) => store.operators.get(id)).filter(Boolean);
  const sharers = new Set(operators.flatMap((o) => o.queries).filter((q) => q !== name));
  const readers = [...store.queries.values()].filter((q) => (q.reads || []).includes(name)).map((q) => q.name);
  const drop = () => {
    const go = readers.length ? ` ${readers.join(", ")} ${readers.length === 1 ? "reads it, and goes" : "read it, and go"} on with what it is now.` : "";
    if (!confirm(`Drop query ${name}?${go}`)) return;
    ask("DELETE", `/api/queries/${encodeURIComponent(name)}`).then(() => { location.hash = "#/"; }, say);
  };
  const resting = query.state === "parked" && query.reason.startsWith("paused");
  const pause = () => ask("POST", "/api/pauses", { action: resting ? "resume" : "pause", name }).then(() => say(null), say);
  const restart = () => { say(null); ask("POST", `/api/queries/${encodeURIComponent(name)}/restart`, {}).catch(say); };
  return html`<main>
    <div class="crumbs"><a href="#/">Overview</a> / query</div>
    <div class="split"><h1 class="grow">${name} <${Pill} state=${query.state} /></h1>
      <a href="#/graph/${encodeURIComponent(`query:${name}`)}"><button>show in the dataflow</button></a>
      <a href="#/editor?query=${encodeURIComponent(name)}" onClick=${() => sessionStorage.setItem("millstream-draft", query.cql)}><button>open in the editor</button></a>
      ${offers("pause") && (resting || query.state === "running") && html`<button onClick=${pause} id="pause">${resting ? "resume" : "pause"}</button>`}
      ${query.restartable && html`<button onClick=${restart} id="restart" title="continue where it failed">restart</button>`}
      ${query.droppable && html`<button onClick=${drop} id="drop">drop</button>`}</div>
    ${said && html`<div class="said bad">${said.error} ${said.hint}</div>`}
    ${query.error && html`<${Failure} error=${query.error} />`}
    ${query.cause && query.state !== "failed" && html`<a class="card slow" id="cause" href=${query.cause_operator ? link.operator(query.cause_operator) : "#/processors"}>
      <div class="soft">${query.delay_s > 0.5 ? `${seconds(query.delay_s)} behind; held up by` : over() ? "most work was done by" : "most work is done by"}</div>
      <div>${query.cause}</div></a>`}
    <div class="tiles">
      <${Tile} what="rows" figure=${count(query.rows)} more="${rate(query.rows_per_s)} a second" />
      <${Tile} what="behind" figure=${seconds(query.delay_s)} more="oldest waiting row" />
      ${typeof query.ratio === "number" && html`<${Tile} what="performance ratio" figure=${query.ratio.toFixed(1)} more="delay over evaluation time; ${(query.ratio_communication || 0).toFixed(1)} communication" />`}
      <${Tile} what="own work" figure=${seconds(query.cost_s_own)} more="${share(query.load_own)} of a core lately" />
      <${Tile} what="part of shared work" figure=${seconds(query.cost_s_shared)} more="${share(query.load_shared)} of a core lately" />
      <${Tile} what="shares with" figure=${sharers.size} unit=${sharers.size === 1 ? "query" : "queries"} more="${operators.filter((o) => o.queries.length > 1 || o.group).length} of ${operators.length} operators share work" />
      <${Tile} what="watermark" figure=${html`<span style="font-size:13px">${query.watermark === "end" ? "end" : eventTime(query.watermark)}</span>`}
        more=${query.start ? `rows count from ${eventTime(query.start)}` : "rows count from the beginning"} />
    </div>
    <div class="card"><h2>The last hour</h2><${History} kind="query" name=${name} charts=${[["delay_s", "behind", seconds], ["rows_per_s", "rows/s", rate], ["load", "of a core", share]]} /></div>
    <div class="columns">
      <div>
        <div class="card"><h2>Text</h2><${Text} cql=${query.cql} /></div>
        <div class="card"><h2>Plan</h2><${Plan} plan=${query.plan} operators=${operators} /></div>
        <${Lineage} query=${query} operators=${operators} readers=${readers} />
      </div>
      <div>
        <div class="card"><h2>Latest results ${query.relation ? "(changes of a table)" : ""}</h2>
          ${trouble && html`<div class="said bad">${trouble}</div>`}
          <${Rows} label="latest results" results=${results} empty="no rows since the dashboard began to look" /></div>
        <div class="card"><h2>Quality of service</h2><${Goals} goals=${query.goals} empty="no goals of its own; the processor's hold" />
          ${query.goals.length ? html`<p class="soft">${query.goals_cost ? `its steps go before older rows of other queries for ${(100 * query.goals_cost).toFixed(1)} % of the time` : "its goals cost the others nothing so far"}</p>` : ""}
          ${query.shed_rows ? html`<p class="soft" id="shed">it did without ${count(query.shed_rows)} rows that had missed its limit of delay</p>` : ""}</div>
      </div>
    </div>
    <div class="card"><h2>Operators</h2><${Operators} operators=${operators} /></div>
  </main>`;
}

// What the user wrote; the definitions that it was made whole with are folded.
function Text({ cql }) {
  const [own, ...definitions] = cql.trim().split("\n;\n");
  return html`<${Cql} text=${own.trim()} />${definitions.length > 0 && html`<details><summary class="soft">with ${definitions.length} ${definitions.length === 1 ? "definition" : "definitions"} that it reads</summary><${Cql} text=${definitions.join("\n;\n")} /></details>`}`;
}

// Where its rows come from and who reads them: streams, queries by name, and where the work is done.
function Lineage({ query, operators, readers }) {
  const mine = new Set(operators.map((o) => o.id));
  const streams = [...new Set([...store.edges.values()].filter((e) => mine.has(e.target)).map((e) => store.streams.get(e.source)).filter(Boolean))];
  const processors = [...new Set(operators.map((o) => o.processor))].filter(Boolean).sort();
  const pills = (names, to, none) => (names.length ? html`<div class="row">${names.map((n) => (to(n) ? html`<a key=${n} class="pill" href=${to(n)}>${n}</a>` : html`<span key=${n} class="pill">${n}</span>`))}</div>` : html`<span class="soft">${none}</span>`);
  return html`<div class="card" id="lineage"><h2>Lineage</h2><dl class="facts">
    <dt>streams</dt><dd>${pills(streams.map((s) => s.name), link.stream, "none")}</dd>
    <dt>reads</dt><dd>${pills(query.reads || [], (n) => (store.queries.has(n) ? link.query(n) : ""), "no other query")}</dd>
    <dt>is read by</dt><dd>${pills(readers, link.query, "no other query")}</dd>
    <dt>runs on</dt><dd>${pills(processors, link.processor, "–")}</dd></dl></div>`;
}

function Failure({ error }) {
  return html`<div class="card" id="failure" style="border-left:4px solid var(--bad)"><h2 style="color:var(--bad)">It failed</h2>
    <div>${error.message}</div>
    ${error.row && html`<div class="soft" style="margin-top:8px">caused by ${error.place}</div>
      <${Rows} label="the row that broke it" results=${{ columns: Object.keys(error.row), rows: [Object.values(error.row)] }} />`}</div>`;
}

export function Operators({ operators, limit = 50 }) {
  return html`<${Table} id="operators" rows=${operators} keyOf=${(o) => o.id} limit=${limit} sort=${{ column: 6, down: true }} empty="none runs now" columns=${[
    { name: "operator", value: titleOf, show: (o) => html`<a href=${link.operator(o.id)} title=${o.label}>${titleOf(o)}</a>` },
    { name: "computes", value: (o) => o.text, show: (o) => html`<span title=${o.text}>${o.text}</span>` },
    { name: "state", value: (o) => o.state, show: (o) => html`<${Pill} state=${o.state} />` },
    { name: "waiting", number: true, value: (o) => o.queue_rows, show: (o) => count(o.queue_rows) },
    { name: "oldest", number: true, value: (o) => o.waiting_s, show: (o) => (o.queue_rows ? seconds(o.waiting_s) : "–") },
    { name: "rows/s in", number: true, value: (o) => o.rows_in_per_s, show: (o) => rate(o.rows_in_per_s) },
    { name: "load", number: true, value: (o) => o.load, show: (o) => share(o.load) },
    { name: "work", number: true, value: (o) => o.cost_s, show: (o) => seconds(o.cost_s) },
    { name: "a step", number: true, value: (o) => (o.steps ? o.cost_s / o.steps : 0), show: (o) => (o.steps ? seconds(o.cost_s / o.steps) : "–") },
    { name: "shared by", number: true, value: (o) => o.queries.length, show: (o) => o.queries.length },
    { name: "processor", value: (o) => o.processor, show: (o) => html`<a href=${link.processor(o.processor)}>${o.processor}</a>` },
  ]} />`;
}
