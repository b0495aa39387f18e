// What both pages share. Everything from outside becomes text, never markup.

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

/** Milliseconds as people say them: 0.4 s, 12 s, 3 min, 5 h, 2 d. */
export function span(milliseconds) {
  if (milliseconds == null) return "never";
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A moment on the reader's own clock: 2026-11-29 21:42:13. */
export function moment(text) {
  const at = new Date(text);
  const two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Reads a JSON document of this same server. */
export async function read(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw new Error(`${path} says ${answer.status}`);
  return answer.json();
}

/** Calls `once` now and then `every` milliseconds after each end, while the page is looked at. */
export function live(every, once) {
  let waiting;
  const turn = async () => {
    clearTimeout(waiting);
    await once();
    if (!document.hidden) waiting = setTimeout(turn, every);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
  return turn();
}

/** Puts the cursor on the button of the next or previous row. */
export function step(forward) {
  const buttons = [...document.querySelectorAll("main td button")];
  const here = buttons.indexOf(document.activeElement);
  const next = buttons[here < 0 ? 0 : here + (forward ? 1 : -1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
