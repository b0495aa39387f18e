//! "Did you mean …?": the known names that are nearest to what was typed.

/// At most this many names are worth reading.
const SHOWN: usize = 3;

/// The known names nearest to `typed`, nearest first; none when nothing is near.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let limit = (typed.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (distance(&typed, &name.to_lowercase()), name))
        .filter(|&(distance, _)| distance <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

/// The same for names made of parts: where none is near, those that share at least two thirds of `typed` as
/// their beginning. `web/web-01` is the beginning of `web/web-01-us-east1-b`.
pub fn nearest_or_alike<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Vec<&'a str> {
    let near = nearest(typed, known.clone());
    if !near.is_empty() {
        return near;
    }
    let least = (typed.chars().count() * 2).div_ceil(3).max(3);
    let mut alike: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (common_beginning(typed, name), name))
        .filter(|&(common, _)| common >= least)
        .collect();
    alike.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    alike.dedup();
    alike
        .into_iter()
        .take(SHOWN)
        .map(|(_, name)| name)
        .collect()
}

fn common_beginning(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    same.count()
}

/// How many slips lie between two words: characters inserted, removed or changed, or two neighbours swapped
/// (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for (i, a) in from.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        let mut left_letter = None;
        for (j, &b) in to.iter().enumerate() {
            let at =
                |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX - 1);
            let mut least = (at(&row, j) + usize::from(a != b))
                .min(at(&row, j + 1) + 1)
                .min(at(&next, j) + 1);
            if last == Some(b) && left_letter == Some(a) {
                least = least.min(at(&before, j.saturating_sub(1)) + 1);
            }
            next.push(least);
            left_letter = Some(b);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(a);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_leads_to_whole_names() {
        let rows = ["web/web-01-us-east1-b", "web/web-02-us-east1-c", "api/a"];
        assert_eq!(nearest_or_alike("web/web-01", rows), [rows[0], rows[1]]);
        assert_eq!(nearest_or_alike("web/web-1", rows), [rows[0], rows[1]]);
        assert_eq!(nearest_or_alike("api/b", rows), ["api/a"]);
        assert!(nearest_or_alike("we", rows).is_empty());
    }

    #[test]
    fn near_names_come_first() {
        let known = [
            "listen",
            "allow_remote",
            "sync_timeout",
            "weights",
            "absent",
        ];
        assert_eq!(nearest("lisen", known), ["listen"]);
        assert_eq!(nearest("sync-timeout", known), ["sync_timeout"]);
        assert_eq!(nearest("Weight", known), ["weights"]);
        assert!(nearest("zzz", known).is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        // Two letters that changed places are one slip.
        assert_eq!(distance("stroe", "store"), 1);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(nearest("stroe", ["store", "stone"]), ["store"]);
    }
}
