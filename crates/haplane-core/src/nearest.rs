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

/// Levenshtein distance: the least number of characters to insert, remove or change.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for ((&b, &diagonal), &above) in to.iter().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or(0);
            next.push(
                (diagonal + usize::from(a != b))
                    .min(above + 1)
                    .min(left + 1),
            );
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
