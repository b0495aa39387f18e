//! Sections: which lines belong together.

use super::line::{Activity, Line};
use super::section_kind::SectionKind;
use super::source::Span;

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
