// Draws boxes and arrows on a canvas: thousands of them in a few milliseconds. Pans, zooms, answers clicks.
// Knows nothing of streams and queries: nodes have a place, lines of text and colours.
const WIDTH = 184, HEIGHT = 50, FONT = 10.5, READABLE = 7, BRIEF = 10.5; // a smaller text is left out
const MOVE_MS = 700, GAP = 44; // between groups
const TOOLS = 56, LEGEND = 56; // pixels above and below that other things cover

export class GraphCanvas {
  constructor(canvas, pick) {
    this.canvas = canvas; this.pick = pick; this.nodes = new Map(); this.edges = []; this.groups = [];
    this.view = { x: 0, y: 0, scale: 1 }; this.chosen = ""; this.kept = null; this.colours = {}; this.moving = new Map();
    this.frame = 0; this.drawn = 0;
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(canvas);
    this.listen();
    this.resize();
  }

  destroy() { this.resized.disconnect(); cancelAnimationFrame(this.frame); }

  resize() {
    const { clientWidth: w, clientHeight: h } = this.canvas, ratio = Math.min(2, devicePixelRatio || 1);
    if (!w || !h) return;
    this.canvas.width = w * ratio; this.canvas.height = h * ratio; this.ratio = ratio;
    if (this.wantsFit) this.fit(); else this.soon();
  }

  listen() {
    const c = this.canvas;
    let from = null;
    c.addEventListener("pointerdown", (e) => { from = { x: e.clientX, y: e.clientY, view: { ...this.view }, far: false }; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      if (!from) { c.style.cursor = this.at(e) ? "pointer" : "grab"; return; }
      const dx = e.clientX - from.x, dy = e.clientY - from.y;
      if (Math.abs(dx) + Math.abs(dy) > 4) from.far = true;
      if (from.far) { this.view = { ...this.view, x: from.view.x + dx, y: from.view.y + dy }; c.style.cursor = "grabbing"; this.soon(); }
    });
    const up = (e) => { if (from && !from.far && e.type === "pointerup") { const hit = this.at(e); this.pick(hit ? hit.id : ""); } from = null; };
    c.addEventListener("pointerup", up);
    c.addEventListener("pointercancel", up);
    c.addEventListener("wheel", (e) => {
      e.preventDefault();
      const box = c.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
      this.zoom(Math.exp(-e.deltaY * (e.ctrlKey ? .01 : .0015)), x, y);
    }, { passive: false });
    c.addEventListener("keydown", (e) => {
      const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
      if (steps) { this.view.x += steps[0]; this.view.y += steps[1]; this.soon(); e.preventDefault(); }
      if (e.key === "+" || e.key === "-") this.zoom(e.key === "+" ? 1.25 : .8, c.clientWidth / 2, c.clientHeight / 2);
    });
  }

  zoom(by, x, y) {
    const scale = Math.min(3, Math.max(.02, this.view.scale * by)), real = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * real, y: y - (y - this.view.y) * real };
    this.soon();
  }

  // nodes: {id, x, y, lines, border, fill, weight (0..1), dashed, marked, large}; edges: {a, b, colour, width}; groups: {id, label}
  show(nodes, edges, groups, animated) {
    const now = performance.now();
    for (const n of nodes) {
      const old = this.nodes.get(n.id);
      if (old && animated && (old.x !== n.x || old.y !== n.y)) this.moving.set(n.id, { x: old.x, y: old.y, since: now });
    }
    this.nodes = new Map(nodes.map((n) => [n.id, n]));
    this.edges = edges; this.groups = groups;
    this.soon();
  }

  place(n) {
    const m = this.moving.get(n.id);
    if (!m) return [n.x, n.y];
    const part = (performance.now() - m.since) / MOVE_MS;
    if (part >= 1) { this.moving.delete(n.id); return [n.x, n.y]; }
    const eased = 1 - (1 - part) ** 3;
    return [m.x + (n.x - m.x) * eased, m.y + (n.y - m.y) * eased];
  }

  size(n) { return n.large ? [210, 84] : [WIDTH, HEIGHT]; }

  at(e) {
    const box = this.canvas.getBoundingClientRect();
    const x = (e.clientX - box.left - this.view.x) / this.view.scale, y = (e.clientY - box.top - this.view.y) / this.view.scale;
    for (const n of this.nodes.values()) { const [w, h] = this.size(n); if (Math.abs(x - n.x) <= w / 2 && Math.abs(y - n.y) <= h / 2) return n; }
    return null;
  }

  // Where a node is on the page.
  screenOf(id) {
    const n = this.nodes.get(id), box = this.canvas.getBoundingClientRect();
    return n && { x: box.left + this.view.x + n.x * this.view.scale, y: box.top + this.view.y + n.y * this.view.scale };
  }

  fit(ids, most = 1.25) {
    const wanted = [...this.nodes.values()].filter((n) => !ids || ids.has(n.id));
    const { clientWidth: w, clientHeight: h } = this.canvas;
    this.wantsFit = !w || !h;
    if (!wanted.length || this.wantsFit) return;
    const xs = wanted.map((n) => n.x), ys = wanted.map((n) => n.y);
    const left = Math.min(...xs) - WIDTH * .75, right = Math.max(...xs) + WIDTH * .75, top = Math.min(...ys) - 60, bottom = Math.max(...ys) + 45;
    const room = Math.max(100, h - TOOLS - LEGEND);
    const scale = Math.min(most, w / (right - left), room / (bottom - top));
    this.view = { scale, x: w / 2 - scale * (left + right) / 2, y: TOOLS + room / 2 - scale * (top + bottom) / 2 };
    this.soon();
  }

  centre(id) {
    const n = this.nodes.get(id), { clientWidth: w, clientHeight: h } = this.canvas;
    if (n) { const scale = Math.max(this.view.scale, .9); this.view = { scale, x: w / 2 - n.x * scale, y: h / 2 - n.y * scale }; this.soon(); }
  }

  choose(id) { this.chosen = id; this.soon(); }
  keep(ids) { this.kept = ids; this.soon(); } // others are dimmed

  soon() { if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); }); }

  draw() {
    const g = this.canvas.getContext("2d"), { scale, x, y } = this.view, k = this.ratio || 1;
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.setTransform(scale * k, 0, 0, scale * k, x * k, y * k);
    const spot = new Map();
    for (const n of this.nodes.values()) spot.set(n.id, this.place(n));
    this.drawGroups(g, spot, scale);
    this.drawEdges(g, spot, scale);
    this.drawNodes(g, spot, scale);
    this.drawNames(g, scale);
    this.drawn += 1;
    if (this.moving.size) this.soon();
  }

  drawGroups(g, spot, scale) {
    this.corners = [];
    for (const group of this.groups) {
      let l = Infinity, t = Infinity, r = -Infinity, b = -Infinity;
      for (const n of this.nodes.values()) {
        if (n.group !== group.id) continue;
        const [x, y] = spot.get(n.id);
        l = Math.min(l, x); r = Math.max(r, x); t = Math.min(t, y); b = Math.max(b, y);
      }
      if (l > r) continue;
      g.fillStyle = this.colours.group; g.strokeStyle = this.colours.line; g.lineWidth = 1 / Math.min(1, scale);
      g.beginPath(); g.roundRect(l - WIDTH / 2 - 20, t - HEIGHT / 2 - 20, r - l + WIDTH + 40, b - t + HEIGHT + 40, 12); g.fill(); g.stroke();
      const size = Math.max(16, 13 / scale);
      this.corners.push([group.label, l - WIDTH / 2 - 20, t - HEIGHT / 2 - 20]);
      if (size > GAP) continue; // more than what lies between two groups: see drawNames
      g.fillStyle = this.colours.soft; g.font = `600 ${size}px system-ui, sans-serif`; g.textAlign = "left"; g.textBaseline = "bottom";
      g.fillText(group.label, l - WIDTH / 2 - 16, t - HEIGHT / 2 - 26);
    }
  }

  // From far away names of groups lie on top of what they name, as large as other text on the page.
  drawNames(g, scale) {
    const size = 13 / scale;
    if (size <= GAP) return;
    g.font = `600 ${size}px system-ui, sans-serif`; g.textAlign = "left"; g.textBaseline = "top";
    for (const [label, x, y] of this.corners) {
      g.fillStyle = this.colours.card; g.globalAlpha = .85;
      g.fillRect(x, y, g.measureText(label).width + size * .8, size * 1.5);
      g.fillStyle = this.colours.ink; g.globalAlpha = 1;
      g.fillText(label, x + size * .4, y + size * .3);
    }
  }

  drawEdges(g, spot, scale) {
    const kinds = new Map(); // lines of one look are one path
    for (const e of this.edges) {
      const faint = this.kept && !(this.kept.has(e.a) && this.kept.has(e.b));
      const look = `${e.colour}|${Math.round(e.width * 2) / 2}|${faint}`;
      if (!kinds.has(look)) kinds.set(look, []);
      kinds.get(look).push(e);
    }
    for (const [look, edges] of kinds) {
      const [colour, width, faint] = look.split("|");
      g.strokeStyle = g.fillStyle = colour; g.lineWidth = Number(width); g.globalAlpha = faint === "true" ? .06 : .8;
      g.beginPath();
      const ends = [];
      for (const e of edges) {
        const a = spot.get(e.a), b = spot.get(e.b);
        if (!a || !b) continue;
        if (e.direct) { const [p, q] = this.between(a, b); g.moveTo(p[0], p[1]); g.lineTo(q[0], q[1]); ends.push([p, q]); continue; }
        const from = [a[0] + WIDTH / 2, a[1]], to = [b[0] - WIDTH / 2 - 4, b[1]], bend = Math.min(60, Math.abs(to[0] - from[0]) / 2);
        g.moveTo(from[0], from[1]);
        if (scale > .15) g.bezierCurveTo(from[0] + bend, from[1], to[0] - bend, to[1], to[0], to[1]); else g.lineTo(to[0], to[1]);
        ends.push([[to[0] - 8, to[1]], to]);
      }
      g.stroke();
      if (scale > .15) {
        g.beginPath();
        for (const [p, q] of ends) { const angle = Math.atan2(q[1] - p[1], q[0] - p[0]), s = 6 + Number(width);
          g.moveTo(q[0] + 3 * Math.cos(angle), q[1] + 3 * Math.sin(angle)); g.lineTo(q[0] - s * Math.cos(angle - .45), q[1] - s * Math.sin(angle - .45)); g.lineTo(q[0] - s * Math.cos(angle + .45), q[1] - s * Math.sin(angle + .45)); }
        g.fill();
      }
    }
    g.globalAlpha = 1;
  }

  // Two ends at the rims of large boxes, a little aside so that both directions are seen.
  between(a, b) {
    const dx = b[0] - a[0], dy = b[1] - a[1], d = Math.hypot(dx, dy) || 1, off = 9, ox = -dy / d * off, oy = dx / d * off;
    const rim = (p, sign) => { const t = Math.min(109 / Math.abs(dx || 1e-9), 46 / Math.abs(dy || 1e-9), .45); return [p[0] + sign * dx * t + ox, p[1] + sign * dy * t + oy]; };
    return [rim(a, 1), rim(b, -1)];
  }

  // From afar: one word or two in a box that is large enough for them, of a size that can be read.
  drawBrief(g, n, x, y, w, h, scale) {
    const fit = Math.floor((w * scale - 8) / 6);
    if (!n.brief || h * scale < 15 || fit < 5) return;
    g.font = `500 ${BRIEF / scale}px system-ui, sans-serif`; g.fillStyle = this.colours.ink;
    g.fillText(n.brief.length > fit ? `${n.brief.slice(0, fit - 1)}…` : n.brief, x, y, w);
  }

  drawNodes(g, spot, scale) {
    const c = this.colours, readable = FONT * scale >= READABLE;
    g.textAlign = "center"; g.textBaseline = "middle";
    for (const n of this.nodes.values()) {
      const [x, y] = spot.get(n.id), [w, h] = this.size(n);
      g.globalAlpha = this.kept && !this.kept.has(n.id) ? .12 : n.dashed ? .6 : 1;
      const chosen = n.id === this.chosen;
      g.fillStyle = n.marked ? c.marked : n.fill; g.strokeStyle = chosen ? c.chosen : n.border;
      g.lineWidth = Math.max(chosen ? 4 : n.marked ? 5 : 1.5 + 5 * n.weight, .8 / scale * (.4 + n.weight));
      g.setLineDash(n.dashed ? [6, 4] : n.marked ? [9, 3] : []);
      g.beginPath();
      if (scale > .25) g.roundRect(x - w / 2, y - h / 2, w, h, n.square ? 2 : 8); else g.rect(x - w / 2, y - h / 2, w, h);
      g.fill(); g.stroke();
      if (!readable && !n.large) { this.drawBrief(g, n, x, y, w, h, scale); continue; }
      const size = n.large ? 14 : FONT, step = size * 1.35;
      n.lines.forEach((line, i) => {
        g.font = `${i === 0 ? 600 : 400} ${size}px system-ui, sans-serif`; g.fillStyle = i === 2 ? c.soft : c.ink;
        g.fillText(line, x, y + (i - (n.lines.length - 1) / 2) * step, w - 10);
      });
    }
    g.setLineDash([]); g.globalAlpha = 1;
  }
}
