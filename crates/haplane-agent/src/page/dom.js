// What both pages share. Everything from outside becomes text, never markup.

export const at = (id) => document.getElementById(id);
export const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
export const { compare } = new Intl.Collator("en", { numeric: true });

/** Makes an element. Strings among the children become text. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Writes text, and leaves the document alone when it already says so. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Gives a parent exactly these children in this order, moving as few as possible. */
export function arrange(parent, children) {
  const cursor = document.activeElement;
  let place = parent.firstChild;
  for (const child of children) {
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
  // What is moved loses the focus, and whoever works by keyboard the place.
  if (cursor !== document.activeElement && parent.contains(cursor)) cursor.focus({ preventScroll: true });
}

/** A list of names and values: [["store", "consul"], …]. */
export function facts(list, pairs) {
  const kept = new Map([...list.children].map((child) => [child.dataset.name, child]));
  arrange(list, pairs.map(([name, value, kind]) => {
    const made = kept.get(name) ??
      element("div", {}, element("dt", {}, name), element("dd"));
    made.dataset.name = name;
    write(made.lastChild, value);
    made.lastChild.className = kind ?? "";
    return made;
  }));
}

/** The word beside the title, for whoever looks for one second only. */
export function word(text, kind) {
  write(at("word"), text);
  at("word").className = `word ${kind}`;
}

/** Milliseconds as people say them: 0.4 s, 12 s, 3 min, 5 h, 2 d. */
export function span(milliseconds) {
  if (milliseconds == null) return "never";
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A moment on the reader's own clock: 2026-11-29 21:42:13. */
export function moment(text) {
  const time = new Date(text);
  const two = (n) => String(n).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ` +
    `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** Reads a JSON document of this same server. */
export async function read(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw new Error(`${path} says ${answer.status}`);
  return answer.json();
}

/**
 * Calls `once` now and then `every` milliseconds after each end, while the page is looked at. What
 * takes long (thousands of rows over a thin line) is called less often: a fifth of the time, no more.
 */
export function live(every, once) {
  let waiting;
  const turn = async () => {
    clearTimeout(waiting);
    const start = performance.now();
    await once();
    const pause = Math.max(every, 4 * (performance.now() - start));
    if (!document.hidden) waiting = setTimeout(turn, pause);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  return turn();
}

/** Says that what is shown is old, and why; with nothing, that it is not. */
export function away(text) {
  document.body.classList.toggle("stale-data", Boolean(text));
  at("away").hidden = !text;
  write(at("away"), text ?? "");
}

// --- hands ------------------------------------------------------------------------------

/**
 * Follows the controls, the address (so that what is looked at can be passed on) and the keyboard:
 * `wish` has what is wanted, `changed` shows it.
 */
export function wishes(wish, changed) {
  const usual = { ...wish };
  const radios = [...document.getElementsByName("show")];
  const show = () => {
    at("filter").value = wish.q;
    for (const radio of radios) radio.checked = radio.value === wish.show;
    if (at("sort")) at("sort").value = wish.sort;
    changed();
  };
  const set = (name, value) => {
    wish[name] = value;
    const given = Object.entries(wish).filter(([one, what]) => what !== usual[one]);
    history.replaceState(null, "", given.length ? `#${new URLSearchParams(given)}` : location.pathname);
    show();
  };
  const recall = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(wish)) wish[name] = given.get(name) ?? usual[name];
    if (!radios.some((radio) => radio.value === wish.show)) wish.show = usual.show;
    show();
  };
  at("filter").addEventListener("input", (event) => set("q", event.target.value));
  at("sort")?.addEventListener("change", (event) => set("sort", event.target.value));
  for (const radio of radios) radio.addEventListener("change", () => set("show", radio.value));
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", recall);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      at("filter").blur(); // a row keeps the focus, so that nobody begins again at the top
      set("q", "");
    } else if (event.target.matches("input[type=search], select")) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      at("filter").focus();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j");
    } else if (event.key === "p") {
      set("show", wish.show === "problems" ? usual.show : "problems");
    }
  });
  recall();
}

/** Puts the cursor on the next or previous row, or backend that is folded. */
function step(forward) {
  const here = document.activeElement;
  const buttons = [...document.querySelectorAll("main table:not([hidden]) td button:not(.rest), main h2 button[aria-expanded=false]")];
  const lies = (way) => (button) => here.compareDocumentPosition(button) & way;
  const next = forward
    ? buttons.find(lies(Node.DOCUMENT_POSITION_FOLLOWING))
    : buttons.findLast(lies(Node.DOCUMENT_POSITION_PRECEDING));
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
