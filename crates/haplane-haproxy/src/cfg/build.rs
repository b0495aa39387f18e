//! From sections to the model: who inherits what, and what makes HAProxy refuse a server line.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::address;
use super::diagnostics::Diagnostics;
use super::line::{Activity, Line, Modifier};
use super::model::{
    Backend, Global, MAX_ROWS, ProxySettings, ServerLine, StateSource, StatsSocket,
};
use super::section_kind::SectionKind;
use super::sections::Section;
use super::settings::{ServerSettings, Sourced};
use super::source::Span;
use crate::duration;
use crate::names::{BackendName, ServerName};

/// Builds the model from the sections.
pub(super) fn build(
    lines: &[Line],
    sections: &[Section],
    diagnostics: &mut Diagnostics,
) -> (Global, Vec<Backend>) {
    let mut builder = Builder {
        lines,
        diagnostics,
        global: Global::default(),
        defaults: Vec::new(),
        backends: Vec::new(),
        rows: 0,
        seen: HashMap::new(),
    };
    for section in sections {
        match section.kind {
            SectionKind::Global => builder.global(section),
            SectionKind::Defaults => builder.defaults(section),
            SectionKind::Backend | SectionKind::Listen => builder.backend(section),
            SectionKind::Frontend => {
                builder.inherited(section);
            }
            _ => {}
        }
    }
    (builder.global, builder.backends)
}

struct Defaults {
    name: String,
    settings: ProxySettings,
}

struct Builder<'a> {
    lines: &'a [Line],
    diagnostics: &'a mut Diagnostics,
    global: Global,
    defaults: Vec<Defaults>,
    backends: Vec<Backend>,
    rows: usize,
    /// Backends by name, to find names given twice.
    seen: HashMap<String, Span>,
}

impl<'a> Builder<'a> {
    fn lines_of(&self, section: &'a Section) -> impl Iterator<Item = (usize, &'a Line)> + use<'a> {
        let lines = self.lines;
        section
            .lines
            .iter()
            .filter_map(move |index| lines.get(*index).map(|line| (*index, line)))
    }

    fn global(&mut self, section: &'a Section) {
        self.global.span.get_or_insert(section.span);
        for (index, line) in self.lines_of(section) {
            let text = || Some(Sourced::set(line.argument(1).to_owned(), line.span()));
            match line.keyword() {
                "stats" if line.argument(1) == "socket" && !line.argument(2).is_empty() => {
                    self.global.stats_sockets.push(stats_socket(index, line));
                }
                "server-state-file" => self.global.server_state_file = text(),
                "server-state-base" => self.global.server_state_base = text(),
                "node" => self.global.node = text(),
                "max-spread-checks" => {
                    let duration = duration::parse_millis(line.argument(1)).ok();
                    self.global.max_spread_checks =
                        duration.map(|value| Sourced::set(value, line.span()));
                }
                "spread-checks" => {
                    let percent = line.argument(1).parse().ok();
                    self.global.spread_checks =
                        percent.map(|value| Sourced::set(value, line.span()));
                }
                _ => {}
            }
        }
    }

    /// What a section starts from: the `defaults` that it names with `from`, else the last one before it.
    fn inherited(&mut self, section: &Section) -> ProxySettings {
        let Some(line) = self.lines.get(section.first) else {
            return ProxySettings::default();
        };
        let from = if line.argument(1) == "from" && section.kind == SectionKind::Defaults {
            1
        } else {
            2
        };
        if line.argument(from) != "from" {
            let latest = self
                .defaults
                .last()
                .filter(|_| section.kind != SectionKind::Defaults);
            return latest
                .map_or_else(ProxySettings::default, |defaults| defaults.settings.clone());
        }
        let name = line.argument(from + 1);
        let named = self
            .defaults
            .iter()
            .rev()
            .find(|defaults| defaults.name == name);
        if named.is_none() {
            self.diagnostics.error(
                line.span_of(from + 1),
                format!("no `defaults {name}` stands before this"),
            );
        }
        named.map_or_else(ProxySettings::default, |defaults| defaults.settings.clone())
    }

    fn defaults(&mut self, section: &'a Section) {
        let mut settings = self.inherited(section);
        for (_, line) in self.lines_of(section) {
            self.proxy_line(&mut settings, line);
        }
        let name = if section.name == "from" {
            String::new()
        } else {
            section.name.clone()
        };
        self.defaults.push(Defaults { name, settings });
    }

    fn backend(&mut self, section: &'a Section) {
        let mut settings = self.inherited(section);
        let mut servers = Vec::new();
        for (index, line) in self.lines_of(section) {
            match line.keyword() {
                "server" | "server-template" => {
                    servers.extend(self.server(index, line, &settings.default_server));
                }
                _ => self.proxy_line(&mut settings, line),
            }
        }
        let name = match section.name.parse::<BackendName>() {
            Ok(name) => name,
            Err(error) => {
                self.diagnostics.error(section.span, error.to_string());
                return;
            }
        };
        if section.activity == Activity::Active
            && self
                .seen
                .insert(section.name.clone(), section.span)
                .is_some()
        {
            let message = format!("a backend called {name} stands before this one already");
            self.diagnostics.error(section.span, message);
        }
        self.distinct_names(&servers);
        self.backends.push(Backend {
            name,
            kind: section.kind,
            line: section.first,
            span: section.span,
            activity: section.activity,
            settings,
            servers,
        });
    }

    /// A keyword that `defaults` and backends share.
    fn proxy_line(&mut self, settings: &mut ProxySettings, line: &Line) {
        let words = || {
            Sourced::set(
                line.words
                    .iter()
                    .skip(1)
                    .map(|word| word.text.to_string())
                    .collect(),
                line.span(),
            )
        };
        let text = || Sourced::set(line.argument(1).to_owned(), line.span());
        match line.keyword() {
            "default-server" => settings.default_server.apply(line, 1, self.diagnostics),
            "mode" => settings.mode = Some(text()),
            "balance" => settings.balance = Some(words()),
            "hash-type" => settings.hash_type = Some(words()),
            "timeout" if line.argument(1) == "check" => {
                let timeout = duration::parse_millis(line.argument(2)).ok();
                settings.timeout_check = timeout.map(|value| Sourced::set(value, line.span()));
            }
            "load-server-state-from-file" => {
                let source = match line.argument(1) {
                    "global" => StateSource::Global,
                    "local" => StateSource::Local,
                    _ => StateSource::None,
                };
                settings.state_source = Sourced::set(source, line.span());
            }
            "server-state-file-name" => {
                let own_name = matches!(line.argument(1), "use-backend-name" | "");
                settings.state_file_name = (!own_name).then(text);
            }
            "disabled" if line.modifier == Modifier::None => {
                settings.disabled = Sourced::set(true, line.span());
            }
            "enabled" if line.modifier == Modifier::None => {
                settings.disabled = Sourced::set(false, line.span());
            }
            _ => {}
        }
    }

    fn server(
        &mut self,
        index: usize,
        line: &Line,
        defaults: &ServerSettings,
    ) -> Option<ServerLine> {
        let is_template = line.keyword() == "server-template";
        let address_at = if is_template { 3 } else { 2 };
        if line.argument(address_at).is_empty() {
            let form = if is_template {
                "<prefix> <number or range> <address>"
            } else {
                "<name> <address>"
            };
            self.diagnostics
                .error(line.span(), format!("`{}` needs {form}", line.keyword()));
            return None;
        }
        if let Err(error) = line.argument(1).parse::<ServerName>() {
            self.diagnostics.error(line.span_of(1), error.to_string());
            return None;
        }
        let template = if is_template {
            Some(self.template_range(line)?)
        } else {
            None
        };
        self.make_room(template.as_ref(), line)?;
        let (address, port) = match address::parse(line.argument(address_at)) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.diagnostics
                    .error(line.span_of(address_at), error.to_string());
                return None;
            }
        };
        let mut settings = defaults.clone();
        settings.apply(line, address_at + 1, self.diagnostics);
        if settings.agent.enabled.value && settings.agent.port.is_none() {
            self.diagnostics.error(
                line.span(),
                "`agent-check` needs `agent-port` (or `port`): HAProxy refuses to start",
            );
        }
        Some(ServerLine {
            line: index,
            span: line.span_of(1),
            address_span: line.span_of(address_at),
            name: line.argument(1).to_owned(),
            template,
            address,
            port,
            settings,
            activity: line.activity,
        })
    }

    /// Counts the servers of a line, or says that there are too many.
    fn make_room(&mut self, template: Option<&RangeInclusive<u32>>, line: &Line) -> Option<()> {
        let count = template.map_or(1, |range| (range.end() - range.start()) as usize + 1);
        let rows = self.rows.saturating_add(count);
        if rows > MAX_ROWS {
            let message = format!("left out: more than {MAX_ROWS} servers");
            self.diagnostics.error(line.span(), message);
            return None;
        }
        self.rows = rows;
        Some(())
    }

    /// The numbers of a template's servers: `3` is 1 to 3, `2-4` is 2 to 4; whatever follows the digits of a
    /// number is ignored.
    fn template_range(&mut self, line: &Line) -> Option<RangeInclusive<u32>> {
        if line.argument(1).contains(':') {
            self.diagnostics
                .error(line.span_of(1), "the prefix of a template holds no `:`");
            return None;
        }
        let text = line.argument(2);
        let number = |text: &str| -> Option<u32> {
            let end = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            text.get(..end)?.parse().ok()
        };
        let range = match text.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(text).filter(|last| *last > 0).map(|last| (1, last)),
        };
        let range = range.filter(|(first, last)| first <= last);
        if range.is_none() {
            self.diagnostics.error(
                line.span_of(2),
                format!("{text:?} is no number of servers and no range like 1-5"),
            );
        }
        range.map(|(first, last)| first..=last)
    }

    /// Two servers of one name make HAProxy refuse the configuration.
    fn distinct_names(&mut self, servers: &[ServerLine]) {
        let mut names = HashSet::new();
        for server in servers
            .iter()
            .filter(|server| server.activity == Activity::Active)
        {
            let mut twice = false;
            for number in server.numbers() {
                twice |= !names.insert(server.name_of(number));
            }
            if twice {
                let message = "a server of this name stands before it in the same backend";
                self.diagnostics.error(server.span, message);
            }
        }
    }
}

fn stats_socket(index: usize, line: &Line) -> StatsSocket {
    let option = |names: &[&str]| {
        let at = (3..line.words.len())
            .rev()
            .find(|at| names.contains(&line.argument(*at)))?;
        let span = Span {
            end: line.span_of(at + 1).end,
            ..line.span_of(at)
        };
        Some(Sourced::set(line.argument(at + 1).to_owned(), span))
    };
    StatsSocket {
        address: line.argument(2).to_owned(),
        line: index,
        span: line.span_of(2),
        level: option(&["level"]).unwrap_or(Sourced {
            value: "operator".to_owned(),
            from: None,
        }),
        mode: option(&["mode"]),
        user: option(&["user", "uid"]),
        group: option(&["group", "gid"]),
    }
}
