// The snapshot as the page has it. Increments from the server change it; pages read it.
// Whatever is shown comes with its age: see freshness().
import { useEffect, useState } from "preact/hooks";

const KEYS = { streams: ["id"], queries: ["name"], operators: ["id"], edges: ["source", "target"],
  processors: ["id"], decisions: ["number"] };
const HISTORY_KEPT = 1200;
const listeners = new Set();

export const store = { connected: false, loaded: false, trouble: "", taken: 0, sent: 0, receivedAt: 0,
  interval_s: 1, overview: {}, layout: {}, history: [], version: 0 };
for (const name in KEYS) store[name] = new Map();

const keyOf = (name, member) => KEYS[name].map((part) => member[part]).join("\u0000");

function notify() {
  store.version += 1;
  for (const listener of listeners) listener(store.version);
}

function applyWhole(snapshot) {
  for (const name in KEYS) {
    store[name] = new Map((snapshot[name] || []).map((m) => [keyOf(name, m), m]));
  }
  applyPlain(snapshot);
  store.loaded = true;
}

function applyPlain(told) {
  for (const name of ["overview", "layout", "interval_s", "taken", "sent"]) {
    if (name in told) store[name] = told[name];
  }
  store.trouble = told.trouble || "";
  if (!told.trouble) store.receivedAt = Date.now();
}

function applyChange(told) {
  for (const name in KEYS) {
    if (!told[name]) continue;
    for (const key of told[name].removed) store[name].delete(key.join("\u0000"));
    for (const member of told[name].changed) {
      const key = keyOf(name, member);
      store[name].set(key, { ...store[name].get(key), ...member });
    }
  }
  applyPlain(told);
  if (told.trouble) return;
  const o = store.overview;
  const last = store.history[store.history.length - 1];
  if (!last || store.taken > last[0]) {
    store.history.push([store.taken, o.rows_in_per_s, o.rows_out_per_s, o.backlog_rows, o.watermark_lag_s || 0]);
    if (store.history.length > HISTORY_KEPT) store.history.shift();
  }
}

// Whether the system carries out such an action; see ACTIONS of the snapshot.
export const offers = (action) => (store.overview.actions || []).includes(action);

export function connect() {
  fetch("/api/history").then((r) => r.json()).then((points) => {
    const first = store.history.length ? store.history[0][0] : Infinity;
    store.history = points.filter((p) => p[0] < first).concat(store.history);
    notify();
  }).catch(() => {});
  const events = new EventSource("/api/events");
  events.addEventListener("whole", (e) => { applyWhole(JSON.parse(e.data)); store.connected = true; notify(); });
  events.addEventListener("change", (e) => { applyChange(JSON.parse(e.data)); notify(); });
  events.onopen = () => { store.connected = true; notify(); };
  events.onerror = () => { store.connected = false; notify(); };
  setInterval(notify, 1000);
}

// Whether everything has ended: nothing moves any more.
export const over = () => ["finished", "stopped", "failed"].includes(store.overview.state);

// How old the figures are, and whether that is older than they should be.
export function freshness() {
  const o = store.overview;
  if (!store.loaded) return { level: "warn", text: "waiting for figures", age: 0 };
  const age = Math.max(0, store.sent - store.taken) + (Date.now() - store.receivedAt) / 1000;
  const at = new Date(store.taken * 1000).toLocaleTimeString("en-GB");
  const final = o.state === "finished" || o.state === "stopped";
  if (!store.connected) {
    return { level: final ? "calm" : "bad", age,
      text: final ? `${o.state}; final figures of ${at}` : `connection lost; figures of ${at}, ${Math.round(age)} s old` };
  }
  if (store.trouble) return { level: "bad", age, text: `no new figures (${store.trouble}); these are of ${at}` };
  if (final) return { level: "calm", age: 0, text: `${o.state}; final figures of ${at}` };
  if (age > Math.max(3, 4 * store.interval_s)) {
    return { level: "bad", age, text: `stale: figures of ${at}, ${Math.round(age)} s old` };
  }
  return { level: "good", age, text: "live" };
}

export function useStore() {
  const [, set] = useState(0);
  useEffect(() => { listeners.add(set); return () => listeners.delete(set); }, []);
  return store;
}

export async function ask(method, path, body) {
  const answer = await fetch(path, { method, headers: { "Content-Type": "application/json", "X-Millstream": "1" },
    body: body === undefined ? undefined : JSON.stringify(body) });
  const told = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw told;
  return told;
}
