// A plan as explain prints it, each line with the figures of what carries it out.
import { store } from "./store.js";
import { count, html, link, rate, seconds } from "./parts.js";

const HASH = /\s*#(\w+)\s*$/, STREAM = /^\s*stream (\S+)/;

// Lines of a plan with the operator or stream of each; operators without a line of their own (the
// panes below an aggregate) follow the line that they feed.
export function linesOf(plan, operators) {
  const left = new Map(operators.map((o) => [o.id, o]));
  const lines = plan.split("\n").map((line) => {
    const hash = (line.match(HASH) || [])[1], text = line.replace(HASH, "");
    const operator = hash && operators.find((o) => o.id.startsWith(`o:${hash}`));
    if (operator) left.delete(operator.id);
    const name = (text.match(STREAM) || [])[1];
    const stream = name && [...store.streams.values()].find((s) => s.name === name);
    return { text, operator, stream };
  });
  for (const operator of left.values()) {
    const feeds = [...store.edges.values()].filter((e) => e.source === operator.id).map((e) => e.target);
    const at = lines.findIndex((l) => l.operator && feeds.includes(l.operator.id));
    if (at < 0) continue;
    const indent = lines[at].text.match(/^\s*/)[0];
    lines.splice(at + 1, 0, { text: `${indent}  (its ${operator.kind} part)`, operator });
  }
  return lines;
}

function Figures({ operator: o, stream: s }) {
  if (s) return html`<td class="number">${rate(s.rows_per_s)}/s</td><td class="number"></td><td class="number"></td><td class="number"></td>`;
  if (!o) return html`<td></td><td></td><td></td><td></td>`;
  return html`<td class="number">${rate(o.rows_in_per_s)}/s</td><td class="number">${o.queue_rows ? `${count(o.queue_rows)}, ${seconds(o.waiting_s)}` : "–"}</td>
    <td class="number">${seconds(o.cost_s)}</td><td class="number">${o.steps ? seconds(o.cost_s / o.steps) : "–"}</td>`;
}

export function Plan({ plan, operators }) {
  const lines = linesOf(plan || "", operators);
  if (!plan) return html`<p class="empty">not known here</p>`;
  const shown = ({ text, operator, stream }) => {
    const [, indent, words] = text.match(/^(\s*)(.*)$/);
    const href = operator ? link.operator(operator.id) : stream ? link.stream(stream.name) : "";
    return html`<span class="indent">${indent}</span>${href ? html`<a href=${href}>${words}</a>` : words}`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="plan"><table id="plan" class="plan"><thead><tr><th>operator</th><th class="number">rows in</th><th class="number">waiting</th><th class="number">work</th><th class="number">a step</th></tr></thead>
    <tbody>${lines.map((line, i) => html`<tr key=${i}><td class="mono">${shown(line)}${line.operator && line.operator.queries.length > 1 ? html` <span class="soft">×${line.operator.queries.length}</span>` : ""}</td><${Figures} ...${line} /></tr>`)}</tbody></table></div>`;
}
