//! Sections: what begins where, and which lines belong to it.

use super::lines::{Activity, Line};
use super::source::Span;

macro_rules! sections {
    ($($keyword:literal => $variant:ident),* $(,)?) => {
        /// The kinds of sections, by their keywords (HAProxy 2.2 to 3.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is named as its keyword")]
        pub enum SectionKind {
            $($variant,)*
        }

        impl SectionKind {
            /// The kind that a keyword at the start of a line begins.
            pub fn from_keyword(keyword: &str) -> Option<Self> {
                match keyword {
                    $($keyword => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The keyword.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)*
                }
            }
        }
    };
}

sections! {
    "global" => Global,
    "defaults" => Defaults,
    "listen" => Listen,
    "frontend" => Frontend,
    "backend" => Backend,
    "peers" => Peers,
    "resolvers" => Resolvers,
    "mailers" => Mailers,
    "userlist" => Userlist,
    "program" => Program,
    "ring" => Ring,
    "cache" => Cache,
    "http-errors" => HttpErrors,
    "fcgi-app" => FcgiApp,
    "log-forward" => LogForward,
    "log-profile" => LogProfile,
    "namespace_list" => NamespaceList,
    "crt-store" => CrtStore,
    "traces" => Traces,
    "acme" => Acme,
}

impl SectionKind {
    /// Whether servers can stand in it as rows of a load balancer.
    pub const fn has_rows(self) -> bool {
        matches!(self, Self::Listen | Self::Backend)
    }
}

/// One section: its first line and the lines that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its kind.
    pub kind: SectionKind,
    /// Its name; empty when it has none.
    pub name: String,
    /// Where the name stands, or the keyword when there is none.
    pub span: Span,
    /// Whether HAProxy acts on its first line.
    pub activity: Activity,
    /// The index of its first line.
    pub first: usize,
    /// The indices of the lines in it that HAProxy acts on, or may.
    pub lines: Vec<usize>,
}

/// Groups lines into sections. A section does not reach beyond its file.
pub(super) fn group(lines: &[Line]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.activity == Activity::Inactive {
            continue;
        }
        if let Some(kind) = line.begins {
            let named = usize::from(!line.argument(1).is_empty());
            sections.push(Section {
                kind,
                name: line.argument(1).to_owned(),
                span: line.span_of(named),
                activity: line.activity,
                first: index,
                lines: Vec::new(),
            });
        } else if let Some(section) = sections.last_mut()
            && section.span.file == line.file
        {
            section.lines.push(index);
        }
    }
    sections
}
