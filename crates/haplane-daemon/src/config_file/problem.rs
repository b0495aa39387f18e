//! What is wrong in a configuration, and how it is shown.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// These bytes of the file.
    Span(Range<usize>),
    /// The file as a whole.
    File,
    /// Outside the file: a flag or a variable.
    Outside(String),
}

impl Place {
    /// Problems are shown in the order of the file, then the others.
    pub(super) fn order(&self) -> (usize, usize) {
        match self {
            Self::File => (0, 0),
            Self::Span(span) => (1, span.start),
            Self::Outside(_) => (2, 0),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Problem {
    /// A problem without advice.
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
            help: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

#[derive(Clone, Copy)]
pub(super) enum Style {
    Plain,
    Colour,
}

/// File, line, column, the line itself and a caret, for each problem.
pub(super) fn render(name: &str, text: &str, problems: &[Problem], style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Colour => Renderer::styled(),
    };
    let reports: Vec<String> = problems
        .iter()
        .map(|problem| {
            let title = match &problem.place {
                Place::Outside(origin) => format!("{origin}: {}", problem.message),
                Place::Span(_) => problem.message.clone(),
                Place::File => format!("{name}: {}", problem.message),
            };
            let mut group = Group::with_title(Level::ERROR.primary_title(title));
            if let Place::Span(span) = &problem.place {
                let annotation = AnnotationKind::Primary.span(caret(text, span));
                group = group.element(Snippet::source(text).path(name).annotation(annotation));
            }
            if let Some(help) = &problem.help {
                group = group.element(Level::HELP.message(help.as_str()));
            }
            renderer.render(&[group])
        })
        .collect();
    reports.join("\n\n")
}

/// A span that can be shown: on one line, within the text.
fn caret(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = span.start.min(text.len());
    let line_end = text
        .get(start..)
        .and_then(|rest| rest.find('\n'))
        .map_or(text.len(), |n| start + n);
    start..span.end.clamp(start, line_end.max(start))
}
