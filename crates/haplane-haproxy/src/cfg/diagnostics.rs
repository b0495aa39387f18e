//! What is wrong, or worth saying, about a configuration as it is read.

use super::source::Span;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing: it limits what we can say.
    Note,
    /// HAProxy may start, but not as it reads.
    Warning,
    /// HAProxy refuses to start.
    Error,
}

impl Severity {
    /// The word for people and machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One remark about one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub span: Span,
    /// What, in one sentence.
    pub message: String,
    /// The word in the place of a server line's keyword that is none we know.
    pub unknown_keyword: Option<String>,
}

/// How many remarks are kept: whoever has more has one problem, not a thousand.
const MOST: usize = 1000;

/// Remarks in the order of the files, bounded.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    pub(super) fn add(&mut self, severity: Severity, span: Span, message: impl Into<String>) {
        if self.list.len() < MOST {
            self.list.push(Diagnostic {
                severity,
                span,
                message: message.into(),
                unknown_keyword: None,
            });
        } else if let Some(last) = self.list.last_mut() {
            last.severity = Severity::Error;
            "there is more than fits into one report".clone_into(&mut last.message);
        }
    }

    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.add(Severity::Error, span, message);
    }

    pub(super) fn warning(&mut self, span: Span, message: impl Into<String>) {
        self.add(Severity::Warning, span, message);
    }

    pub(super) fn note(&mut self, span: Span, message: impl Into<String>) {
        self.add(Severity::Note, span, message);
    }

    /// A word on a server line that is no keyword we know.
    pub(super) fn unknown_keyword(&mut self, span: Span, keyword: &str) {
        let before = self.list.len();
        let message = format!("no server keyword that we know: `{keyword}`");
        self.warning(span, message);
        if let Some(added) = self.list.get_mut(before) {
            added.unknown_keyword = Some(keyword.to_owned());
        }
    }

    pub(super) fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }
}
