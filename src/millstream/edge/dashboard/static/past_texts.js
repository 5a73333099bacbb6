// What the editor offers to begin with: texts that were tried here before, and examples over the streams that there are.
import { html } from "./parts.js";

const KEPT = "millstream-texts", KEPT_MOST = 30;
const NUMBERS = /^(tinyint|smallint|int|integer|long|bigint|float|double|decimal)/i;

export function pastTexts() {
  try { return JSON.parse(localStorage.getItem(KEPT)) || []; } catch { return []; }
}

// The newest first, each once.
export function rememberText(text) {
  const kept = [text.trim(), ...pastTexts().filter((t) => t !== text.trim())].slice(0, KEPT_MOST);
  localStorage.setItem(KEPT, JSON.stringify(kept));
}

const quoted = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);

// Queries that mean something over a stream as it is: by its first columns of words and numbers.
export function examplesOf(streams, queries) {
  const stream = streams.find((s) => s.columns.length && !s.name.startsWith("sys."));
  const found = [];
  if (stream) {
    const from = quoted(stream.name), first = quoted(stream.columns[0][0]);
    const word = stream.columns.find(([, type]) => /^(string|varchar)/i.test(type)), number = stream.columns.find(([, type]) => NUMBERS.test(type));
    const key = word ? quoted(word[0]) : first;
    found.push(["some columns of every row", `SELECT ${stream.columns.slice(0, 3).map(([c]) => quoted(c)).join(", ")}\nFROM ${from}`]);
    if (number) found.push(["rows that fulfil a condition", `SELECT *\nFROM ${from}\nWHERE ${quoted(number[0])} > 10`]);
    found.push(["a count every minute", `SELECT ${key}, count(*) AS rows\nFROM ${from} [RANGE 1 MINUTE SLIDE 1 MINUTE]\nGROUP BY ${key}`]);
    if (number) found.push(["the last five minutes, every minute", `SELECT ${key}, avg(${quoted(number[0])}) AS average, max(${quoted(number[0])}) AS most\nFROM ${from} [RANGE 5 MINUTES SLIDE 1 MINUTE]\nGROUP BY ${key}\nHAVING count(*) > 1`]);
    found.push(["two rows that belong together", `SELECT a.${key}, a.ts AS first_at, b.ts AS second_at\nFROM ${from} [RANGE 2 MINUTES] a\nJOIN ${from} [RANGE 2 MINUTES] b ON a.${key} = b.${key}\nWHERE a.ts < b.ts`]);
  }
  if (queries.length) found.push(["a query over another query", `SELECT *\nFROM ${quoted(queries[0].name)}`]);
  found.push(["alarms as they come", "SELECT severity, sentence, culprit, todo\nFROM sys.alarms\nWHERE state = 'raised'"]);
  return found;
}

const firstLine = (text) => text.replace(/\s+/g, " ").slice(0, 70);

export function Beginnings({ streams, queries, past, choose, open }) {
  const list = (items) => html`<ul class="plain">${items.map(([words, text]) => html`<li key=${text}><button class="choice" onClick=${() => choose(text)} title=${text}>${words}</button></li>`)}</ul>`;
  return html`<details class="card" id="examples" open=${open}><summary>Examples</summary>${list(examplesOf(streams, queries))}</details>
    <details class="card" id="past"><summary>Tried before (${past.length})</summary>${past.length ? list(past.map((text) => [firstLine(text), text])) : html`<p class="empty">what you preview or register here is kept in this browser</p>`}</details>`;
}
