//! What the sections mean for rows: `global`, `defaults` with their inheritance, backends with their servers.

use std::time::Duration;

use super::Config;
use super::address::{Address, Port};
use super::line::Activity;
use super::section_kind::SectionKind;
use super::settings::{Optional, ServerSettings, Sourced};
use super::source::Span;
use crate::names::{BackendName, RowKey};

/// The most rows made from one configuration: `server-template s 1-2000000000` is a mistake and not meant.
pub const MAX_ROWS: usize = 200_000;

/// What `global` says, as far as rows, reloads and the admin socket are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// Every `stats socket` line.
    pub stats_sockets: Vec<StatsSocket>,
    /// `server-state-file`.
    pub server_state_file: Optional<String>,
    /// `server-state-base`.
    pub server_state_base: Optional<String>,
    /// `max-spread-checks`.
    pub max_spread_checks: Optional<Duration>,
    /// `spread-checks`, in percent.
    pub spread_checks: Optional<u32>,
    /// `node`.
    pub node: Optional<String>,
    /// Where the section's keyword stands, if there is one.
    pub span: Option<Span>,
}

/// One `stats socket` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsSocket {
    /// The address as written: a path, or `ipv4@…:port`, `fd@…`, ….
    pub address: String,
    /// The index of its line in [`Config::lines`].
    pub line: usize,
    /// Where the address stands.
    pub span: Span,
    /// `level`: `user`, `operator` (the default) or `admin`.
    pub level: Sourced<String>,
    /// `mode`, as written: octal.
    pub mode: Optional<String>,
    /// `user` or `uid`, as written.
    pub user: Optional<String>,
    /// `group` or `gid`, as written.
    pub group: Optional<String>,
}

/// Where a backend's servers take their state from at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateSource {
    /// `load-server-state-from-file global`: the file of the `global` section.
    Global,
    /// `… local`: a file of the backend's own.
    Local,
    /// `… none`, or nothing said.
    None,
}

/// What a `defaults` section or a proxy sets beyond its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// `mode`.
    pub mode: Optional<String>,
    /// `balance` with its arguments; `roundrobin` when not given.
    pub balance: Optional<Vec<String>>,
    /// `hash-type` with its arguments.
    pub hash_type: Optional<Vec<String>>,
    /// `timeout check`.
    pub timeout_check: Optional<Duration>,
    /// `load-server-state-from-file`.
    pub state_source: Sourced<StateSource>,
    /// `server-state-file-name`; none when not given or `use-backend-name`.
    pub state_file_name: Optional<String>,
    /// `disabled`.
    pub disabled: Sourced<bool>,
    /// What `default-server` set so far.
    pub default_server: ServerSettings,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            mode: None,
            balance: None,
            hash_type: None,
            timeout_check: None,
            state_source: Sourced {
                value: StateSource::None,
                from: None,
            },
            state_file_name: None,
            disabled: Sourced {
                value: false,
                from: None,
            },
            default_server: ServerSettings::default(),
        }
    }
}

/// One `backend` or `listen` section with its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The name.
    pub name: BackendName,
    /// `backend` or `listen`.
    pub kind: SectionKind,
    /// The index of its first line in [`Config::lines`].
    pub line: usize,
    /// Where the name stands.
    pub span: Span,
    /// Whether HAProxy acts on it for certain.
    pub activity: Activity,
    /// What it sets, `defaults` included.
    pub settings: ProxySettings,
    /// Its server lines, in order.
    pub servers: Vec<ServerLine>,
}

impl Backend {
    /// The name of the backend's own state file: `server-state-file-name`, else the backend's name.
    pub fn local_state_file(&self) -> &str {
        self.settings
            .state_file_name
            .as_ref()
            .map_or(self.name.as_str(), |name| &name.value)
    }
}

/// One `server` or `server-template` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// The index of the line in [`Config::lines`].
    pub line: usize,
    /// Where the name or the prefix stands.
    pub span: Span,
    /// Where the address stands.
    pub address_span: Span,
    /// The server's name, or the template's prefix.
    pub name: String,
    /// For a template, the numbers of its servers.
    pub template: Option<std::ops::RangeInclusive<u32>>,
    /// The address.
    pub address: Address,
    /// The port.
    pub port: Port,
    /// What is set for it, `default-server` included.
    pub settings: ServerSettings,
    /// Whether HAProxy acts on it for certain.
    pub activity: Activity,
}

/// One row as this configuration alone makes it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The backend.
    pub backend: &'a Backend,
    /// The line that the row comes from.
    pub server: &'a ServerLine,
    /// The number, when the line is a template.
    pub number: Option<u32>,
}

impl ServerLine {
    /// The numbers of a template's servers; one nothing for a plain server.
    pub fn numbers(&self) -> impl Iterator<Item = Option<u32>> + use<> {
        let plain = self.template.is_none().then_some(None);
        plain
            .into_iter()
            .chain(self.template.clone().into_iter().flatten().map(Some))
    }

    /// The name of the server with this number.
    pub fn name_of(&self, number: Option<u32>) -> String {
        number.map_or_else(
            || self.name.clone(),
            |number| format!("{}{number}", self.name),
        )
    }
}

impl Row<'_> {
    /// The row's name.
    pub fn key(&self) -> Option<RowKey> {
        let server = self.server.name_of(self.number).parse().ok()?;
        Some(RowKey {
            backend: self.backend.name.clone(),
            server,
        })
    }
}

impl Backend {
    /// The rows, in HAProxy's order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.servers.iter().flat_map(move |server| {
            server.numbers().map(move |number| Row {
                backend: self,
                server,
                number,
            })
        })
    }
}

impl Config {
    /// All rows of all backends, in HAProxy's order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.backends.iter().flat_map(Backend::rows)
    }
}
