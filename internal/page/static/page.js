// The page gets a message a second from /stream, and draws it. Everything from the server is text for the
// page: it is set by textContent, never as HTML.
"use strict";

const seconds = 120; // of history
const history = []; // of {allowed, limited} per second, the latest last
let previous = null; // the message before
let shownKey = null; // the key that is looked up, as it was entered
let drawnKey = null; // the key of the result that is shown, in quotes
let drawnPolicies = ""; // the policies that are shown, as JSON
let longest = 0; // the longest time to recovery of the key that is looked up, in milliseconds
const byId = (id) => document.getElementById(id);

// The page may have been opened with a password in its address. Requests must not repeat that.
const url = (path) => location.origin + path;

function element(name, text, attributes = {}) {
  const e = document.createElement(name);
  e.textContent = text;
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  return e;
}

function drawing(name, attributes, text = "") {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.textContent = text;
  return e;
}

function show(id, text) {
  byId(id).textContent = text || "";
  byId(id).hidden = !text;
}

// Numbers.

const count = (n) => Math.round(n).toLocaleString("en");

function rate(n) {
  if (n >= 10 || n === 0) return count(n);
  return n.toFixed(1);
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

function duration(ms) {
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = ms / 1000;
  if (s < 60) return s.toFixed(1) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

const microseconds = (text) => {
  const n = Number(text);
  return n < 1000 ? n + " µs" : n / 1000 + " ms";
};

// fields turns "allowed=1,limited=2" into an object.
function fields(text) {
  const all = {};
  for (const part of (text || "").split(",")) {
    const at = part.indexOf("=");
    if (at > 0) all[part.slice(0, at)] = part.slice(at + 1);
  }
  return all;
}

// commandName turns cl_throttle, as INFO has it, into CL.THROTTLE.
const commandName = (name) => name.replace(/^cl[_.]/, "cl.").toUpperCase();

// growth returns by how much a counter has grown per second since the previous message.
function growth(m, read) {
  if (!previous || m.time <= previous.time) return 0;
  return Math.max(0, (read(m.fields) - read(previous.fields)) / ((m.time - previous.time) / 1000));
}

const number = (name) => (f) => Number(f[name] || 0);

// Decisions.

function decisionRates(m) {
  const rows = [];
  for (const name of Object.keys(m.fields).sort()) {
    if (!name.startsWith("cell_decisions_")) continue;
    const part = (of) => (f) => Number(fields(f[name])[of] || 0);
    rows.push({
      name: commandName(name.slice("cell_decisions_".length)),
      allowed: growth(m, part("allowed")), limited: growth(m, part("limited")),
    });
  }
  return rows;
}

function drawDecisions(m) {
  const rows = decisionRates(m);
  const total = { allowed: 0, limited: 0 };
  const lines = rows.map((row) => {
    total.allowed += row.allowed;
    total.limited += row.limited;
    const all = row.allowed + row.limited;
    const line = element("tr", "");
    line.append(element("th", row.name, { scope: "row" }), element("td", rate(row.allowed)), element("td", rate(row.limited)),
      element("td", all ? (100 * row.limited / all).toFixed(1) + " %" : "–"));
    return line;
  });
  byId("decisions").replaceChildren(...lines);
  byId("decisions-empty").hidden = rows.length > 0 || "INFO" in m.errors;
  show("info-error", m.errors["INFO"]);
  if (!previous) return;
  history.push(total);
  if (history.length > seconds) history.shift();
  drawChart();
}

// drawByPolicy shows what policies decide per second: policy_decisions_api:allowed=4,limited=2,shadow=0,banned=1,error=0,sampled=9,near=1.
function drawByPolicy(m) {
  const prefix = "policy_decisions_";
  const names = Object.keys(m.fields).filter((name) => name.startsWith(prefix)).sort();
  byId("by-policy").replaceChildren(...names.map((name) => {
    const row = element("tr", "");
    row.append(element("th", name.slice(prefix.length), { scope: "row" }));
    for (const result of ["allowed", "limited", "shadow", "banned", "error"]) {
      row.append(element("td", rate(growth(m, (f) => Number(fields(f[name])[result] || 0)))));
    }
    const { sampled, near } = fields(m.fields[name]);
    row.append(element("td", Number(sampled) ? Math.round(100 * near / sampled) + " % of " + sampled : "–"));
    return row;
  }));
  byId("by-policy-section").hidden = names.length === 0;
  if (names.length) followHistory(m, names.map((name) => name.slice(prefix.length)));
}

// niceMax returns the end of an axis: a power of ten, or a few times one, so that its half is a round number too.
function niceMax(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((end) => end >= n);
}

// drawAreas draws the parts of points above each other, and the latest point at the right of the room for all points.
// It returns the end of the axis.
function drawAreas(id, points, room, parts) {
  const width = 720, top = 1, bottom = 159;
  const sums = points.map((p) => parts.reduce((all, part) => [...all, all.at(-1) + p[part]], [0])); // below each part
  const most = niceMax(Math.max(10, ...sums.map((s) => s.at(-1))));
  const y = (n) => (bottom - (bottom - top) * n / most).toFixed(1);
  const x = (i) => (width * (room - points.length + i) / (room - 1)).toFixed(1);
  const line = (i) => sums.map((s, at) => x(at) + " " + y(s[i]));
  byId(id).replaceChildren(...[0, 0.5, 1].map((part) =>
    drawing("line", { class: "grid", x1: 0, x2: width, y1: y(part * most), y2: y(part * most) })),
  ...parts.map((part, i) => drawing("path", { class: part + "-area",
    d: points.length < 2 ? "" : "M" + line(i + 1).join("L") + "L" + line(i).reverse().join("L") + "Z" })));
  return most;
}

function drawChart() {
  byId("chart-max").textContent = count(drawAreas("chart", history, seconds, ["limited", "allowed"])) + " per second";
}

// The server.

function keysOf(m) {
  let keys = 0;
  for (const [name, value] of Object.entries(m.fields)) {
    if (/^db\d+$/.test(name)) keys += Number(fields(value).keys || 0);
  }
  return keys;
}

function tile(name, value, more) {
  const dd = element("dd", value);
  if (more) dd.append(element("small", more));
  return [element("dt", name), dd];
}

function drawServer(m) {
  const f = m.fields;
  const cpu = growth(m, (f) => Number(f.used_cpu_sys || 0) + Number(f.used_cpu_user || 0));
  const most = Number(f.maxmemory || 0);
  const wait = Number(f.blocked_clients || 0) + Number(f.store_steps_waiting || 0);
  const tiles = "INFO" in m.errors ? [] : [
    tile("calls", rate(growth(m, number("total_commands_processed"))) + " /s"),
    tile("errors", rate(growth(m, number("total_error_replies"))) + " /s"),
    tile("keys", count(keysOf(m)), bytes(f.used_memory_dataset || 0)),
    tile("memory", bytes(f.used_memory || 0), most ? Math.round(100 * f.used_memory / most) + " % of " + bytes(most) : "no bound"),
    tile("clients", count(f.connected_clients || 0), f.maxclients ? "of " + count(f.maxclients) : ""),
    tile("waiting", count(wait), "clients and calls"),
    tile("CPU", (100 * cpu).toFixed(1) + " %", "of one core"),
    tile("up", duration(1000 * (f.uptime_in_seconds || 0))),
  ];
  byId("tiles").replaceChildren(...tiles.map((parts) => {
    const box = document.createElement("div");
    box.append(...parts);
    return box;
  }));
  byId("version").textContent = f.cellserver_version || "";
  byId("user").textContent = "user " + m.user;
  show("warning", warningOf(f));
}

function warningOf(f) {
  if (f.loading === "1") return "Keys are being loaded: " + (f.loading_loaded_perc || "") + " %";
  if (f.store_failing === "1") return "The store does not answer. Calls are answered as --store-fails says: " + f.store_fails;
  if (Number(f.journal_failing_since || 0) > 0) return "The disk fails: a crash would lose changes. The log says why.";
  return "";
}

function drawLatency(m) {
  const lines = [];
  for (const name of Object.keys(m.fields).sort()) {
    const command = name.replace("latency_percentiles_usec_", "");
    if (command === name || !("cell_decisions_" + command.replace(".", "_") in m.fields)) continue;
    const f = fields(m.fields[name]);
    const line = element("tr", "");
    line.append(element("th", commandName(command), { scope: "row" }));
    for (const p of ["p50", "p99", "p99.9"]) line.append(element("td", f[p] ? microseconds(f[p]) : "–"));
    lines.push(line);
  }
  byId("latency").replaceChildren(...lines);
  byId("latency-empty").hidden = lines.length > 0 || "INFO" in m.errors;
}

// drawKeys keeps the buttons of keys that stay, so that the one that has the focus keeps it.
function drawKeys(id, keys, error) {
  const body = byId(id);
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = (keys || []).map((key) => {
    let row = rows.get(key.name);
    if (!row) {
      row = element("tr", "");
      row.dataset.key = key.name;
      const button = element("button", key.name, { type: "button", title: "look up" });
      button.addEventListener("click", () => choose(key.name));
      const cell = element("td", "");
      cell.append(button);
      row.append(cell, element("td", ""));
    }
    row.lastChild.textContent = (key.error ? "≈ " : "") + count(key.count);
    return row;
  });
  if (wanted.length !== body.rows.length || wanted.some((row, i) => body.rows[i] !== row)) {
    const focused = document.activeElement;
    body.replaceChildren(...wanted);
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }
  byId(id + "-empty").hidden = wanted.length > 0 || Boolean(error);
  show(id + "-error", error);
}

function drawPolicies(policies, error) {
  const text = JSON.stringify([policies, error]);
  if (text === drawnPolicies) return; // buttons keep the focus
  drawnPolicies = text;
  const rows = (policies || []).map((policy) => {
    const row = element("tr", "");
    const limits = element("td", "");
    limits.append(...policy.lines.map((line) => element("div", line)));
    const button = element("button", "show", { type: "button", "aria-label": "show banned subjects of " + policy.name });
    button.addEventListener("click", () => showBans(policy.name));
    const bans = element("td", "");
    bans.append(button);
    row.append(element("th", policy.name, { scope: "row" }), limits, bans);
    return row;
  });
  byId("policies").replaceChildren(...rows);
  byId("policies-section").hidden = rows.length === 0 && !error;
  show("policies-error", error);
}

// drawDomains shows the domains of Envoy's rate limits: limits=3,ok=10,over_limit=2,name="shop".
function drawDomains(fields) {
  const rows = [];
  for (let i = 0; fields["envoy_domain" + i]; i++) {
    const [, limits, allowed, over, name] = fields["envoy_domain" + i].match(/^limits=(\d+),ok=(\d+),over_limit=(\d+),name="(.*)"$/);
    const row = element("tr", "");
    row.append(element("th", name, { scope: "row" }), element("td", limits), element("td", allowed), element("td", over));
    rows.push(row);
  }
  byId("domains").replaceChildren(...rows);
  byId("domains-section").hidden = rows.length === 0;
}

async function showBans(policy) {
  show("bans-notice", "");
  show("bans-error", "");
  byId("bans-table").hidden = true;
  try {
    const bans = await post("/bans", policy);
    byId("bans").replaceChildren(...bans.map((ban) => {
      const row = element("tr", "");
      row.append(element("th", ban.subject, { scope: "row" }), element("td", duration(1000 * ban.seconds)), element("td", ban.reason));
      return row;
    }));
    byId("bans-title").textContent = "Subjects that " + policy + " bans; the longest bans first";
    byId("bans-table").hidden = bans.length === 0;
    show("bans-notice", bans.length ? "" : policy + " bans no subject.");
  } catch (failure) {
    show("bans-error", failure.message);
  }
}

function draw(m) {
  drawDecisions(m);
  drawByPolicy(m);
  drawServer(m);
  drawLatency(m);
  drawKeys("limited", m.limited, m.errors["CL.TOP"]);
  drawKeys("seen", m.seen, m.errors["CL.TOP"]);
  drawPolicies(m.policies, m.errors["CL.POLICY"]);
  drawDomains(m.fields);
  previous = m;
}

// Looking up a key.

async function post(path, key) {
  const response = await fetch(url(path), {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key }),
  });
  const result = await response.json();
  if (!response.ok) throw new Error(result.error);
  return result;
}

function choose(name) {
  byId("key").value = name;
  lookUp(name);
  byId("lookup").scrollIntoView({ block: "nearest" });
}

// lookUp shows a key. If it does so again, to show how it changes, it leaves what the page says about the key.
async function lookUp(key, again = false) {
  if (shownKey !== key) longest = 0;
  shownKey = key;
  if (!again) {
    show("lookup-notice", "");
    show("lookup-error", "");
  }
  try {
    const found = await post("/inspect", key);
    if (shownKey === key) drawKey(found);
  } catch (failure) {
    if (shownKey !== key) return;
    shownKey = null;
    byId("result").hidden = true;
    show("lookup-error", failure.message);
  }
}

const instants = new Set(["tat", "start", "oldest", "newest", "end"]);

function fieldText(name, value) {
  if (!instants.has(name) && !name.endsWith("_until")) return value;
  const at = new Date(Number(BigInt(value) / 1000000n));
  return at.toLocaleString();
}

// barsOf returns what is drawn of a key: a name, a part of the width from 0 to 1, and a text. A key does not know
// its limit, which each call names, so uses are drawn beside each other only.
function barsOf(found) {
  const bars = [];
  const state = found.state;
  if (found.expires_ms > 0) {
    longest = Math.max(longest, found.expires_ms);
    bars.push({ name: "recovers in", part: found.expires_ms / longest, text: duration(found.expires_ms) });
  }
  const uses = ["previous", "current"].filter((name) => name in state);
  const most = Math.max(1, ...uses.map((name) => Number(state[name])));
  for (const name of uses) bars.push({ name, part: Number(state[name]) / most, text: count(Number(state[name])), uses: true });
  const last = Math.max(1, ...(found.holders || []).map((h) => h.ends_ms));
  for (const h of (found.holders || []).slice(0, 10)) {
    bars.push({ name: h.name, part: h.ends_ms / last, text: count(h.permits) + " for " + duration(h.ends_ms), uses: true });
  }
  return bars;
}

function drawBar(bar) {
  const part = drawing("svg", { "aria-hidden": "true" });
  part.append(drawing("rect", { class: "track", width: "100%", height: 16, rx: 4 }),
    drawing("rect", { class: bar.uses ? "limited-bar" : "allowed-bar", width: (100 * bar.part).toFixed(1) + "%", height: 16, rx: 4 }));
  const picture = element("dd", "");
  picture.append(part);
  const row = element("div", "");
  row.append(element("dt", bar.name), picture, element("dd", bar.text));
  return row;
}

function drawKey(found) {
  const none = found.kind === "none" && !found.state.holds;
  drawnKey = none ? null : found.key;
  byId("result").hidden = none;
  show("lookup-notice", none ? "There is no key " + found.key + " now: its limit is untouched, or has fully recovered." : "");
  if (none) return;
  byId("result-key").textContent = found.key;
  byId("result-kind").textContent = found.kind;
  const bars = barsOf(found);
  byId("result-bars").replaceChildren(...bars.map(drawBar));
  let summary = "The key does not expire.";
  if (found.kind === "none") summary = "The limit has fully recovered. Only open holds are left.";
  else if (found.expires_ms > 0) {
    summary = "The key expires in " + duration(found.expires_ms) + ", when its limit has fully recovered.";
  }
  byId("result-summary").textContent = summary;
  byId("result-state").replaceChildren(...Object.entries(found.state).flatMap(([name, value]) =>
    [element("dt", name), element("dd", fieldText(name, value))]));
}

// explain shows what a call would be answered. The bars are the used part of each limit.
async function explain(call) {
  show("explain-error", "");
  byId("explanation").hidden = true;
  try {
    const found = await post("/explain", call);
    byId("explain-why").replaceChildren(...found.why.map((line) => element("li", line)));
    byId("explain-bars").replaceChildren(...(found.limits || []).map((limit) => drawBar({
      name: limit.name, part: Math.min(1, limit.used / Math.max(1, limit.size)), uses: true,
      text: count(limit.used) + " of " + count(limit.size) + (limit.full_ms > 0 ? ", all back in " + duration(limit.full_ms) : ""),
    })));
    byId("explanation").hidden = false;
  } catch (failure) {
    show("explain-error", failure.message);
  }
}

async function deleteKey() {
  byId("confirm").close();
  try {
    const result = await post("/delete", byId("confirm-key").textContent);
    shownKey = null;
    byId("result").hidden = true;
    show("lookup-error", "");
    show("lookup-notice", result.deleted ? "The key was deleted." : "The key had gone already.");
  } catch (failure) {
    show("lookup-error", failure.message);
  }
}

// Connection.

function setStatus(text, live) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
  status.className = live ? "on" : "off";
}

function connect() {
  const stream = new EventSource(url("/stream"));
  let messages = 0;
  stream.onmessage = (event) => {
    setStatus("live", true);
    draw(JSON.parse(event.data));
    if (shownKey && messages++ % 2 && !document.hidden && !byId("confirm").open) lookUp(shownKey, true);
  };
  stream.onerror = () => {
    previous = null;
    if (stream.readyState !== EventSource.CLOSED) {
      setStatus("connecting", false);
      return;
    }
    setStatus("refused: log in again, or too many viewers", false);
    setTimeout(connect, 10000);
  };
}

byId("lookup-form").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp(byId("key").value);
});
byId("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  explain(byId("call").value);
});
byId("delete").addEventListener("click", () => {
  byId("confirm-key").textContent = drawnKey;
  byId("confirm").showModal();
});
byId("cancel").addEventListener("click", () => byId("confirm").close());
byId("confirm-delete").addEventListener("click", deleteKey);
drawChart();
connect();
