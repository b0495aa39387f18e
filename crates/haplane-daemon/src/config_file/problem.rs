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
            let line = match &problem.place {
                Place::Span(span) => Some(Line::of(text, span.start)),
                Place::File | Place::Outside(_) => None,
            };
            let hidden = line.filter(Line::assigns_a_secret);
            let title = match &problem.place {
                Place::Outside(origin) => format!("{origin}: {}", problem.message),
                Place::Span(_) if let Some(line) = &hidden => {
                    format!(
                        "{name}:{}: {} (the line holds a secret)",
                        line.number, problem.message
                    )
                }
                Place::Span(_) => problem.message.clone(),
                Place::File => format!("{name}: {}", problem.message),
            };
            let mut group = Group::with_title(Level::ERROR.primary_title(title));
            if let (Place::Span(span), None) = (&problem.place, &hidden) {
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

/// One line of the file.
struct Line<'t> {
    number: usize,
    text: &'t str,
}

impl<'t> Line<'t> {
    fn of(text: &'t str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let number = before.matches('\n').count();
        Self {
            number: number + 1,
            text: text.lines().nth(number).unwrap_or_default(),
        }
    }

    /// Whether the line sets something that must not be repeated in a log: `token = "…"` is no key of
    /// the file, but people write it.
    fn assigns_a_secret(&self) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let names = self.text.split('=').map(|before| {
            let before =
                before.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
            before
                .rsplit(|c: char| !is_word(c))
                .next()
                .unwrap_or_default()
        });
        let mut names = names.map(str::to_ascii_lowercase);
        names.any(|name| {
            let is_secret = ["token", "secret", "password", "passwd"]
                .iter()
                .any(|word| name.contains(word));
            is_secret && !name.ends_with("_file")
        })
    }
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
