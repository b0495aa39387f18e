//! A unified diff of two files whose lines correspond one to one: an enrolment changes lines, it never adds one.

use std::fmt::Write as _;
use std::ops::Range;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// The diff; empty when the files are the same.
pub(super) fn unified(name: &str, before: &[u8], after: &[u8]) -> String {
    let before: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
    let after: Vec<&[u8]> = after.split_inclusive(|byte| *byte == b'\n').collect();
    let changed: Vec<usize> = before
        .iter()
        .zip(&after)
        .enumerate()
        .filter(|(_, (old, new))| old != new)
        .map(|(at, _)| at)
        .collect();
    let mut text = String::new();
    if changed.is_empty() {
        return text;
    }
    // Writing to a String cannot fail, here and below.
    let _ = write!(text, "--- {name}\n+++ {name}\n");
    for hunk in hunks(&changed, before.len()) {
        let length = hunk.len();
        let _ = writeln!(
            text,
            "@@ -{start},{length} +{start},{length} @@",
            start = hunk.start + 1
        );
        write_hunk(&mut text, hunk, &changed, &before, &after);
    }
    text
}

/// Changes closer than two contexts share a hunk.
fn hunks(changed: &[usize], lines: usize) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for at in changed {
        let around = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(lines);
        match hunks.last_mut() {
            Some(last) if around.start <= last.end => last.end = around.end,
            _ => hunks.push(around),
        }
    }
    hunks
}

/// Runs of changed lines: all old ones first, then all new ones.
fn write_hunk(
    text: &mut String,
    hunk: Range<usize>,
    changed: &[usize],
    before: &[&[u8]],
    after: &[&[u8]],
) {
    let is_changed = |at: &usize| changed.binary_search(at).is_ok();
    let mut at = hunk.start;
    while at < hunk.end {
        let end = (at..hunk.end)
            .find(|line| is_changed(line) != is_changed(&at))
            .unwrap_or(hunk.end);
        if is_changed(&at) {
            before
                .get(at..end)
                .unwrap_or_default()
                .iter()
                .for_each(|line| write_line(text, '-', line));
            after
                .get(at..end)
                .unwrap_or_default()
                .iter()
                .for_each(|line| write_line(text, '+', line));
        } else {
            before
                .get(at..end)
                .unwrap_or_default()
                .iter()
                .for_each(|line| write_line(text, ' ', line));
        }
        at = end;
    }
}

fn write_line(text: &mut String, mark: char, line: &[u8]) {
    text.push(mark);
    text.push_str(&String::from_utf8_lossy(line));
    if !line.ends_with(b"\n") {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn hunks_with_context() {
        let lines: Vec<String> = (1..=20).map(|line| format!("l{line}\n")).collect();
        let before = lines.concat();
        let after = before
            .replace("l2\n", "L2\n")
            .replace("l3\n", "L3\n")
            .replace("l15\n", "L15\n");
        let want = "--- f\n+++ f\n@@ -1,6 +1,6 @@\n l1\n-l2\n-l3\n+L2\n+L3\n l4\n l5\n l6\n\
                    @@ -12,7 +12,7 @@\n l12\n l13\n l14\n-l15\n+L15\n l16\n l17\n l18\n";
        assert_eq!(unified("f", before.as_bytes(), after.as_bytes()), want);
        assert_eq!(unified("f", b"a\n", b"a\n"), "");
        assert!(
            unified("f", b"a", b"b")
                .contains("-a\n\\ No newline at end of file\n+b\n\\ No newline")
        );
    }
}
