// Write a query: mistakes underlined as you write, its plan, what admission would say, a preview, register.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, store } from "./store.js";
import { Rows, coloured, html, link } from "./parts.js";
import { Beginnings, pastTexts, rememberText } from "./past_texts.js";

const PAUSE_MS = 350;
const DRAFT = "millstream-draft";

// Where a mistake begins and ends in the text; lines and columns count from 1.
export function span(text, error) {
  if (!error || !error.line) return null;
  const lines = text.split("\n");
  let start = 0;
  for (let i = 0; i < Math.min(error.line - 1, lines.length - 1); i += 1) start += lines[i].length + 1;
  start = Math.min(start + error.column - 1, text.length);
  return [start, Math.min(text.length, start + Math.max(1, error.length || 1))];
}

function Underlay({ text, error }) {
  const found = span(text, error);
  if (!found) return html`${coloured(text)}${"\n"}`;
  const [from, to] = found;
  return html`${coloured(text.slice(0, from))}<span class="wrong" id="wrong">${text.slice(from, to) || " "}</span>${coloured(text.slice(to))}${"\n"}`;
}

function reuse(o) {
  const users = o.shared_with.length === 1 ? o.shared_with[0] : `${o.shared_with.length} queries`;
  if (o.exists) return `runs already for ${users}`;
  return o.shared_with.length ? `in one job with ${users}${o.words ? `: ${o.words}` : ""}` : "new";
}

const LINE_PX = 20.25, INSET_X_PX = 12, INSET_Y_PX = 10; // as .editor in app.css has them
const OFFERING = /[\w.]$|\b(?:FROM|JOIN)\s+$|\[\s*$/i; // texts after which something is offered

// What may follow at the cursor: asked for while one types; Tab takes it, arrows choose, Esc closes.
function useOffers(area, setText) {
  const [offers, setOffers] = useState(null);
  const asked = useRef(0);
  const close = () => { asked.current += 1; setOffers(null); };
  const look = (box) => {
    const before = box.value.slice(0, box.selectionStart), number = asked.current += 1;
    if (!OFFERING.test(before)) { setOffers(null); return; }
    ask("POST", "/api/complete", { before }).then((told) => {
      if (number !== asked.current) return;
      const lines = before.split("\n");
      setOffers(told.candidates.length ? { ...told, chosen: 0, moved: false,
        top: INSET_Y_PX + lines.length * LINE_PX - box.scrollTop,
        left: `calc(${INSET_X_PX}px + ${lines[lines.length - 1].length - told.word.length}ch)` } : null);
    }, close);
  };
  const take = (word) => {
    const box = area.current, at = box.selectionStart, from = at - offers.word.length;
    const text = box.value.slice(0, from) + word + box.value.slice(at);
    close();
    setText(text);
    requestAnimationFrame(() => { box.focus(); box.selectionStart = box.selectionEnd = from + word.length; });
  };
  const keys = (e) => {
    if (!offers || e.ctrlKey || e.metaKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key], many = offers.candidates.length;
    if (step) setOffers({ ...offers, moved: true, chosen: (offers.chosen + step + many) % many });
    else if (e.key === "Tab" || (e.key === "Enter" && offers.moved)) take(offers.candidates[offers.chosen]);
    else if (e.key === "Escape") close();
    else return false;
    e.preventDefault();
    return true;
  };
  const list = offers && html`<ul class="offers" id="offers" role="listbox" style=${{ top: `${offers.top}px`, left: offers.left }}>
    ${offers.candidates.map((word, i) => html`<li key=${word} role="option" aria-selected=${i === offers.chosen} class=${i === offers.chosen ? "chosen" : ""}
      onMouseDown=${(e) => { e.preventDefault(); take(word); }}>${word}</li>`)}</ul>`;
  return { look, keys, close, list };
}

export function Editor() {
  const [text, setText] = useState(sessionStorage.getItem(DRAFT) || "");
  const [name, setName] = useState("");
  const [meaning, setMeaning] = useState(null);
  const [error, setError] = useState(null);
  const [checked, setChecked] = useState("");
  const [preview, setPreview] = useState(null);
  const [busy, setBusy] = useState("");
  const [said, say] = useState(null);
  const [past, setPast] = useState(pastTexts()), [begun] = useState(!text.trim());
  const remember = () => { rememberText(text); setPast(pastTexts()); };
  const area = useRef(null), under = useRef(null);
  const offers = useOffers(area, setText);
  useEffect(() => {
    sessionStorage.setItem(DRAFT, text);
    if (!text.trim()) { setMeaning(null); setError(null); setChecked(""); return undefined; }
    let old = false;
    const timer = setTimeout(() => ask("POST", "/api/explain", { cql: text }).then(
      (told) => { if (!old) { setMeaning(told); setError(null); setChecked(text); } },
      (wrong) => { if (!old) { setMeaning(null); setError(wrong); setChecked(text); } }), PAUSE_MS);
    return () => { old = true; clearTimeout(timer); };
  }, [text]);
  const current = checked === text;
  const look = () => {
    setBusy("preview"); say(null); remember();
    ask("POST", "/api/preview", { cql: text, rows: 20 }).then((got) => setPreview({ ...got, text }), (wrong) => { setPreview(null); say({ bad: true, ...wrong }); }).finally(() => setBusy(""));
  };
  const register = () => {
    setBusy("register"); say(null); remember();
    ask("POST", "/api/queries", { name: name.trim(), cql: text }).then(
      (d) => say({ bad: d.kind === "refusal", error: d.sentence, hint: d.reason, query: d.kind === "refusal" ? "" : d.subject }),
      (wrong) => say({ bad: true, ...wrong })).finally(() => setBusy(""));
  };
  const insert = (word) => {
    const box = area.current, at = box.selectionStart;
    setText(text.slice(0, at) + word + text.slice(box.selectionEnd));
    requestAnimationFrame(() => { box.focus(); box.selectionStart = box.selectionEnd = at + word.length; });
  };
  const keys = (e) => { if (offers.keys(e)) return; if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && meaning && current) { e.preventDefault(); look(); } };
  const streams = [...store.streams.values()];
  return html`<main><h1>Editor</h1><div class="columns thirds"><div>
      <div class="card">
        <div class="with-offers"><div class="editor"><pre ref=${under} aria-hidden="true"><${Underlay} text=${text} error=${error} /></pre>
          <textarea id="cql" ref=${area} spellcheck=${false} aria-label="query" value=${text} placeholder="SELECT … FROM … [RANGE 5 MINUTES]"
            onInput=${(e) => { setText(e.target.value); offers.look(e.target); }} onChange=${(e) => setText(e.target.value)}
            onKeyDown=${keys} onBlur=${offers.close}
            onScroll=${(e) => { under.current.scrollTop = e.target.scrollTop; }}></textarea></div>${offers.list}</div>
        ${error && html`<div class="said bad" id="mistake"><b>${error.line ? `line ${error.line}, column ${error.column}: ` : ""}${error.error}</b>${error.hint && html`<div>hint: ${error.hint}</div>`}</div>`}
        ${meaning && html`<div class="said good" id="admission">${meaning.admission.sentence || "right"}</div>`}
        ${meaning && meaning.warnings.map((w) => html`<div class="said bad" key=${w}>${w}</div>`)}
        <div class="row" style="margin-top:12px">
          <button id="preview" disabled=${!meaning || !current || busy} onClick=${look} title="Ctrl+Enter">${busy === "preview" ? "working …" : "preview"}</button>
          <span style="flex:1"></span>
          <input type="text" id="name" placeholder="a name" value=${name} onInput=${(e) => setName(e.target.value)} />
          <button class="main" id="register" disabled=${!meaning || !current || !name.trim() || busy} onClick=${register}>${busy === "register" ? "working …" : "register"}</button></div>
        ${said && html`<div class="said ${said.bad ? "bad" : "good"}" id="said"><b>${said.error}</b>${said.hint && html`<div>${said.hint}</div>`}
          ${said.query && html`<div><a href=${link.query(said.query)}>see its results</a></div>`}</div>`}
      </div>
      ${preview && html`<div class="card" id="preview-rows"><h2>Preview</h2><p class="empty">${preview.note}; ${preview.last} rows of result${preview.lost ? `, the last ${preview.rows.length} are shown` : ""}${preview.text !== text ? "; of an earlier text" : ""}</p>
        <${Rows} results=${preview} empty="no rows" /></div>`}
      ${meaning && html`<div class="card"><h2>Plan</h2><pre id="meaning">${meaning.plan}</pre></div>`}
    </div><div>
      ${meaning && html`<div class="card"><h2>Operators it would need</h2><ul class="plain">${meaning.operators.map((o) => html`<li key=${o.id}>
        ${o.exists ? html`<a href=${link.operator(o.id)}>${o.label}</a>` : o.label}
        <div class="soft">${reuse(o)}</div></li>`)}</ul></div>`}
      <${Beginnings} open=${begun} streams=${streams} queries=${[...store.queries.values()]} past=${past} choose=${(chosen) => { setText(chosen); area.current.focus(); }} />
      <div class="card"><h2>Streams</h2><p class="empty">Click to insert.</p>${streams.map((s) => html`<details key=${s.id} open=${streams.length < 4}><summary>${s.name}</summary>
        <div class="mono" style="padding:2px 0 8px 16px"><div><a href="#" onClick=${(e) => { e.preventDefault(); insert(s.name); }}>${s.name}</a> <span class="soft">stream</span></div>${s.columns.map(([c, t]) => html`<div key=${c}><a href="#" onClick=${(e) => { e.preventDefault(); insert(c); }}>${c}</a> <span class="soft">${t}</span></div>`)}<div>ts <span class="soft">timestamp</span></div></div></details>`)}</div>
    </div></div></main>`;
}
