// The node page: what this HAProxy was told, and what it does.
import { arrange, at, away, compare, element, facts, live, moment, plural, read, span, wishes, word, write } from "/dom.js";

const PROBLEMS = new Set(["diverged", "silent"]);
const RANK = { diverged: 0, silent: 1, pending: 2 };
/** Between two looks at the agent, in milliseconds: HAProxy's own usual check interval. */
const EVERY = 2000;
/** A store that was read this long ago (ms) is called stale; the watcher waits up to 30 s. */
const STALE = 60_000;
/** With more rows than this, a backend in which nothing is wrong is folded until somebody wants it. */
const MANY = 300;

let node, rows = [], state = { keys: {}, invalid: {} };
const folded = new Map(); // backend -> whether the reader folded it
const opened = new Set(); // ids of rows
const groups = new Map(); // backend -> Group
const views = new Map(); // id of a row -> RowView
/** What is looked at. */
const wish = { q: "", show: "all", sort: "problems" };

// --- deciding: no document here ---------------------------------------------------------

const isProblem = (row) => PROBLEMS.has(row.verdict);
/** HAProxy has it, and it never asked: no answer reaches it. */
const isUnasked = (row) => row.answer == null;
/** The asks of all free slots. Nothing is desired of them: they are answered maint, whatever the store says. */
const isFree = (row) => row.row === "@free";
const isOut = (row) => !isFree(row) && /^(up )?(drain|maint)/.test(row.answer ?? "");
/** A key whose time is over counts as absent. */
const holds = (key) => {
  const until = state.keys[key]?.split(" until=")[1];
  return key in state.keys && !(until && new Date(until) <= new Date());
};
/** The key that decides now: the answer may be older, and of another one. */
const deciding = (row) => row.keys.find(holds);
const desired = (row) => isUnasked(row) || isFree(row) ? "–" : state.keys[deciding(row)] ?? "ready";
const decider = (row) => isUnasked(row) ? "–" : isFree(row) ? "the slots are free" : deciding(row) ?? "no key";
const answered = (row) => {
  if (isUnasked(row) && row.enrolled === false) return "not enrolled";
  // Its agent check is answered: a slot, or an agent-send of another row.
  if (isUnasked(row) && row.verdict === "unobserved") return "asks by another name";
  if (isUnasked(row)) return "has not asked";
  return `${row.answer.trim() || "(no change)"}, ${span(row.asked_ms_ago)} ago`;
};
/** HAProxy's own words, which name the admin state themselves when it is not ready. */
const shown = ({ admin, status }) => status.toLowerCase().startsWith(admin) ? status : `${admin}, ${status}`;
const sessions = (row) =>
  `${row.observed?.sessions ?? "–"}${row.old_sessions ? ` + ${row.old_sessions} old` : ""}`;
const text = (row) =>
  `${row.row} ${row.keys.join(" ")} ${row.answer ?? answered(row)} ${row.decided_by ?? ""} ${row.verdict} ${row.observed?.admin ?? ""} ${row.observed?.status ?? ""}`.toLowerCase();

/** Trouble, then what is out of rotation, then the rest, free slots last. */
const rank = (row) => RANK[row.verdict] ?? (isOut(row) ? 3 : isFree(row) ? 5 : 4);
const ORDERS = {
  problems: (a, b) => rank(a) - rank(b),
  name: () => 0,
  asked: (a, b) => (b.asked_ms_ago ?? -1) - (a.asked_ms_ago ?? -1),
  weight: (a, b) => (a.observed?.weight ?? Infinity) - (b.observed?.weight ?? Infinity),
  sessions: (a, b) => (b.observed?.sessions ?? -1) - (a.observed?.sessions ?? -1),
};

function chosen() {
  const words = wish.q.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (wish.show === "problems" && !isProblem(row)) return false;
    if (wish.show === "out" && !isOut(row)) return false;
    const said = words.length ? text(row) : "";
    return words.every((word) => said.includes(word));
  });
}

/** [[backend, rows]], both in the wished order; names order what is otherwise equal. */
function grouped() {
  const order = ORDERS[wish.sort] ?? ORDERS.problems;
  const both = (a, b) => order(a, b) || compare(a.row, b.row);
  const byBackend = new Map();
  for (const row of chosen()) {
    const backend = row.row.split("/", 1)[0];
    if (!byBackend.has(backend)) byBackend.set(backend, []);
    byBackend.get(backend).push(row);
  }
  for (const members of byBackend.values()) members.sort(both);
  return [...byBackend].sort(([a, [first]], [b, [second]]) => order(first, second) || compare(a, b));
}

/** Among thousands, rows that nobody asked for and in which nothing is wrong only hide the others. */
const mayFold = () => rows.length > MANY && !wish.q.trim() && wish.show === "all" && ["problems", "name"].includes(wish.sort);
const isFolded = (backend, members) => folded.get(backend) ?? (mayFold() && !members.some((row) => rank(row) < 3));

// --- showing ---------------------------------------------------------------------------

class RowView {
  static columns = ["server", "desired", "decided by", "answered", "observed", "weight", "sessions", "verdict"];

  constructor(id) {
    this.id = id;
    this.button = element("button", { type: "button" });
    this.button.setAttribute("aria-expanded", "false");
    this.button.addEventListener("click", () => {
      if (!opened.delete(id)) opened.add(id);
      render();
    });
    this.cells = RowView.columns.map((label, index) => {
      const cell = element("td");
      if (index) cell.dataset.label = label;
      if (label === "weight" || label === "sessions") cell.className = "number";
      return cell;
    });
    this.cells[0].append(this.button);
    this.line = element("tr", {}, ...this.cells);
  }

  show(row) {
    const [, wanted, by, told, observed, weight, open, verdict] = this.cells;
    write(this.button, row.row.slice(row.row.indexOf("/") + 1));
    write(wanted, desired(row));
    wanted.className = /^(drain|maint)/.test(desired(row)) ? "out" : "";
    write(by, decider(row));
    by.className = deciding(row) ? "" : "quiet";
    write(told, answered(row));
    told.className = isUnasked(row) ? "quiet" : "";
    write(observed, row.observed ? shown(row.observed) : "–");
    write(weight, String(row.observed?.weight ?? "–"));
    write(open, sessions(row));
    write(verdict, row.verdict);
    verdict.className = `verdict ${row.verdict}`;
    this.line.className = row.verdict;
    const isOpen = opened.has(this.id);
    this.button.setAttribute("aria-expanded", String(isOpen));
    return isOpen ? [this.line, this.details(row)] : [this.line];
  }

  details(row) {
    this.list ??= element("dl");
    this.more ??= element("tr", { className: "more" },
      element("td", { colSpan: RowView.columns.length }, this.list));
    const seen = row.observed;
    facts(this.list, [
      ["why", row.why ?? meaning(row.verdict)],
      ["asks for", isUnasked(row) || isFree(row) ? "nothing" : row.keys.map((key) => `${key} = ${state.keys[key] ?? "no value"}`).join(", then ")],
      ["answer", isUnasked(row) ? answered(row) : `${row.answer.trim() || "an empty line, which changes nothing"} (from index ${row.index})`],
      ["last asked", row.last_asked ? `${moment(row.last_asked)}, ${row.asks} times in all` : "never by this name"],
      ["observed", seen ? `${shown(seen)}, weight ${seen.weight}${seen.throttle == null ? "" : `, slowstart at ${seen.throttle} %`}, ${sessions(row)} sessions, at ${moment(seen.at)}` : "nobody looks at it"],
      ["agent check", seen?.agent_status ?? "–"],
    ]);
    return this.more;
  }
}

function meaning(verdict) {
  return {
    converged: "HAProxy does what it was answered.",
    pending: "Answered, and not yet seen in HAProxy.",
    diverged: "HAProxy does otherwise than it was answered.",
    silent: "HAProxy has not asked for three of its intervals: no change reaches this row.",
    unobserved: "Answered; nobody looks at HAProxy itself here.",
  }[verdict] ?? "";
}

class Group {
  constructor(backend) {
    this.title = element("button", { type: "button" }, backend);
    this.title.addEventListener("click", () => {
      folded.set(backend, this.title.getAttribute("aria-expanded") === "true");
      render();
    });
    this.note = element("small");
    this.body = element("tbody");
    const heads = RowView.columns.map((label) =>
      element("th", { scope: "col", className: label === "weight" || label === "sessions" ? "number" : "" }, label));
    this.table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.body);
    this.section = element("section", { className: "group" },
      element("h2", {}, this.title, this.note), this.table);
  }

  show(backend, members) {
    const problems = members.filter(isProblem).length;
    const out = members.filter(isOut).length;
    write(this.note, [plural(members.length, "row"), problems && plural(problems, "problem"), out && `${out} out of rotation`].filter(Boolean).join(", "));
    this.note.className = problems ? "bad" : "";
    const open = !isFolded(backend, members);
    this.title.setAttribute("aria-expanded", String(open));
    this.table.hidden = !open;
    if (open) arrange(this.body, members.flatMap((row) => kept(views, row.id, RowView).show(row)));
    return this.section;
  }
}

function kept(all, name, Kind) {
  if (!all.has(name)) all.set(name, new Kind(name));
  return all.get(name);
}

function render() {
  if (!node) return;
  const visible = grouped();
  arrange(at("backends"), visible.map(([backend, members]) => kept(groups, backend, Group).show(backend, members)));
  const count = visible.reduce((sum, [, members]) => sum + members.length, 0);
  write(at("summary"), rows.length === count ? ""
    : `${count} of ${plural(rows.length, "row")}, in ${plural(visible.length, "backend")}`);
  write(at("count-all"), String(rows.length));
  write(at("count-problems"), String(rows.filter(isProblem).length));
  write(at("count-out"), String(rows.filter(isOut).length));
}

/** The whole page in one sentence. */
function headline() {
  const number = (which) => rows.filter(which).length;
  const problems = number(isProblem), pending = number((row) => row.verdict === "pending");
  const unobserved = number((row) => row.verdict === "unobserved" && !isFree(row) && !isUnasked(row));
  const all = plural(rows.length, "row");
  if (!rows.length) return "No row has asked yet. A row asks when its server line in haproxy.cfg has agent-check: see haplane enroll.";
  if (problems) return `${problems} of ${all} in trouble: ${["diverged", "silent"].map((one) => [number((row) => row.verdict === one), one]).filter(([n]) => n).map((pair) => pair.join(" ")).join(", ")}`;
  if (pending) return `${pending} of ${all} not there yet`;
  if (unobserved) return `${all}: ${unobserved} told, and nobody looks whether HAProxy does it`;
  return `${all}, all as desired`;
}

function renderNode() {
  const { store, haproxy = [], counts } = node;
  document.title = `${node.node} · haplane`;
  write(at("node"), node.node);
  write(at("version"), `haplane ${node.version}, since ${moment(node.started_at)}.`);
  write(at("headline"), headline());
  at("headline").className = rows.some(isProblem) ? "failed" : "";
  const guard = store.guard;
  at("guard").hidden = !guard;
  if (guard) write(at("guard"), `What the store says is not believed (${guard.reason}) since ${moment(guard.since)}. ${guard.detail} The last trusted state stays in force.`);
  const stale = store.age_ms == null || store.age_ms > STALE;
  if (guard) word("guarded", "bad");
  else if (stale) word("stale", "wait");
  else if (rows.some(isProblem) || haproxy.some((one) => one.error)) word("in trouble", "bad");
  else word("fresh", "good");
  facts(at("facts"), [
    ["store", `${store.kind} ${store.address}`],
    ["index", String(store.index ?? "none yet")],
    ["last good contact", store.age_ms == null ? "never" : `${span(store.age_ms)} ago`, stale ? "failed" : ""],
    ...(store.error ? [["store trouble", store.error, "failed"]] : []),
    ...(node.rival ? [["registration", node.rival, "failed"]] : []),
    ["keys", `${counts.keys}${counts.invalid ? `, ${counts.invalid} invalid` : ""}`, counts.invalid ? "failed" : ""],
    ...haproxy.map((one) => [`HAProxy ${one.socket}`,
      one.error ?? `${one.version}, process ${one.pid}, up ${span(one.uptime_s * 1000)}`, one.error ? "failed" : ""]),
    ...(haproxy.length ? [] : [["HAProxy", "no socket is configured, so rows are not observed"]]),
  ]);
}

function renderKeys() {
  const valid = Object.entries(state.keys).map(([key, value]) => [key, value, ""]);
  const invalid = Object.entries(state.invalid).map(([key, value]) => [key, `${JSON.stringify(value)} is no value and counts as absent`, "failed"]);
  write(at("count-keys"), `${valid.length}${invalid.length ? `, ${invalid.length} invalid` : ""}`);
  arrange(at("keys"), [...invalid, ...valid].map(([key, value, kind]) =>
    element("tr", {}, element("td", {}, element("code", {}, key)), element("td", { className: kind }, value))));
}

/** A row can ask by several lines (while HAProxy reloads, say): each gets its own id. */
function identify(list) {
  const seen = new Map();
  for (const row of list) {
    const name = row.keys.join(" ") || row.row;
    const before = seen.get(name) ?? 0;
    seen.set(name, before + 1);
    row.id = `${name} ${before}`;
  }
  return list;
}

function forget() {
  const names = new Set(rows.map((row) => row.id));
  for (const name of views.keys()) if (!names.has(name)) views.delete(name);
}

async function look() {
  try {
    const [newNode, newRows, newState] = await Promise.all([read("/v1/node"), read("/v1/rows"), read("/v1/state")]);
    const keysChanged = JSON.stringify(newState) !== JSON.stringify(state) || !node;
    [node, rows, state] = [newNode, identify(newRows), newState];
    away(null);
    forget();
    renderNode();
    render();
    if (keysChanged) renderKeys();
    if (!performance.getEntriesByName("shown").length) performance.mark("shown");
  } catch (error) {
    away(`The agent does not answer (${error.message}). What is shown is what it last said.`);
  }
}

wishes(wish, render);
live(EVERY, look);
