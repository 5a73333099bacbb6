// What was decided, and why: newest first, by kind.
import { useState } from "preact/hooks";
import { store } from "./store.js";
import { clock, html, link } from "./parts.js";

const NAMES = { admission: "admissions", refusal: "refusals", drop: "drops", move: "moves", switch: "algorithm switches", failure: "failures", notice: "notices" };

export function Decisions() {
  const [hidden, setHidden] = useState(new Set());
  const [text, setText] = useState("");
  const all = [...store.decisions.values()].sort((a, b) => b.at - a.at || b.number - a.number);
  const kinds = Object.keys(NAMES).map((k) => [k, all.filter((d) => d.kind === k).length]).filter(([, n]) => n);
  const flip = (k) => { const next = new Set(hidden); if (!next.delete(k)) next.add(k); setHidden(next); };
  const wanted = text.toLowerCase();
  const shown = all.filter((d) => !hidden.has(d.kind) && (!wanted || `${d.sentence} ${d.reason}`.toLowerCase().includes(wanted))).slice(0, 300);
  return html`<main><div class="split"><h1 class="grow">Decisions</h1>
      ${kinds.map(([k, n]) => html`<button key=${k} class="mark ${k} chip" aria-pressed=${!hidden.has(k)} onClick=${() => flip(k)}>${NAMES[k]} ${n}</button>`)}
      <input type="search" placeholder="find" value=${text} onInput=${(e) => setText(e.target.value)} /></div>
    <div class="card">${shown.length ? html`<table id="decisions"><thead><tr><th>when</th><th>what</th><th>decision</th><th>reason</th></tr></thead><tbody>
      ${shown.map((d) => html`<tr key=${d.number}><td class="number" style="text-align:left">${clock(d.at)}</td><td><span class="mark ${d.kind}">${d.kind}</span></td>
        <td>${d.subject_kind && link[d.subject_kind] ? html`<a href=${link[d.subject_kind](d.subject)}>${d.sentence}</a>` : d.sentence}</td>
        <td class="soft">${d.reason}</td></tr>`)}</tbody></table>` : html`<p class="empty">Nothing was decided yet.</p>`}</div>
  </main>`;
}
