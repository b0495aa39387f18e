//! Server-state files: what a reload will take from them against what the configuration says.

use haplane_haproxy::cfg::{Address, Row, Severity, StateSource};
use haplane_haproxy::forecast::{ForecastRow, Source, StartAddress};
use haplane_haproxy::server_state::{AdminBits, Fate, FileValues, OpState, StateFile};

use super::{Findings, Looked, Place, Rule};

const FIX: &str = "write the file with `haplane seed` before each reload, or load none; \
                   once: delete this row from the file and reload";

/// The most rows reported of a file that is wrong throughout: nobody would read more.
const MOST_ROWS: usize = 1_000;

pub(super) fn check(looked: &Looked<'_>, findings: &mut Findings) {
    files(looked, findings);
    for (row, forecast) in looked.config().rows().zip(looked.forecasts) {
        if let Some(line) = forecast.file_line {
            let about = About {
                looked,
                row,
                forecast,
                line,
                file: looked.file_name(row.backend),
            };
            about.check(findings);
        }
    }
}

/// The files as such: dropped, or refused in part.
fn files(looked: &Looked<'_>, findings: &mut Findings) {
    if let Some(file) = &looked.subject.files.global {
        dropped(looked.global_file_name(), file, findings);
    }
    for backend in looked.config().backends() {
        if let Some(file) = looked.subject.files.local.get(&backend.name) {
            dropped(&looked.file_name(backend), file, findings);
        }
    }
}

fn dropped(name: &str, file: &StateFile, findings: &mut Findings) {
    let place = |line| Place::StateFile {
        name: name.to_owned(),
        line,
    };
    let fix = "write the file aside and rename it, and check its last line; or write it with `haplane seed`";
    if let Fate::Dropped { line, reason } = file.fate() {
        let message = format!("HAProxy drops all of {name}: {reason}");
        findings.add(Rule::StateFileDropped, place(*line), None, message, fix);
    }
    let mut bad = 0;
    for row in file.rows() {
        bad += usize::from(row.values.is_err() || file.is_shadowed(row));
        if bad > MOST_ROWS {
            let message = format!(
                "HAProxy refuses or leaves out more rows of {name}, from this line on: they are not told one by one"
            );
            findings.add(Rule::StateFileDropped, place(row.line), None, message, fix);
            return;
        }
        if let Err(column) = row.values {
            let key = format!("{}/{}", row.backend, row.server);
            let message = format!("HAProxy refuses the row of {key}: {column} is out of range");
            findings.add(
                Rule::StateFileDropped,
                place(row.line),
                key.parse().ok(),
                message,
                fix,
            );
        } else if file.is_shadowed(row) {
            let key = format!("{}/{}", row.backend, row.server);
            let message = format!("HAProxy leaves this second row of {key} out");
            findings.add_as(
                Severity::Warning,
                Rule::StateFileDropped,
                place(row.line),
                key.parse().ok(),
                message,
                fix,
            );
        }
    }
}

/// One row that the file speaks of.
struct About<'a> {
    looked: &'a Looked<'a>,
    row: Row<'a>,
    forecast: &'a ForecastRow,
    line: usize,
    file: String,
}

impl About<'_> {
    fn check(&self, findings: &mut Findings) {
        if self.is_filled_slot() {
            let message = format!(
                "{} will be {} port {} and in rotation: a placeholder's address with the port from {}",
                self.forecast.row,
                self.row.server.address,
                self.forecast.port.value,
                self.origin()
            );
            let fix = "load no state file for slots (load-server-state-from-file none in this backend); \
                       haplane sync fills them again after a reload";
            self.add(Rule::StateFilePlaceholder, findings, message, fix);
        } else {
            self.port(findings);
            self.address(findings);
        }
        self.agent(findings);
        self.check_port(findings);
        self.check_stuck(findings);
        self.weight(findings);
        self.disabled(findings);
    }

    fn add(&self, rule: Rule, findings: &mut Findings, message: String, fix: &str) {
        let place = Place::Config(match rule {
            Rule::StateFilePort | Rule::StateFileAddress | Rule::StateFilePlaceholder => {
                self.row.server.address_span
            }
            _ => self.row.server.span,
        });
        findings.add(rule, place, Some(self.forecast.row.clone()), message, fix);
    }

    /// `line 3 of FILE`.
    fn origin(&self) -> String {
        format!("line {} of {}", self.line, self.file)
    }

    /// A template's server, or one that is `disabled` in the configuration, whose address was set at run time: its
    /// address falls back, its port does not, and nothing keeps it out of rotation.
    fn is_filled_slot(&self) -> bool {
        let server = self.row.server;
        let is_slot = server.template.is_some() || server.settings.disabled.value;
        let port_moved = self.forecast.port.value != server.port.shown();
        is_slot
            && port_moved
            && server.address.ip().is_some()
            && !self.forecast.admin.value.is_maint()
    }

    fn port(&self, findings: &mut Findings) {
        let configured = self.row.server.port;
        if self.forecast.port.value == configured.shown() {
            return;
        }
        let port = self.forecast.port.value;
        let message = format!(
            "{} will use port {port} from {}, not the configured {configured}",
            self.forecast.row,
            self.origin()
        );
        self.add(Rule::StateFilePort, findings, message, FIX);
    }

    /// What the file says of the row.
    fn values(&self) -> Option<&FileValues> {
        let file = self.looked.subject.files.for_row(self.row)?;
        file.find(&self.forecast.row)?.values.as_ref().ok()
    }

    fn check_stuck(&self, findings: &mut Findings) {
        let is_stuck = self.values().is_some_and(|values| values.check_status == 0);
        if is_stuck && self.row.server.settings.check.enabled.value {
            let message = format!(
                "the health check of {} will never have a result: its check status is 0 in {}",
                self.forecast.row,
                self.origin()
            );
            self.add(Rule::StateFileCheckStuck, findings, message, FIX);
        }
    }

    fn address(&self, findings: &mut Findings) {
        let Some(remembered) = self.values().and_then(|values| values.address.as_deref()) else {
            return;
        };
        match (&self.row.server.address, &self.forecast.address.value) {
            (Address::Ip(configured), _) if remembered.parse() != Ok(*configured) => {
                let message = format!(
                    "{} ran with address {remembered} ({}) and will start with the configured {configured}",
                    self.forecast.row,
                    self.origin()
                );
                let fix = "set the address in the configuration, or leave it to haplane sync after the reload";
                self.add(Rule::StateFileAddress, findings, message, fix);
            }
            (Address::Name(name), StartAddress::Ip(ip))
                if self.forecast.address.source == Source::StateFile =>
            {
                let message = format!(
                    "{} will start with {ip} from {}, whatever {name} resolves to by then",
                    self.forecast.row,
                    self.origin()
                );
                let place = Place::Config(self.row.server.address_span);
                let row = Some(self.forecast.row.clone());
                let fix = "use init-addr libc where the name must be looked up anew";
                findings.add_as(
                    Severity::Note,
                    Rule::StateFileAddress,
                    place,
                    row,
                    message,
                    fix,
                );
            }
            _ => {}
        }
    }

    fn agent(&self, findings: &mut Findings) {
        let agent = &self.row.server.settings.agent;
        if !agent.enabled.value {
            return;
        }
        let configured_port = agent.port.as_ref().map(|port| port.value);
        let configured_address = agent.address.as_ref().map(|address| &address.value);
        let port = self.forecast.agent_port.value;
        let address = self.forecast.agent_address.value.as_ref();
        // A server with a host name: the file has the address that it resolved to.
        let address_differs =
            address != configured_address && !matches!(configured_address, Some(Address::Name(_)));
        if port == configured_port && !address_differs {
            return;
        }
        let message = format!(
            "{} will ask its agent at {} from {}, not at the configured {}",
            self.forecast.row,
            endpoint(address, port),
            self.origin(),
            endpoint(configured_address, configured_port)
        );
        self.add(Rule::StateFileAgent, findings, message, FIX);
    }

    fn check_port(&self, findings: &mut Findings) {
        let check = &self.row.server.settings.check;
        if !check.enabled.value {
            return;
        }
        let configured_port = check.port.as_ref().map(|port| port.value);
        let configured_address = check.address.as_ref().map(|address| &address.value);
        let port = self.forecast.check_port.value;
        let address = self.forecast.check_address.value.as_ref();
        let address_differs =
            address != configured_address && !matches!(configured_address, Some(Address::Name(_)));
        if port == configured_port && !address_differs {
            return;
        }
        let message = format!(
            "{} will be checked at {} from {}, not at the configured {}",
            self.forecast.row,
            endpoint(address, port),
            self.origin(),
            endpoint(configured_address, configured_port)
        );
        self.add(Rule::StateFileCheckPort, findings, message, FIX);
    }

    fn weight(&self, findings: &mut Findings) {
        let configured = self.row.server.settings.weight.value;
        let weight = self.forecast.weight.value;
        // A seed carries the weight that is desired.
        let is_seed = self
            .looked
            .subject
            .files
            .for_row(self.row)
            .is_some_and(StateFile::is_seed);
        if weight != configured && !is_seed {
            let message = format!(
                "{} will have weight {weight} from {}, not the configured {configured}",
                self.forecast.row,
                self.origin()
            );
            self.add(Rule::StateFileWeight, findings, message, FIX);
        }
    }

    fn disabled(&self, findings: &mut Findings) {
        let settings = &self.row.server.settings;
        let row = &self.forecast.row;
        if settings.disabled.value && !self.forecast.admin.value.contains(AdminBits::FMAINT) {
            let message = format!(
                "{row} is `disabled` in the configuration and will be in rotation by {}",
                self.origin()
            );
            let fix =
                "take `disabled` out, or put the server into maintenance before the state is saved";
            self.add(Rule::StateFileDisabled, findings, message, fix);
        }
        let for_ever = self.forecast.op_state.value == OpState::Stopped
            && self.forecast.op_state.source == Source::StateFile
            && self.forecast.admin.value.is_ready()
            && !settings.check.enabled.value
            && settings.track.is_none();
        if for_ever {
            let message = format!(
                "{row} will be down for ever: down by {}, and no health check raises it",
                self.origin()
            );
            let fix = "delete this row from the file, or give the server a check";
            self.add(Rule::StateFileDisabled, findings, message, fix);
        }
        if settings.agent.enabled.value && !self.forecast.agent_enabled.value {
            let message = format!(
                "the agent check of {row} will stay switched off by {}",
                self.origin()
            );
            let fix = "`enable agent` before the state is saved, or delete this row from the file";
            self.add(Rule::AgentDisabled, findings, message, fix);
        }
        if settings.check.enabled.value && !self.forecast.check_enabled.value {
            let message = format!(
                "the health check of {row} will stay switched off by {}",
                self.origin()
            );
            let fix = "`enable health` before the state is saved, or delete this row from the file";
            self.add(Rule::StateFileDisabled, findings, message, fix);
        }
    }
}

fn endpoint(address: Option<&Address>, port: Option<u16>) -> String {
    let address = address.map_or_else(|| "the server's address".to_owned(), ToString::to_string);
    match port {
        Some(port) => format!("{address} port {port}"),
        None => format!("{address}, the server's port"),
    }
}

/// Whether any backend loads a state file at all.
pub(super) fn loads_any(looked: &Looked<'_>) -> bool {
    let backends = looked.config().backends();
    backends
        .iter()
        .any(|backend| backend.settings.state_source.value != StateSource::None)
}
