// What was decided, and why: newest first, by kind.
import { useEffect, useState } from "preact/hooks";
import { ask, store } from "./store.js";
import { clock, html, link } from "./parts.js";

const NAMES = { admission: "admissions", refusal: "refusals", drop: "drops", move: "moves", switch: "algorithm switches", failure: "failures", notice: "notices" };

// Redistribution's parameters (table 6.1), where there is a manager to ask.
const FIELDS = [["redistribute", "carried out"], ["policy", "policy"], ["cost_model", "cost model"], ["percent_difference", "accepted difference, %"], ["check_s", "seconds between looks"],
  ["moves_max", "moves of a look"], ["eligible_operators", "operators that may move"], ["eligible_processors", "processors that get them"], ["state_rows_min", "rows of state, least"], ["state_rows_max", "rows of state, most"]];
const LISTS = new Set(["eligible_operators", "eligible_processors"]), WORDS = new Set(["policy", "cost_model"]), MOST = 9e8;
const shownAs = (key, value) => (LISTS.has(key) ? (value || ["all"]).join(", ") : value === null ? "any" : String(value));
function read(key, text) {
  const names = text.split(",").map((t) => t.trim()).filter(Boolean);
  if (LISTS.has(key)) return names.length === 1 && names[0] === "all" ? null : names;
  if (key === "redistribute") return text === "true";
  return WORDS.has(key) ? text : text === "any" ? MOST : Number(text);
}

function Redistribution() {
  const [known, setKnown] = useState({}), [wrong, setWrong] = useState("");
  useEffect(() => { ask("GET", "/api/settings").then(setKnown, () => {}); }, []);
  if (!("policy" in known)) return null;
  const change = (key, text) => ask("POST", "/api/settings", { [key]: read(key, text.trim()) }).then((told) => { setKnown(told); setWrong(""); }, (e) => setWrong(`${e.error || e}${e.hint ? `: ${e.hint}` : ""}`));
  return html`<details class="card" id="redistribution"><summary>Redistribution: ${known.policy} by ${known.cost_model}${known.redistribute ? "" : ", only told"}</summary>
    <dl class="facts">${FIELDS.map(([key, what]) => html`<dt key=${key}><label for=${`set-${key}`}>${what}</label></dt>
      <dd><input id=${`set-${key}`} value=${shownAs(key, known[key])} onChange=${(e) => change(key, e.target.value)} /></dd>`)}</dl>
    ${wrong && html`<p class="bad" role="alert">${wrong}</p>`}</details>`;
}

export function Decisions() {
  const [hidden, setHidden] = useState(new Set(["switch"])); // of interest to who tunes the scheduler
  const [text, setText] = useState("");
  const all = [...store.decisions.values()].sort((a, b) => b.at - a.at || b.number - a.number);
  const kinds = Object.keys(NAMES).map((k) => [k, all.filter((d) => d.kind === k).length]).filter(([, n]) => n);
  const flip = (k) => { const next = new Set(hidden); if (!next.delete(k)) next.add(k); setHidden(next); };
  const wanted = text.toLowerCase();
  const shown = all.filter((d) => !hidden.has(d.kind) && (!wanted || `${d.sentence} ${d.reason}`.toLowerCase().includes(wanted))).slice(0, 300);
  return html`<main><div class="split"><h1 class="grow">Decisions</h1>
      ${kinds.map(([k, n]) => html`<button key=${k} class="mark ${k} chip" aria-pressed=${!hidden.has(k)} onClick=${() => flip(k)}>${NAMES[k]} ${n}</button>`)}
      <input type="search" placeholder="find" value=${text} onInput=${(e) => setText(e.target.value)} /></div>
    <${Redistribution} />
    <div class="card">${shown.length ? html`<table id="decisions"><thead><tr><th>when</th><th>what</th><th>decision</th><th>reason</th></tr></thead><tbody>
      ${shown.map((d) => html`<tr key=${d.number}><td class="number" style="text-align:left">${clock(d.at)}</td><td><span class="mark ${d.kind}">${d.kind}</span></td>
        <td>${d.subject_kind && link[d.subject_kind] ? html`<a href=${link[d.subject_kind](d.subject)}>${d.sentence}</a>` : d.sentence}</td>
        <td class="soft">${d.reason}</td></tr>`)}</tbody></table>` : html`<p class="empty">Nothing was decided yet.</p>`}</div>
  </main>`;
}
