// The frame of all pages: navigation, freshness, theme, and which page is shown.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connect, freshness, store, useStore } from "./store.js";
import { html } from "./parts.js";
import { Overview } from "./page_overview.js";
import { Graph } from "./page_graph.js";
import { Query } from "./page_query.js";
import { Stream } from "./page_stream.js";
import { Operator } from "./page_operator.js";
import { Processor, Processors } from "./page_processor.js";
import { Decisions } from "./page_decisions.js";
import { Editor } from "./page_editor.js";

const NAV = [["", "Overview"], ["graph", "Dataflow"], ["processors", "Processors"], ["decisions", "Decisions"], ["editor", "Editor"]];
const PARENT = { query: "", stream: "", operator: "graph", processor: "processors" };

function place() {
  const [page = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page.split("?")[0], id: decodeURIComponent(rest.join("/")) };
}

function App() {
  const s = useStore();
  const [at, setAt] = useState(place());
  useEffect(() => {
    const moved = () => { setAt(place()); scrollTo(0, 0); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const fresh = freshness();
  document.body.classList.toggle("stale", fresh.level === "bad");
  const title = s.overview.title || "Millstream";
  document.title = `${fresh.level === "bad" ? "(stale) " : ""}${title} – Millstream`;
  const here = PARENT[at.page] ?? at.page;
  return html`<header class="bar">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" />Millstream</a>
      <nav aria-label="pages">${NAV.map(([page, name]) => html`
        <a key=${page} href="#/${page}" class=${here === page ? "here" : ""} id="nav-${page || "overview"}">${name}</a>`)}</nav>
      <span class="soft" title="what runs">${title}</span>
      <span id="freshness" role="status" class="pill ${fresh.level === "calm" ? "" : fresh.level}">${fresh.level === "good" ? "live" : fresh.level === "calm" ? s.overview.state : "stale"}</span>
      <button class="plainly" title="light or dark" aria-label="light or dark" onClick=${flip}>◐</button>
    </header>
    ${fresh.level === "bad" && html`<div class="banner" id="banner" role="alert">${fresh.text}</div>`}
    ${fresh.level === "calm" && html`<div class="banner calm" id="banner">${fresh.text}</div>`}
    ${!s.loaded ? html`<main><p class="empty">Waiting for the first figures …</p></main>` : page(at)}`;
}

function page({ page, id }) {
  switch (page) {
    case "": return html`<${Overview} />`;
    case "graph": return html`<${Graph} focus=${id} />`;
    case "query": return html`<${Query} key=${id} name=${id} />`;
    case "stream": return html`<${Stream} key=${id} name=${id} />`;
    case "operator": return html`<${Operator} key=${id} id=${id} />`;
    case "processors": return html`<${Processors} />`;
    case "processor": return html`<${Processor} key=${id} id=${id} />`;
    case "decisions": return html`<${Decisions} />`;
    case "editor": return html`<${Editor} />`;
    default: return html`<main><p class="empty">There is no page “${page}”. <a href="#/">To the overview</a></p></main>`;
  }
}

function flip() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("millstream-theme", root.dataset.theme);
  dispatchEvent(new Event("themechange"));
}

window.millstream = store; // for tests and the curious
connect();
document.getElementById("app").textContent = "";
render(html`<${App} />`, document.getElementById("app"));
