// The fleet page: is what we asked for what they do, and if not, who does not and why.
import { arrange, at, away, compare, element, facts, live, moment, plural, read, span, wishes, word, write } from "/dom.js";

/** Between two looks at the fleet, in milliseconds. */
const EVERY = 3000;
/** Rows shown at once; the filter finds the others. */
const MOST = 1000;
/** Lines of one table that are shown unasked; those in trouble come first, and always. */
const SHORT = { node: 12, row: 25, key: 12, log: 10 };
/** Keys that the log names of one change. */
const NAMED = 3;
const PROBLEMS = ["diverged", "silent"];
const VERDICTS = ["diverged", "silent", "pending", "converged", "unobserved"];
const ago = (time) => (time ? `${span(Date.now() - new Date(time))} ago` : "");
const listed = (...parts) => parts.filter(Boolean).join("; ");

let fleet, log = [];
const wish = { q: "", show: "notable" };
const unfolded = new Set(); // tables that the reader wants whole
let asked = null; // the row that is explained

// --- deciding: no document here ---------------------------------------------------------

const problems = (row) => PROBLEMS.reduce((sum, verdict) => sum + (row.verdicts[verdict] ?? 0), 0);
const isOut = (row) => row.desired === "drain" || row.desired === "maint";
const isNotable = (row) => problems(row) > 0 || row.verdicts.pending > 0 || row.desired !== "ready";
const verdictText = (verdicts) => VERDICTS.filter((one) => verdicts[one]).map((one) => `${verdicts[one]} ${one}`).join(", ");
const isBehind = (node) => node.index != null && node.index < fleet.index;

/** How bad it stands with a load balancer: 3 not to be trusted, 2 in part, 1 on its way, 0 well. */
function badness(node) {
  if (node.state !== "fresh") return 3;
  const isPartly = node.haproxy.some((one) => one.error) || node.clock_ahead_ms != null || node.rival;
  if (isPartly || PROBLEMS.some((verdict) => node.rows[verdict])) return 2;
  return node.rows.pending || isBehind(node) || node.error ? 1 : 0;
}

/** How much a key wants to be looked at. */
const concern = (key) => (key.valid ? 0 : 2) + (key.forgotten ? 1 : 0);

function chosen() {
  const words = wish.q.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = { all: () => true, notable: isNotable, problems: (row) => problems(row) > 0 }[wish.show];
  return fleet.rows
    .filter((row) => (words.length ? true : wanted(row)))
    .filter((row) => {
      const said = `${row.row} ${row.desired} ${row.decided_by ?? ""} ${verdictText(row.verdicts)}`.toLowerCase();
      return words.every((one) => said.includes(one));
    })
    .sort((a, b) => problems(b) - problems(a) || (b.verdicts.pending ?? 0) - (a.verdicts.pending ?? 0) || isOut(b) - isOut(a) || compare(a.row, b.row));
}

/** What a command changed, alike changes together: "absent → drain: web/a, web/b and 31 more". */
function changes(entry) {
  const alike = new Map();
  for (const { key, before, after } of entry.changes) {
    const change = `${before ?? "absent"} → ${after ?? "absent"}`;
    alike.set(change, [...(alike.get(change) ?? []), key]);
  }
  return [...alike].map(([change, keys]) =>
    `${keys.slice(0, NAMED).join(", ")}${keys.length > NAMED ? ` and ${keys.length - NAMED} more` : ""}: ${change}`).join("; ");
}

/** What there is to say of the rows, above all when there are none to see. */
function rowsNote(shown) {
  const { nodes, unreachable, rows } = fleet;
  const missing = unreachable.length ? `; ${plural(unreachable.length, "load balancer")} did not answer, and may have more` : "";
  if (!nodes.length) return "not known: no load balancer answers";
  if (!rows.length) return `none: no HAProxy has asked yet, see haplane enroll${missing}`;
  if (shown.length > MOST) return `the first ${MOST} of ${shown.length}${missing}`;
  if (shown.length) return `${plural(shown.length, "row")}${missing}`;
  const why = wish.q.trim() ? `none of ${rows.length} fits ${JSON.stringify(wish.q.trim())}`
    : wish.show === "problems" ? `none of ${rows.length} is in trouble` : `all ${rows.length} are ready, as desired`;
  return `${why}${missing}`;
}

// --- showing ----------------------------------------------------------------------------

// Lines are kept by name, so that what has not changed stays as it is, with the cursor on it.
const kept = new Map();
function keep(id, make) {
  if (!kept.has(id)) kept.set(id, make());
  return kept.get(id);
}

/** Fills a line with [text, class, label] each; the label stands before the text on a phone. */
function fill(made, cells, kind = "") {
  made.className = kind;
  cells.forEach(([text, className, label], index) => {
    const cell = made.children[index];
    if (text !== null) write(cell, text);
    cell.className = className ?? "";
    if (label) cell.dataset.label = label;
  });
  return made;
}

const line = (id, cells, kind) =>
  fill(keep(id, () => element("tr", {}, ...cells.map(() => element("td")))), cells, kind);

/** The first lines of a table, and a button for the others. */
function shorten(table, lines, first = SHORT[table]) {
  const rest = lines.length - first;
  // Two lines are no shorter than a button.
  if (rest < 3) return lines;
  const last = keep(`rest ${table}`, () => {
    const button = element("button", { type: "button", className: "rest" });
    button.addEventListener("click", () => {
      if (!unfolded.delete(table)) unfolded.add(table);
      render();
    });
    return element("tr", {}, element("td", { colSpan: lines[0].children.length, className: "wide" }, button));
  });
  const isWhole = unfolded.has(table);
  write(last.querySelector("button"), isWhole ? "show fewer" : `show ${rest} more`);
  return [...(isWhole ? lines : lines.slice(0, first)), last];
}

function rowLine(row) {
  const made = keep(`row ${row.row}`, () => {
    const button = element("button", { type: "button" }, row.row);
    button.addEventListener("click", () => explain(row.row));
    return element("tr", {}, element("td", {}, button), element("td"), element("td"), element("td"));
  });
  const verdict = problems(row) ? "diverged" : row.verdicts.pending ? "pending" : row.verdicts.converged ? "converged" : "unobserved";
  return fill(made, [
    [null],
    [row.desired, isOut(row) ? "out" : "", "desired"],
    [row.decided_by ?? "no key", row.decided_by ? "" : "quiet", "by"],
    [verdictText(row.verdicts), `verdict wide ${verdict}`],
  ], problems(row) ? "diverged" : "");
}

function nodeLine(node) {
  const bad = badness(node);
  const haproxy = node.haproxy.filter((one) => !one.error).map((one) => `${one.version}, up ${span(one.uptime_s * 1000)}`).join("; ");
  const ahead = node.clock_ahead_ms;
  const clock = ahead != null && `its clock is ${span(Math.abs(ahead))} ${ahead < 0 ? "behind" : "ahead"}`;
  const guard = node.guard && `guard: ${listed(node.guard.reason, node.guard.detail)}`;
  // A name, and a way to the node's own page where the browser can go there.
  const made = keep(`node ${node.node}`, () => element("tr", {},
    element("td", {}, element("a", { rel: "noreferrer" }, node.node)), ...Array.from({ length: 5 }, () => element("td"))));
  made.querySelector("a").href = nodePage(node.address);
  return fill(made, [
    [null],
    [node.state, node.state === "fresh" ? "quiet" : "failed", "state"],
    [String(node.index ?? "none"), "number", "index"],
    [verdictText(node.rows) || "no row", PROBLEMS.some((verdict) => node.rows[verdict]) ? "failed" : "", "rows"],
    [haproxy || (node.haproxy.length ? "" : "no socket"), haproxy ? "" : "quiet", "HAProxy"],
    [listed(guard, node.error, node.rival, isBehind(node) && "behind", clock, ...node.haproxy.map((one) => one.error)), bad > 1 ? "failed wide" : "wide", "trouble"],
  ], bad > 1 ? "diverged" : "");
}

const unreachableLine = (one) => line(`unreachable ${one.address}`, [
  [one.node ?? one.address], ["unreachable", "failed", "state"], ["", "number"], [""], [""], [one.error, "failed wide", "trouble"],
], "diverged");

/** Only ever http, whatever the address says. */
function nodePage(address) {
  try {
    const url = new URL(address.includes("://") ? address : `http://${address}`);
    return url.protocol === "http:" ? url.href : "#";
  } catch {
    return "#";
  }
}

function renderNodes() {
  const { nodes, unreachable } = fleet;
  const sorted = [...nodes].sort((a, b) => badness(b) - badness(a) || compare(a.node, b.node));
  const troubled = unreachable.length + nodes.filter((node) => badness(node) > 1).length;
  write(at("nodes-note"), troubled ? `${troubled} of ${nodes.length + unreachable.length} in trouble` : `${nodes.length}, none in trouble`);
  at("nodes-note").className = troubled ? "bad" : "";
  arrange(at("nodes"), shorten("node", [...unreachable.map(unreachableLine), ...sorted.map(nodeLine)], troubled || SHORT.node));
}

function renderRows(troubled) {
  const { nodes, rows } = fleet;
  const shown = chosen();
  const lines = shown.slice(0, MOST).map(rowLine);
  arrange(at("rows"), wish.q.trim() ? lines : shorten("row", lines, Math.max(troubled, SHORT.row)));
  write(at("rows-note"), rowsNote(shown));
  at("rows-note").className = nodes.length ? "" : "bad";
  const known = (count) => nodes.length ? String(count) : "?";
  write(at("count-all"), known(rows.length));
  write(at("count-notable"), known(rows.filter(isNotable).length));
  write(at("count-problems"), known(troubled));
}

function keyLine(key) {
  return line(`key ${key.key}`, [
    [key.key], [key.valid ? key.value : `${JSON.stringify(key.value)} is no value and counts as absent`, key.valid ? "" : "failed", "desired"],
    [key.by ?? "by hand", key.by ? "" : "quiet", "by"],
    [[key.reason, key.ticket && `(${key.ticket})`].filter(Boolean).join(" "), "wide", "reason"],
    [`${ago(key.since)}${key.forgotten ? ", forgotten?" : ""}`, key.forgotten ? "failed" : "", "since"],
    [listed(key.until && `${key.expired ? "ended" : "ends"} ${moment(key.until)}`, fleet.unused_keys.includes(key.key) && "no row asks for it"), "quiet", "ends"],
  ]);
}

function renderKeys() {
  const keys = [...fleet.keys].sort((a, b) => concern(b) - concern(a) || compare(a.key, b.key));
  arrange(at("keys"), shorten("key", keys.map(keyLine), Math.max(keys.filter(concern).length, SHORT.key)));
  write(at("keys-note"), keys.length ? String(keys.length) : "none: every row is ready");
}

function renderLog() {
  arrange(at("log"), shorten("log", log.map((entry) => line(`log ${entry.id}`, [
    [ago(entry.at), "", ""], [`${entry.by}@${entry.host}`, "", "by"],
    [changes(entry), "wide", "changed"],
    [[entry.reason, entry.ticket && `(${entry.ticket})`].filter(Boolean).join(" "), "wide", "reason"],
  ]))));
  write(at("log-note"), log.length ? "" : "no command has written yet");
}

function render() {
  if (!fleet) return;
  const { nodes, unreachable, rows, keys } = fleet;
  const fresh = nodes.filter((node) => node.state === "fresh").length;
  const total = nodes.length + unreachable.length;
  const troubled = rows.filter((row) => problems(row) > 0).length;
  const pending = rows.filter((row) => !problems(row) && row.verdicts.pending).length;
  const forgotten = keys.filter((key) => key.forgotten).length;
  const invalid = keys.filter((key) => !key.valid).length;
  const well = fresh === total && !troubled && !invalid && nodes.every((node) => badness(node) < 2);
  word(well ? (forgotten ? "forgotten drain" : pending ? "on its way" : "well") : "in trouble", well ? (forgotten || pending ? "wait" : "good") : "bad");
  const rowsWord = nodes.length ? `${rows.length - troubled - pending} of ${rows.length} rows as desired` : "no row is known";
  write(at("headline"), `${fresh} of ${total} load balancers fresh, ${rowsWord}`);
  facts(at("facts"), [
    ["index", String(fleet.index)],
    ["load balancers", `${total}${unreachable.length ? `, ${unreachable.length} unreachable` : ""}`, unreachable.length ? "failed" : ""],
    ["rows", nodes.length ? `${rows.length}${troubled ? `, ${troubled} in trouble` : ""}` : "not known", troubled || !nodes.length ? "failed" : ""],
    ["not enrolled", nodes.length ? String(fleet.not_enrolled.length) : "not known"],
    ["keys", `${keys.length}${invalid ? `, ${invalid} invalid` : ""}${forgotten ? `, ${forgotten} forgotten` : ""}`, invalid || forgotten ? "failed" : ""],
    ...(fleet.dashboard ? [["dashboard", fleet.dashboard]] : []),
  ]);
  renderNodes();
  renderRows(troubled);
  renderKeys();
  renderLog();
}

// --- why --------------------------------------------------------------------------------

function explain(row) {
  asked = row;
  write(at("why-row"), row);
  write(at("why-word"), "Asking …");
  at("why-keys").replaceChildren();
  at("why-nodes").replaceChildren();
  at("why").showModal();
  lookWhy();
}

async function lookWhy() {
  const row = asked;
  let why;
  try {
    const answer = await fetch(`/v1/why?row=${encodeURIComponent(row)}`, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    why = await answer.json();
  } catch (error) {
    why = { error: { message: `This cannot be asked now (${error.message}).` } };
  }
  if (row !== asked) return; // another one was opened meanwhile, or none
  if (why.error) return write(at("why-word"), why.error.message);
  const { meta } = why;
  const who = meta && [meta.by && `by ${meta.by}${meta.reason ? ":" : ""}`, meta.reason, meta.ticket && `(${meta.ticket})`].filter(Boolean).join(" ");
  write(at("why-word"), `It is to be ${why.desired}${who ? `, ${who}` : ""}.`);
  const order = (node) => VERDICTS.indexOf(node.verdict);
  arrange(at("why-nodes"), [...why.nodes].sort((a, b) => order(a) - order(b) || compare(a.node, b.node)).map((node) => line(`why-node ${node.node}`, [
    [node.node], [node.answer ? `${node.answer.trim()}, ${span(node.asked_ms_ago)} ago` : "never asked", "", "answer"],
    [node.observed ? `${node.observed.admin}, ${node.observed.status}, weight ${node.observed.weight}, ${plural(node.observed.sessions, "session")}` : "not observed", "wide", "observed"],
    [listed(node.verdict, node.why), `verdict wide ${node.verdict}`],
  ], problems({ verdicts: { [node.verdict]: 1 } }) ? "diverged" : "")));
  arrange(at("why-keys"), why.keys.map((key) => line(`why-key ${key.key}`, [
    [key.key], [key.value == null ? "nothing" : key.valid ? key.value : `${JSON.stringify(key.value)} is no value`, key.decides ? "out" : "quiet", "value"],
    [key.by ?? "", "", "by"], [ago(key.since), "", "since"],
  ])));
}

at("why").addEventListener("close", () => { asked = null; });

// --- looking ----------------------------------------------------------------------------

async function look() {
  try {
    [fleet, { entries: log }] = await Promise.all([read("/v1/status"), read("/v1/log")]);
    away(null);
    render();
    if (asked !== null) await lookWhy();
    if (!performance.getEntriesByName("shown").length) performance.mark("shown");
  } catch (error) {
    away(`The fleet cannot be asked (${error.message}). What is shown is what was last seen.`);
  }
}

wishes(wish, render);
live(EVERY, look);
