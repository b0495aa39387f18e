//! The older text format, for readers that do not ask for OpenMetrics: `promtool check metrics`, a
//! person with curl, agents of other monitoring systems.
//!
//! The samples are the same in both. The older format has no type `info`, no units and no end mark, and
//! names a counter as its samples are named.

use std::fmt::Write as _;

/// This page of OpenMetrics in the older format.
pub(super) fn from_openmetrics(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            // Writing to a String cannot fail.
            let _ = writeln!(plain, "{line}");
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), text) => help = Some((name, text.unwrap_or_default())),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(plain, "# HELP {name}{suffix} {text}");
                }
                let _ = writeln!(plain, "# TYPE {name}{suffix} {kind}");
            }
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_types_are_those_of_the_older_format() {
        let page = "# HELP haplane_build The version that runs.\n\
                    # TYPE haplane_build info\n\
                    haplane_build_info{version=\"1.2.3\"} 1\n\
                    # HELP haplane_answers Lines answered.\n\
                    # TYPE haplane_answers counter\n\
                    haplane_answers_total{answer=\"ready\"} 7\n\
                    # HELP haplane_answer_seconds Time to an answer.\n\
                    # TYPE haplane_answer_seconds histogram\n\
                    # UNIT haplane_answer_seconds seconds\n\
                    haplane_answer_seconds_sum 0.5\n\
                    haplane_answer_seconds_count 7\n\
                    haplane_answer_seconds_bucket{le=\"+Inf\"} 7\n\
                    # EOF\n";
        assert_eq!(
            from_openmetrics(page),
            "# HELP haplane_build_info The version that runs.\n\
             # TYPE haplane_build_info gauge\n\
             haplane_build_info{version=\"1.2.3\"} 1\n\
             # HELP haplane_answers_total Lines answered.\n\
             # TYPE haplane_answers_total counter\n\
             haplane_answers_total{answer=\"ready\"} 7\n\
             # HELP haplane_answer_seconds Time to an answer.\n\
             # TYPE haplane_answer_seconds histogram\n\
             haplane_answer_seconds_sum 0.5\n\
             haplane_answer_seconds_count 7\n\
             haplane_answer_seconds_bucket{le=\"+Inf\"} 7\n"
        );
    }
}
