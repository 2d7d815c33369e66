// The page of a running agent, or of a recorded run (replay.js). It requests the status once a second and changes nothing.
"use strict";

const PERIOD_MS = 1000;
const ANSWER_MS = 4000;
const MAX_DECISIONS = 200;
// Connections are requested in every fifth period: a part of them costs the agent more than the status.
const CONNECTIONS_EVERY = 5;

// Times are in s. A recorded run has its own.
const source = globalThis.replay ?? {
  isRun: false,
  now: () => Date.now() / 1000,
  clock: (s) => new Date(s * 1000).toLocaleTimeString([], { hour12: false }),
  moment: () => "",
};

// Of the curves.
const WINDOW_S = source.isRun ? 60 : 300;

const $ = (selector) => document.querySelector(selector);

// What is known of the agent that is shown; times are those of this browser, in s.
let known = nothing();
let after = null;
let period = 0;
let lostAt = null;

function nothing() {
  return { pid: null, uptimeS: 0, signals: new Map(), rates: new Map(), bytes: new Map(), decisions: [], signalsAsked: false };
}

// ---- text ----

// An element; all text is set as text, since names and reasons come from other programs.
function el(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "rect", "title", "circle", "text"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  let value = count;
  for (; value >= 1000 && place < units.length - 1; place++) value /= 1000;
  return `${place === 0 ? value : value.toFixed(1)} ${units[place]}`;
}

function rate(bitS) {
  if (bitS === undefined) return "–";
  return bitS >= 1e6 ? `${(bitS / 1e6).toFixed(1)} Mbit/s` : `${(bitS / 1e3).toFixed(bitS > 0 ? 1 : 0)} kbit/s`;
}

function span(s) {
  if (s < 60) return `${Math.floor(s)} s`;
  const [days, hours, minutes] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${Math.floor(s % 60)} s`;
}

const measured = (value, unit) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} ${unit}`);

// ---- curves ----

// A curve of the last minutes. Points are {t, v}, t in s before now as a negative number; gaps end a stroke.
function curve(points, unit, label, floor) {
  const [width, height, gapS] = [300, 64, 5];
  const box = el("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height: String(height), role: "img" });
  const inside = points.filter((point) => point.t >= -WINDOW_S);
  if (inside.length < 2) return el("p", { class: "soft" }, `${label}: none in the last minutes`);
  const values = inside.map((point) => point.v);
  let [low, high] = [floor ?? Math.min(...values), Math.max(...values)];
  if (high - low < 1) high = low + 1;
  const x = (t) => width * (1 + t / WINDOW_S);
  const y = (v) => height - 4 - ((v - low) / (high - low)) * (height - 8);
  let path = "";
  let last = null;
  for (const { t, v } of inside) {
    path += `${last === null || t - last > gapS ? "M" : "L"}${x(t).toFixed(1)} ${y(v).toFixed(1)}`;
    last = t;
  }
  for (let minute = 1; minute < WINDOW_S / 60; minute++) {
    box.append(el("line", { class: "grid", x1: x(-60 * minute), x2: x(-60 * minute), y1: 0, y2: height }));
  }
  box.append(el("title", {}, `${label} of the last ${WINDOW_S / 60} minutes`), el("path", { class: "curve", d: path }));
  const range = `${label}, last ${WINDOW_S / 60} min: ${low.toFixed(1)} to ${high.toFixed(1)} ${unit}`;
  return el("figure", {}, box, el("figcaption", { class: "soft" }, range));
}

function bar(count, most, kind) {
  const share = most > 0 && count ? Math.max(1, (100 * count) / most) : 0;
  const box = el("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", height: "8", "aria-hidden": "true" });
  box.append(el("rect", { class: `bar ${kind}`, x: "0", y: "0", width: share, height: "8" }));
  return box;
}

// ---- what is known ----

// Adds what a status says to what is known: signals, rates, decisions.
function learn(status, now) {
  if (known.pid !== status.pid || status.uptime_s < known.uptimeS) {
    const isFirst = known.pid === null || source.isRun;
    known = nothing();
    after = null;
    period = 0;
    if (!isFirst) known.decisions.push({ number: 0, at: now - status.uptime_s, text: "the agent started again", rule: "" });
  }
  const elapsedS = status.uptime_s - known.uptimeS;
  for (const path of status.paths) {
    const signals = known.signals.get(path.path) ?? [];
    if (path.signal_age_s !== null && path.signal_age_s < 2 * (PERIOD_MS / 1000)) {
      const t = now - path.signal_age_s;
      if (signals.length === 0 || t > signals.at(-1).t + 0.1) signals.push({ t, v: path.signal_dbm });
    }
    known.signals.set(path.path, signals.filter((signal) => signal.t > now - WINDOW_S));
    const before = known.bytes.get(path.path);
    const total = [path.sent_bytes, path.received_bytes];
    const rates = known.rates.get(path.path) ?? [];
    if (before && total[0] !== null && before[0] !== null && elapsedS > 0) {
      const [up, down] = total.map((count, place) => (8 * Math.max(0, count - before[place])) / elapsedS);
      rates.push({ t: now, up, down });
    }
    known.rates.set(path.path, rates.filter((one) => one.t > now - WINDOW_S));
    known.bytes.set(path.path, total);
  }
  const last = known.decisions.reduce((most, one) => Math.max(most, one.number), 0);
  for (const change of status.changes.filter((change) => change.number > last)) {
    const verb = change.of === "state" ? "becomes" : "is believed to be";
    known.decisions.push({
      number: change.number, at: now - change.ago_s, path: change.path, verb, to: change.to,
      text: change.reason.text || "nothing is known yet", rule: change.reason.rule,
    });
  }
  known.decisions = known.decisions.slice(-MAX_DECISIONS);
  [known.pid, known.uptimeS] = [status.pid, status.uptime_s];
}

function learnSignals(signals, now) {
  for (const [path, samples] of Object.entries(signals)) {
    known.signals.set(path, samples.map(([ageS, dbm]) => ({ t: now - ageS, v: dbm })));
  }
}

// ---- sections ----

function show(status, now) {
  document.title = `Crosslane: ${status.paths.filter((path) => path.state === "active").map((path) => path.path).join(", ") || "no active path"}`;
  const strategy = status.strategy ? `${status.strategy}, mode ${status.mode}` : "gateway";
  const preferred = status.preferred ? `, ${status.preferred.path} preferred by request` : "";
  const agent = source.isRun ? `${status.configuration}, recorded` : `agent ${status.pid} of ${status.version}, up ${span(status.uptime_s)}`;
  $("#agent").textContent = `${agent}; ${strategy}${preferred}`;
  const problems = status.problems.map((problem) => el("li", { class: "problem" }, problem));
  $("#problems").hidden = problems.length === 0;
  $("#problems ul").replaceChildren(...problems);
  $("#links .cards").replaceChildren(...status.paths.map((path) => link(path, now)));
  showVolumes(status.paths);
  showDecisions();
  $("#tunnel").hidden = !status.tunnel;
  if (status.tunnel) {
    const { interface: name, role, encrypted, peers, peers_seen } = status.tunnel;
    const protection = encrypted ? "encrypted" : "not encrypted";
    $("#tunnel p").textContent = `${name}, ${role}, ${protection}: ${peers_seen} of ${peers} peers seen within 10 s`;
  }
  showUnits(status.units);
}

function link(path, now) {
  const signals = (known.signals.get(path.path) ?? []).map((signal) => ({ t: signal.t - now, v: signal.v }));
  const rates = known.rates.get(path.path) ?? [];
  const both = rates.map((one) => ({ t: one.t - now, v: (one.up + one.down) / 1e6 }));
  const item = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  return el("article", {},
    el("div", {},
      el("h3", {}, path.path),
      el("span", { class: `state ${path.state}` }, path.state),
      el("span", { class: "soft" }, `for ${span(path.state_since_s)}`)),
    el("p", {}, path.state_reason.text || "no decision yet"),
    el("p", {}, el("span", { class: path.belief }, path.belief), el("span", { class: "soft" }, ` for ${span(path.belief_since_s)}: ${path.belief_reason.text || "nothing is known"}`)),
    path.signal_dbm === null ? curve(both, "Mbit/s", "rate", 0) : curve(signals, "dBm", "signal"),
    el("dl", {},
      ...item("interface", `${path.interface} ${path.address ?? "(no address)"}`),
      ...item("signal", measured(path.signal_dbm, "dBm")),
      ...item("RTT", measured(path.rtt_ms, "ms")),
      ...item("sending / receiving", `${rate(rates.at(-1)?.up)} / ${rate(rates.at(-1)?.down)}`),
      ...item("connections", String(path.connections)),
      ...(path.volume ? item("volume", path.volume.periods.map(used).join(", ")) : [])));
}

function used(period) {
  return `${bytes(period.used_bytes)} of ${bytes(period.limit_bytes)} this ${period.period}`;
}

function row(cells, tag = "td", numbers = []) {
  return el("tr", {}, ...cells.map((cell, place) => el(tag, numbers.includes(place) ? { class: "number" } : {}, cell)));
}

function showVolumes(paths) {
  const most = Math.max(0, ...paths.map((path) => Math.max(path.sent_bytes ?? 0, path.received_bytes ?? 0)));
  const rows = paths.map((path) => row([path.path,
    bytes(path.sent_bytes), bar(path.sent_bytes, most, "sent"),
    bytes(path.received_bytes), bar(path.received_bytes, most, "received")], "td", [1, 3]));
  $("#volumes table").replaceChildren(row(["path", "sent", "", "received", ""], "th", [1, 3]), ...rows);
}

function showDecisions() {
  const item = (one) => el("li", {}, el("time", {}, source.clock(one.at)),
    ...(one.path ? [el("strong", {}, one.path), ` ${one.verb} `, el("strong", { class: one.to }, one.to), `: ${one.text} `] : [one.text]),
    el("span", { class: "soft" }, one.rule ? `(${one.rule})` : ""));
  const list = $("#decisions ol");
  const newest = String(known.decisions.at(-1)?.number ?? -1) + known.pid;
  if (list.dataset.newest === newest) return;
  list.dataset.newest = newest;
  list.replaceChildren(...known.decisions.map(item).reverse());
}

function showUnits(units) {
  $("#units").hidden = units.length === 0;
  const rows = units.map((unit) => row([unit.name, unit.slot === null ? "–" : String(unit.slot), unit.belief,
    measured(unit.rssi_dbm, "dBm"), span(unit.last_cam_s), unit.liveness ?? "–", measured(unit.min_rtt_ms, "ms")]));
  $("#units table").replaceChildren(row(["unit", "slot", "belief", "signal", "last CAM", "tunnel", "minimum RTT"], "th"), ...rows);
}

function showConnections(page, total) {
  const used = (one) => {
    const volume = one.acked_bytes === null ? "not measured" : `${bytes(one.acked_bytes)} / ${bytes(one.received_bytes)}`;
    return el("div", {}, el("span", { class: `state ${one.state}` }, one.path), ` ${volume}`, el("span", { class: "soft" }, ` ${measured(one.rtt_ms, "ms")}`));
  };
  const rows = page.connections.map((one) => {
    const paths = el("div", {}, ...one.subflows.map(used));
    return row([one.token, `${one.accepted ? "from" : "to"} ${one.peer ?? "unknown"}${one.is_foreign ? " (managed by the kernel)" : ""}`, paths]);
  });
  const shown = page.connections.length === total ? "" : `, of which ${page.connections.length} are shown`;
  $("#connections p").textContent = `${total} in all${shown}; by path: bytes acknowledged / received, RTT`;
  $("#connections table").replaceChildren(row(["token", "peer", "paths"], "th"), ...rows);
  $("#first").hidden = after === null;
  $("#next").hidden = page.next === null;
  $("#next").dataset.after = page.next ?? "";
}

// ---- the agent ----

async function get(target) {
  const response = await fetch(target, { signal: AbortSignal.timeout(ANSWER_MS) });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

function contact(text, kind) {
  $("#contact").textContent = text;
  $("#contact").className = kind;
  document.body.classList.toggle("stale", kind === "lost");
}

async function look() {
  const [now, moment] = [source.now(), source.moment()];
  const status = await get(`/api/state${moment}`);
  learn(status, now);
  if (!known.signalsAsked) {
    learnSignals(await get(`/api/signals${moment}`), now);
    known.signalsAsked = !source.isRun;
  }
  show(status, now);
  if (period++ % CONNECTIONS_EVERY === 0) {
    showConnections(await get(`/api/connections${after === null ? moment : `?after=${after}`}`), status.connections);
  }
  contact(source.isRun ? "recorded" : "live", "live");
  $("#contact").title = "";
  lostAt = null;
}

// Goes on whatever happens: a lost agent is requested again until it answers.
async function watch() {
  if (!document.hidden) {
    try {
      await look();
    } catch (fault) {
      lostAt ??= source.now();
      contact(`${source.isRun ? "program" : "agent"} lost since ${source.clock(lostAt)}; trying again`, "lost");
      $("#contact").title = fault.message;
    }
  }
  setTimeout(watch, PERIOD_MS);
}

function turn(to) {
  after = to;
  period = 0;
}

$("#first").addEventListener("click", () => turn(null));
$("#next").addEventListener("click", (event) => turn(event.target.dataset.after));
// What passed while the page was hidden is requested at once.
document.addEventListener("visibilitychange", () => { known.signalsAsked &&= !document.hidden; });
watch();
