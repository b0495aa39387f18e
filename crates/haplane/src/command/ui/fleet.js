// The fleet page: is what we asked for what they do, and if not, who does not and why.
import { arrange, element, facts, live, moment, read, span, step, write } from "/dom.js";

const at = (id) => document.getElementById(id);
/** Between two looks at the fleet, in milliseconds. */
const EVERY = 3000;
/** Rows shown at once; the filter finds the others. */
const MOST = 1000;
const PROBLEMS = ["diverged", "silent"];
const VERDICTS = ["converged", "pending", "diverged", "silent", "unobserved"];
const { compare } = new Intl.Collator("en", { numeric: true });
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const ago = (time) => (time ? `${span(Date.now() - new Date(time))} ago` : "");

let fleet, log = [];
const wish = { q: "", show: "notable" };

const problems = (row) => PROBLEMS.reduce((sum, verdict) => sum + (row.verdicts[verdict] ?? 0), 0);
const isOut = (row) => row.desired === "drain" || row.desired === "maint";
const isNotable = (row) => problems(row) > 0 || row.desired !== "ready";
const verdictText = (verdicts) => VERDICTS.filter((one) => verdicts[one]).map((one) => `${verdicts[one]} ${one}`).join(", ");

function chosen() {
  const words = wish.q.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = { all: () => true, notable: isNotable, problems: (row) => problems(row) > 0 }[wish.show];
  return fleet.rows
    .filter((row) => (words.length ? true : wanted(row)))
    .filter((row) => {
      const said = `${row.row} ${row.desired} ${row.decided_by ?? ""} ${verdictText(row.verdicts)}`.toLowerCase();
      return words.every((word) => said.includes(word));
    })
    .sort((a, b) => problems(b) - problems(a) || isOut(b) - isOut(a) || compare(a.row, b.row));
}

// Lines are kept by name, so that what has not changed stays as it is, with the cursor on it.
const kept = new Map();
function line(table, name, cells, kind) {
  const id = `${table} ${name}`;
  if (!kept.has(id)) kept.set(id, element("tr", {}, ...cells.map(() => element("td"))));
  const made = kept.get(id);
  made.className = kind ?? "";
  cells.forEach(([text, className, label], index) => {
    const cell = made.children[index];
    write(cell, text);
    cell.className = className ?? "";
    if (label) cell.dataset.label = label;
  });
  return made;
}

function rowLine(row) {
  const id = `row ${row.row}`;
  if (!kept.has(id)) {
    const button = element("button", { type: "button" }, row.row);
    button.addEventListener("click", () => explain(row.row));
    kept.set(id, element("tr", {}, element("td", {}, button), element("td"), element("td"), element("td")));
  }
  const made = kept.get(id);
  const [, wanted, by, verdicts] = made.children;
  made.className = problems(row) ? "diverged" : "";
  write(wanted, row.desired);
  wanted.className = isOut(row) ? "out" : "";
  write(by, row.decided_by ?? "no key");
  by.className = row.decided_by ? "" : "quiet";
  write(verdicts, verdictText(row.verdicts));
  verdicts.className = `verdict ${problems(row) ? "diverged" : row.verdicts.pending ? "pending" : row.verdicts.converged ? "converged" : "unobserved"}`;
  return made;
}

function nodeLine(node) {
  const haproxy = node.haproxy.map((one) => one.error ?? `${one.version}, up ${span(one.uptime_s * 1000)}`).join("; ");
  const bad = PROBLEMS.some((verdict) => node.rows[verdict]);
  const guard = node.guard ? `guard: ${node.guard.reason ?? ""} ${node.guard.detail ?? ""}` : "";
  const behind = node.index != null && node.index < fleet.index ? "behind" : "";
  const ahead = node.clock_ahead_ms;
  const clock = ahead == null ? "" : `its clock is ${span(Math.abs(ahead))} ${ahead < 0 ? "behind" : "ahead"}`;
  const made = line("node", node.node, [
    ["", "", ""],
    [node.state, node.state === "fresh" ? "converged" : "failed", "state"],
    [String(node.index ?? "none"), "number", "index"],
    [verdictText(node.rows) || "no row", "", "rows"],
    [haproxy || "no socket", haproxy ? "" : "quiet", "HAProxy"],
    [[guard, node.error, behind, clock, ...node.haproxy.map((one) => one.error)].filter(Boolean).join("; "), "failed", "trouble"],
  ], node.state !== "fresh" || bad ? "diverged" : "");
  // A name, and a way to the node's own page where the browser can go there.
  if (!made.firstChild.firstChild) {
    const link = element("a", { href: nodePage(node.address), rel: "noreferrer" }, node.node);
    made.firstChild.append(link);
  }
  return made;
}

/** Only ever http, whatever the address says. */
function nodePage(address) {
  try {
    const url = new URL(address.includes("://") ? address : `http://${address}`);
    return url.protocol === "http:" ? url.href : "#";
  } catch {
    return "#";
  }
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

function render() {
  const { nodes, unreachable, rows, keys, unused_keys: unused } = fleet;
  const fresh = nodes.filter((node) => node.state === "fresh").length;
  const total = nodes.length + unreachable.length;
  const troubled = rows.filter((row) => problems(row) > 0).length;
  const forgotten = keys.filter((key) => key.forgotten).length;
  const invalid = keys.filter((key) => !key.valid).length;
  const well = fresh === total && troubled === 0 && invalid === 0;
  const rowsWord = nodes.length ? `${rows.length - troubled} of ${rows.length} rows as desired` : "no row is known";
  document.querySelector(".mark").className = `mark ${well ? "fresh" : "guarded"}`;
  write(at("headline"), `${fresh} of ${total} load balancers fresh, ${rowsWord}`);
  facts(at("facts"), [
    ["index", String(fleet.index)],
    ["load balancers", `${total}${unreachable.length ? `, ${unreachable.length} unreachable` : ""}`, unreachable.length ? "failed" : ""],
    ["rows", nodes.length ? `${rows.length}${troubled ? `, ${troubled} in trouble` : ""}` : "not known", troubled || !nodes.length ? "failed" : ""],
    ["not enrolled", nodes.length ? String(fleet.not_enrolled.length) : "not known"],
    ["keys", `${keys.length}${invalid ? `, ${invalid} invalid` : ""}${forgotten ? `, ${forgotten} forgotten` : ""}`, invalid || forgotten ? "failed" : ""],
    ...(fleet.dashboard ? [["dashboard", fleet.dashboard]] : []),
  ]);
  arrange(at("nodes"), [
    ...unreachable.map((one) => line("unreachable", one.address, [
      [one.node ?? one.address], ["unreachable", "failed", "state"], ["", "number"], [""], [""], [one.error, "failed", "trouble"],
    ], "diverged")),
    ...[...nodes].sort((a, b) => (a.state === "fresh") - (b.state === "fresh") || compare(a.node, b.node)).map(nodeLine),
  ]);
  const shown = chosen();
  arrange(at("rows"), shown.slice(0, MOST).map(rowLine));
  write(at("rows-note"), rowsNote(shown));
  at("rows-note").className = nodes.length ? "" : "bad";
  const known = (count) => nodes.length ? String(count) : "?";
  write(at("count-all"), known(rows.length));
  write(at("count-notable"), known(rows.filter(isNotable).length));
  write(at("count-problems"), known(troubled));
  arrange(at("keys"), keys.map((key) => line("key", key.key, [
    [key.key], [key.valid ? key.value : `${JSON.stringify(key.value)} is no value and counts as absent`, key.valid ? "" : "failed", "desired"],
    [key.by ?? "by hand", key.by ? "" : "quiet", "by"],
    [[key.reason, key.ticket && `(${key.ticket})`].filter(Boolean).join(" "), "", "reason"],
    [`${ago(key.since)}${key.forgotten ? ", forgotten?" : ""}`, key.forgotten ? "failed" : "", "since"],
    [[key.until && `${key.expired ? "ended" : "ends"} ${moment(key.until)}`, unused.includes(key.key) && "no row asks for it"].filter(Boolean).join("; "), "quiet", "ends"],
  ])));
  write(at("keys-note"), keys.length ? "" : "none: every row is ready");
  arrange(at("log"), log.map((entry) => line("log", entry.id, [
    [ago(entry.at), "", ""], [`${entry.by}@${entry.host}`, "", "by"],
    [entry.changes.map((one) => `${one.key}: ${one.before ?? "absent"} → ${one.after ?? "absent"}`).join(", "), "", "changed"],
    [[entry.reason, entry.ticket && `(${entry.ticket})`].filter(Boolean).join(" "), "", "reason"],
  ])));
  write(at("log-note"), log.length ? "" : "no command has written yet");
}

async function explain(row) {
  write(at("why-row"), row);
  write(at("why-word"), "Asking …");
  at("why-keys").replaceChildren();
  at("why-nodes").replaceChildren();
  if (!at("why").open) at("why").showModal();
  const answer = await fetch(`/v1/why?row=${encodeURIComponent(row)}`, { cache: "no-store" });
  const why = await answer.json();
  if (why.error) return write(at("why-word"), why.error.message);
  const meta = why.meta;
  write(at("why-word"), `It is to be ${why.desired}${meta ? `: ${meta.by ?? ""}${meta.reason ? `, ${meta.reason}` : ""}${meta.ticket ? ` (${meta.ticket})` : ""}` : ""}.`);
  const cells = (...texts) => element("tr", {}, ...texts.map(([text, kind]) => element("td", { className: kind ?? "" }, text)));
  arrange(at("why-keys"), why.keys.map((key) => cells(
    [key.key], [key.value == null ? "nothing" : key.valid ? key.value : `${JSON.stringify(key.value)} is no value`, key.decides ? "out" : "quiet"],
    [key.by ?? ""], [ago(key.since)])));
  arrange(at("why-nodes"), why.nodes.map((node) => cells(
    [node.node], [node.answer ? `${node.answer.trim()}, ${span(node.asked_ms_ago)} ago` : "never asked"],
    [node.observed ? `${node.observed.admin}, ${node.observed.status}, weight ${node.observed.weight}, ${node.observed.sessions} sessions` : "not observed"],
    [`${node.verdict}${node.why ? `: ${node.why}` : ""}`, `verdict ${node.verdict}`])));
}

async function look() {
  try {
    [fleet, { entries: log }] = await Promise.all([read("/v1/status"), read("/v1/log")]);
    document.body.classList.remove("stale-data");
    at("away").hidden = true;
    render();
    if (!performance.getEntriesByName("shown").length) performance.mark("shown");
  } catch (error) {
    document.body.classList.add("stale-data");
    at("away").hidden = false;
    write(at("away"), `The fleet cannot be asked (${error.message}). What is shown is what was last seen.`);
  }
}

at("filter").addEventListener("input", (event) => { wish.q = event.target.value; render(); });
for (const radio of document.getElementsByName("show")) {
  radio.addEventListener("change", () => { wish.show = radio.value; render(); });
}
at("controls").addEventListener("submit", (event) => event.preventDefault());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("why").open) return;
  if (event.key === "Escape") {
    at("filter").value = wish.q = "";
    at("filter").blur(); // a row keeps the focus, so that nobody begins again at the top
    render();
  } else if (event.target.matches("input[type=search]")) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    at("filter").focus();
  } else if (event.key === "j" || event.key === "k") {
    step(event.key === "j");
  }
});
live(EVERY, look);
