//! haproxy.cfg, read as HAProxy reads it.
//!
//! ```
//! use haplane_haproxy::cfg::{Config, Context, SourceFile};
//!
//! let text = "defaults\n  default-server weight 10\nbackend web\n  server a 192.0.2.1:80\n";
//! let config = Config::parse(vec![SourceFile::new("haproxy.cfg", text)], &Context::default());
//! let row = config.rows().next().unwrap();
//! assert_eq!(row.key().unwrap().to_string(), "web/a");
//! assert_eq!(row.server.settings.weight.value, 10);
//! let from = row.server.settings.weight.from.unwrap();
//! assert_eq!(config.locate(from).to_string(), "haproxy.cfg:2:18");
//! ```
//!
//! Files and the environment come in as values: nothing here reads the machine. A configuration is never refused as a
//! whole. What HAProxy would refuse is told in [`Config::diagnostics`], beside the best reading of the rest; what we cannot
//! know (a condition about the build, a keyword of a newer version) is told too, and never taken for an error.

mod address;
mod branches;
mod build;
mod conditions;
mod diagnostics;
mod environment;
mod keywords;
mod lexer;
mod limits;
mod line;
mod lines;
mod model;
mod section_kind;
mod sections;
mod settings;
mod source;

pub use address::{Address, AddressError, Port};
pub use diagnostics::{Diagnostic, Severity};
pub use environment::Environment;
pub use keywords::server_keywords;
pub use lexer::{MAX_WORDS, Word};
pub use line::{Activity, Line, Modifier};
pub use model::{
    Backend, Global, MAX_ROWS, ProxySettings, Row, ServerLine, StateSource, StatsSocket,
};
pub use section_kind::SectionKind;
pub use sections::Section;
pub use settings::{AgentSettings, CheckSettings, MAX_WEIGHT, Optional, ServerSettings, Sourced};
pub use source::{FileId, Location, SourceFile, Span, folder_order};

use crate::version::HaproxyVersion;

/// What is known beside the files.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The variables that HAProxy is started with.
    pub environment: Environment,
    /// The HAProxy that reads the files; without it, conditions about the version stay undecided.
    pub version: Option<HaproxyVersion>,
}

/// A configuration, read.
#[derive(Clone, Debug)]
pub struct Config {
    files: Vec<SourceFile>,
    lines: Vec<Line>,
    sections: Vec<Section>,
    global: Global,
    backends: Vec<Backend>,
    diagnostics: Vec<Diagnostic>,
}

impl Config {
    /// Reads files in the order in which HAProxy is given them.
    pub fn parse(files: Vec<SourceFile>, context: &Context) -> Self {
        let mut diagnostics = diagnostics::Diagnostics::default();
        let lines = lines::read(
            &files,
            &context.environment,
            context.version,
            &mut diagnostics,
        );
        let sections = sections::group(&lines);
        let (global, backends) = build::build(&lines, &sections, &mut diagnostics);
        let mut diagnostics = diagnostics.into_list();
        diagnostics.sort_by_key(|diagnostic| diagnostic.span);
        Self {
            files,
            lines,
            sections,
            global,
            backends,
            diagnostics,
        }
    }

    /// The files, byte for byte.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Every line with a word on it, those of branches not taken included.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Line `index`, as sections and servers refer to it.
    pub fn line(&self, index: usize) -> Option<&Line> {
        self.lines.get(index)
    }

    /// Every section that HAProxy acts on, or may.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// What the `global` sections say together.
    pub fn global(&self) -> &Global {
        &self.global
    }

    /// Every `backend` and `listen`, in order.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// What is wrong or worth saying, in the order of the files.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Whether HAProxy would refuse this configuration for a reason that we see.
    pub fn is_refused(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// A place, for people.
    pub fn locate(&self, span: Span) -> Location {
        match self.files.get(span.file.index()) {
            Some(file) => Location::new(file, span),
            None => Location {
                file: String::new(),
                line: span.line,
                column: 1,
                width: 1,
                text: String::new(),
            },
        }
    }

    /// The comment at the end of a line, its `#` included; empty when there is none.
    pub fn comment(&self, line: &Line) -> std::borrow::Cow<'_, str> {
        let raw = self
            .files
            .get(line.file.index())
            .map_or(&[][..], |file| file.line(line.number));
        let comment = line
            .comment
            .and_then(|at| raw.get(at as usize..))
            .unwrap_or_default();
        String::from_utf8_lossy(comment)
    }
}
