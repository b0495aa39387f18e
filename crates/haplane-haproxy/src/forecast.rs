//! What a new process will have: this configuration together with these server-state files.
//!
//! The rules are HAProxy's own, measured on 2.6.12 and 2.8.25 (facts 6.2 and 6.3), which agree, and held to both by the
//! end-to-end tests. Files come in as values; names are not looked up.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::cfg::{Activity, Address, Config, Port, Row, ServerSettings, Span, StateSource};
use crate::names::{BackendName, RowKey};
use crate::server_state::{AdminBits, FileValues, OpState, StateFile};

/// The files that a configuration names, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct StateFiles {
    /// The file of the `global` section.
    pub global: Option<StateFile>,
    /// The files of backends with `load-server-state-from-file local`.
    pub local: HashMap<BackendName, StateFile>,
}

impl StateFiles {
    /// The file that a row's backend is loaded from, if there is one.
    pub fn for_row(&self, row: Row<'_>) -> Option<&StateFile> {
        let settings = &row.backend.settings;
        match settings.state_source.value {
            _ if settings.disabled.value => None,
            StateSource::None => None,
            StateSource::Global => self.global.as_ref(),
            StateSource::Local => self.local.get(&row.backend.name),
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The configuration.
    Config,
    /// The server-state file.
    StateFile,
}

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

impl<T> Told<T> {
    fn config(value: T) -> Self {
        Self {
            value,
            source: Source::Config,
        }
    }

    fn file(value: T) -> Self {
        Self {
            value,
            source: Source::StateFile,
        }
    }
}

/// The address that a row starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAddress {
    /// An IP address.
    Ip(IpAddr),
    /// What this name resolves to at start.
    Lookup(String),
    /// None: the name is not resolved at start, and the server is in maintenance until it is.
    Unresolved,
    /// Not an IP address at all: a unix socket and its like, as written.
    Local(String),
}

/// One row as the new process will have it, before its first check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastRow {
    /// The row.
    pub row: RowKey,
    /// Where its server line stands.
    pub span: Span,
    /// The line of the state file that speaks of it, from 1, if HAProxy takes it.
    pub file_line: Option<usize>,
    /// Whether the server line counts for certain (it may stand in an undecided `.if`).
    pub activity: Activity,
    /// The address.
    pub address: Told<StartAddress>,
    /// The port, as HAProxy shows it.
    pub port: Told<u32>,
    /// The port of the health check, when it has one of its own.
    pub check_port: Told<Option<u16>>,
    /// The address of the health check, when it has one of its own.
    pub check_address: Told<Option<Address>>,
    /// The port of the agent.
    pub agent_port: Told<Option<u16>>,
    /// The address of the agent, when it is not the server's.
    pub agent_address: Told<Option<Address>>,
    /// The weight in force.
    pub weight: Told<u16>,
    /// The weight that the configuration gives.
    pub configured_weight: u16,
    /// The admin state, inherited bits included.
    pub admin: Told<AdminBits>,
    /// Whether the server counts as up: not when the file says that it was down.
    pub op_state: Told<OpState>,
    /// Whether the health check runs.
    pub check_enabled: Told<bool>,
    /// Whether the agent check runs.
    pub agent_enabled: Told<bool>,
    /// Whether HAProxy stopped reading the later columns of the file's row.
    pub partly_applied: bool,
}

/// Every row of the configuration, in HAProxy's order.
pub fn forecast(config: &Config, files: &StateFiles) -> Vec<ForecastRow> {
    let mut forecasts = Vec::new();
    let mut tracks = Vec::new();
    for row in config.rows() {
        let Some(key) = row.key() else { continue };
        let file_row = files.for_row(row).and_then(|file| file.find(&key));
        let values = file_row.and_then(|file_row| file_row.values.as_ref().ok());
        let mut forecast = from_config(row, key);
        if let Some(values) = values {
            forecast.file_line = file_row.map(|file_row| file_row.line);
            apply(&mut forecast, values, row);
        }
        start_address(&mut forecast, row, values);
        tracks.push(
            row.server
                .settings
                .track
                .as_ref()
                .map(|track| track.value.clone()),
        );
        forecasts.push(forecast);
    }
    inherit(&mut forecasts, &tracks);
    forecasts
}

fn from_config(row: Row<'_>, key: RowKey) -> ForecastRow {
    let server = row.server;
    let ServerSettings {
        check,
        agent,
        weight,
        disabled,
        ..
    } = &server.settings;
    let admin = if disabled.value {
        AdminBits::FMAINT | AdminBits::CMAINT
    } else {
        AdminBits::READY
    };
    ForecastRow {
        row: key,
        span: server.span,
        file_line: None,
        activity: server.activity,
        address: Told::config(StartAddress::Unresolved),
        port: Told::config(server.port.shown()),
        check_port: Told::config(check.port.as_ref().map(|port| port.value)),
        check_address: Told::config(check.address.as_ref().map(|address| address.value.clone())),
        agent_port: Told::config(agent.port.as_ref().map(|port| port.value)),
        agent_address: Told::config(agent.address.as_ref().map(|address| address.value.clone())),
        weight: Told::config(weight.value),
        configured_weight: weight.value,
        admin: Told::config(admin),
        op_state: Told::config(if disabled.value {
            OpState::Stopped
        } else {
            OpState::Running
        }),
        check_enabled: Told::config(check.enabled.value),
        agent_enabled: Told::config(agent.enabled.value),
        partly_applied: false,
    }
}

/// What HAProxy does with an accepted row of the file.
fn apply(forecast: &mut ForecastRow, values: &FileValues, row: Row<'_>) {
    let settings = &row.server.settings;
    apply_admin(forecast, values, settings);
    if values.check.is_switched_off() && settings.check.enabled.value {
        forecast.check_enabled = Told::file(false);
    }
    if values.agent.is_switched_off() && settings.agent.enabled.value {
        forecast.agent_enabled = Told::file(false);
    }
    if values.iweight == settings.weight.value {
        forecast.weight = Told::file(values.uweight);
    }
    // A row that was filled by a SRV record stops here, unless the configuration has that record.
    if values.fqdn.is_some()
        && values.srv_record.is_some()
        && !matches!(row.server.address, Address::Name(_))
    {
        forecast.partly_applied = true;
        return;
    }
    forecast.port = Told::file(values.port.into());
    let taken =
        apply_check(forecast, values, row.server.port).and_then(|()| apply_agent(forecast, values));
    forecast.partly_applied = taken.is_none();
}

/// A change of `disabled` in the configuration wins over the file; without one, the file wins.
fn apply_admin(forecast: &mut ForecastRow, values: &FileValues, settings: &ServerSettings) {
    let disabled = settings.disabled.value;
    let was_disabled = values.admin.contains(AdminBits::CMAINT);
    let was_maint = values.admin.contains(AdminBits::FMAINT);
    let before = forecast.admin.value;
    let mut admin = before;
    if disabled == was_disabled {
        if was_maint && !disabled {
            admin = admin | AdminBits::FMAINT;
        } else if !was_maint && disabled {
            admin = admin.without(AdminBits::FMAINT);
        }
    }
    let keeps_drain = values.iweight > 0 || settings.weight.value == 0;
    if !admin.contains(AdminBits::FMAINT) && values.admin.contains(AdminBits::FDRAIN) && keeps_drain
    {
        admin = admin | AdminBits::FDRAIN;
    }
    if admin != before {
        forecast.admin = Told::file(admin);
    }
    forecast.op_state = if admin.contains(AdminBits::FMAINT) {
        Told {
            value: OpState::Stopped,
            source: forecast.admin.source,
        }
    } else if disabled {
        // Leaving maintenance makes a server up before any check (facts 3).
        Told::file(OpState::Running)
    } else {
        match (values.op_state, settings.check.fall.value) {
            (OpState::Stopped, _) | (OpState::Stopping, 1) => Told::file(OpState::Stopped),
            (OpState::Stopping, _) => Told::file(OpState::Stopping),
            (OpState::Starting | OpState::Running, _) => Told::config(OpState::Running),
        }
    };
}

/// The check's address and port; none when HAProxy stops reading the row here.
fn apply_check(forecast: &mut ForecastRow, values: &FileValues, server_port: Port) -> Option<()> {
    if values.check_address.is_none() && values.check_port.is_none() {
        return Some(());
    }
    if !forecast.check_enabled.value {
        return None;
    }
    let address = optional_address(values.check_address.as_deref())?;
    let port = optional_port(values.check_port.as_deref())?;
    if port == Some(0) && matches!(server_port, Port::Client(_)) {
        return None;
    }
    if let Some(address) = address {
        forecast.check_address = Told::file(Some(address));
    }
    if let Some(port) = port {
        forecast.check_port = Told::file(Some(port).filter(|port| *port != 0));
    }
    Some(())
}

/// The agent's address and port; none when HAProxy stops reading the row here.
fn apply_agent(forecast: &mut ForecastRow, values: &FileValues) -> Option<()> {
    if values.agent_address.is_none() && values.agent_port.is_none() {
        return Some(());
    }
    if !forecast.agent_enabled.value {
        return None;
    }
    let address = optional_address(values.agent_address.as_deref())?;
    let port = optional_port(values.agent_port.as_deref())?;
    if let Some(address) = address {
        forecast.agent_address = Told::file(Some(address));
    }
    if let Some(port) = port {
        forecast.agent_port = Told::file(Some(port).filter(|port| *port != 0));
    }
    Some(())
}

/// The outer nothing: HAProxy does not take the text. Names are taken for addresses that do not resolve.
#[expect(
    clippy::option_option,
    reason = "not given and not taken are two answers"
)]
fn optional_address(text: Option<&str>) -> Option<Option<Address>> {
    match text {
        None => Some(None),
        Some(text) => text.parse().ok().map(|ip| Some(Address::Ip(ip))),
    }
}

#[expect(
    clippy::option_option,
    reason = "not given and not taken are two answers"
)]
fn optional_port(text: Option<&str>) -> Option<Option<u16>> {
    match text {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

/// The file's address counts only for a name, and only where `init-addr` says `last` (the default is `last,libc`).
fn start_address(forecast: &mut ForecastRow, row: Row<'_>, values: Option<&FileValues>) {
    let server = row.server;
    let name = match &server.address {
        Address::Ip(ip) => {
            forecast.address = Told::config(StartAddress::Ip(*ip));
            return;
        }
        Address::Unix(text) | Address::Other(text) => {
            forecast.address = Told::config(StartAddress::Local(text.clone()));
            return;
        }
        Address::Name(name) => name,
    };
    let remembered = values
        .and_then(|values| values.address.as_deref())
        .and_then(|address| address.parse().ok());
    let methods = server
        .settings
        .init_addr
        .as_ref()
        .map_or("last,libc", |methods| methods.value.as_str());
    for method in methods.split(',') {
        let found = match method {
            "last" => remembered.map(|ip| Told::file(StartAddress::Ip(ip))),
            "libc" => Some(Told::config(StartAddress::Lookup(name.clone()))),
            "none" => break,
            ip => ip.parse().ok().map(|ip| Told::config(StartAddress::Ip(ip))),
        };
        if let Some(found) = found {
            forecast.address = found;
            return;
        }
    }
    forecast.admin.value = forecast.admin.value | AdminBits::RMAINT;
    forecast.op_state.value = OpState::Stopped;
}

/// A server that tracks another one inherits its maintenance and its drain.
fn inherit(forecasts: &mut [ForecastRow], tracks: &[Option<String>]) {
    let by_name: HashMap<String, usize> = forecasts
        .iter()
        .enumerate()
        .map(|(index, forecast)| (forecast.row.to_string(), index))
        .collect();
    let tracked: Vec<Option<usize>> = forecasts
        .iter()
        .zip(tracks)
        .map(|(forecast, track)| {
            let track = track.as_ref()?;
            let same_backend = || format!("{}/{track}", forecast.row.backend);
            by_name
                .get(&if track.contains('/') {
                    track.clone()
                } else {
                    same_backend()
                })
                .copied()
        })
        .collect();
    let own: Vec<AdminBits> = forecasts
        .iter()
        .map(|forecast| forecast.admin.value)
        .collect();
    for (index, forecast) in forecasts.iter_mut().enumerate() {
        let mut inherited = AdminBits::READY;
        let mut next = tracked.get(index).copied().flatten();
        // A chain longer than there are rows is a circle, which HAProxy refuses.
        for _ in 0..own.len() {
            let Some(tracked_row) = next else { break };
            let bits = own.get(tracked_row).copied().unwrap_or_default();
            // A tracker of a server that is `disabled` stays in maintenance even when that server leaves it: HAProxy takes
            // the remaining CMAINT for maintenance when it would let the trackers go.
            if bits.is_maint() || bits.contains(AdminBits::CMAINT) {
                inherited = inherited | AdminBits::IMAINT;
            }
            if bits.contains(AdminBits::FDRAIN) {
                inherited = inherited | AdminBits::IDRAIN;
            }
            next = tracked.get(tracked_row).copied().flatten();
        }
        forecast.admin.value = forecast.admin.value | inherited;
        if inherited.is_maint() {
            forecast.op_state.value = OpState::Stopped;
        }
    }
}
