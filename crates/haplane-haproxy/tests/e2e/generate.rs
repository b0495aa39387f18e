//! Random configurations that HAProxy accepts, and small changes to them.

use std::fmt::Write as _;

use fastrand::Rng;

/// A configuration: `defaults` and backends.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) default_server: Vec<String>,
    pub(crate) backends: Vec<Backend>,
}

#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) default_server: Vec<String>,
    pub(crate) servers: Vec<Server>,
}

#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one flag of a server line"
)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) template: Option<(u32, u32)>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) weight: Option<u16>,
    pub(crate) disabled: bool,
    pub(crate) backup: bool,
    pub(crate) check: bool,
    pub(crate) check_port: Option<u16>,
    pub(crate) check_addr: Option<String>,
    pub(crate) agent: bool,
    pub(crate) agent_port: Option<u16>,
    pub(crate) agent_addr: Option<String>,
    pub(crate) init_addr: Option<&'static str>,
    pub(crate) track: Option<String>,
}

/// Nobody listens on these: no check and no agent ever succeeds.
fn closed_port(rng: &mut Rng) -> u16 {
    rng.u16(1..9)
}

fn loopback(rng: &mut Rng) -> String {
    format!("127.0.0.{}", rng.u8(1..250))
}

fn maybe<T>(rng: &mut Rng, percent: u8, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (rng.u8(0..100) < percent).then(|| make(rng))
}

pub(crate) fn configuration(rng: &mut Rng) -> Generated {
    let count = rng.usize(1..4);
    let mut backends: Vec<Backend> = (0..count).map(|index| backend(rng, index)).collect();
    // What is tracked must have a check.
    let checked: Vec<String> = backends
        .iter()
        .flat_map(|backend| backend.servers.iter().map(move |server| (backend, server)))
        .filter(|(_, server)| server.check && server.template.is_none() && server.port.is_some())
        .map(|(backend, server)| format!("{}/{}", backend.name, server.name))
        .collect();
    for server in backends.iter_mut().flat_map(|backend| &mut backend.servers) {
        if !server.check && !server.agent && !checked.is_empty() && rng.u8(0..100) < 40 {
            server.track = Some(checked[rng.usize(0..checked.len())].clone());
        }
    }
    Generated {
        default_server: default_server(rng),
        backends,
    }
}

fn default_server(rng: &mut Rng) -> Vec<String> {
    let mut words = Vec::new();
    if rng.bool() {
        words.push(format!("weight {}", rng.u16(0..=256)));
    }
    if rng.u8(0..100) < 30 {
        words.push(format!("port {}", closed_port(rng)));
    }
    if rng.u8(0..100) < 30 {
        words.push(format!("agent-port {} agent-inter 50s", closed_port(rng)));
    }
    if rng.u8(0..100) < 20 {
        words.push(format!("agent-addr {}", loopback(rng)));
    }
    words
}

fn backend(rng: &mut Rng, index: usize) -> Backend {
    let servers = (0..rng.usize(1..9))
        .map(|number| server(rng, number))
        .collect();
    Backend {
        name: format!("b{index}"),
        default_server: default_server(rng),
        servers,
    }
}

fn server(rng: &mut Rng, number: usize) -> Server {
    let named = rng.u8(0..100) < 15;
    let host = if named {
        "localhost".to_owned()
    } else {
        loopback(rng)
    };
    let port = maybe(rng, 85, |rng| rng.u16(1..=65535));
    let check = rng.bool();
    let agent = rng.bool();
    let template = maybe(rng, 15, |rng| (rng.u32(1..4), rng.u32(4..7)));
    Server {
        template,
        name: format!(
            "s{number}{}",
            ["", "-x", ".y", "_", ":z"][rng.usize(0..if template.is_some() { 4 } else { 5 })]
        ),
        host,
        port,
        weight: maybe(rng, 60, |rng| rng.u16(0..=256)),
        disabled: rng.u8(0..100) < 20,
        backup: rng.u8(0..100) < 15,
        check,
        // A check needs a port from somewhere.
        check_port: if port.is_none() && check {
            Some(closed_port(rng))
        } else {
            maybe(rng, 30, closed_port)
        },
        check_addr: maybe(rng, 15, loopback),
        agent,
        agent_port: if agent {
            Some(closed_port(rng))
        } else {
            maybe(rng, 15, closed_port)
        },
        agent_addr: maybe(rng, 30, loopback),
        init_addr: if named {
            maybe(rng, 60, |rng| {
                ["last,libc", "libc", "none", "last,none", "127.0.0.9"][rng.usize(0..5)]
            })
        } else {
            None
        },
        track: None,
    }
}

impl Generated {
    /// The text, written in one of several styles.
    pub(crate) fn render(&self, rng: &mut Rng, defaults: &str) -> String {
        let mut text = format!(
            "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\n{defaults}"
        );
        for words in &self.default_server {
            writeln!(text, "  default-server {words} # for all").unwrap();
        }
        for backend in &self.backends {
            writeln!(text, "\nbackend {}", backend.name).unwrap();
            for words in &backend.default_server {
                writeln!(text, "\tdefault-server {words}").unwrap();
            }
            for server in &backend.servers {
                text += &server.render(rng);
            }
        }
        text
    }
}

impl Server {
    /// The names of its rows.
    pub(crate) fn rows(&self) -> Vec<String> {
        match self.template {
            Some((first, last)) => (first..=last)
                .map(|number| format!("{}{number}", self.name))
                .collect(),
            None => vec![self.name.clone()],
        }
    }

    fn render(&self, rng: &mut Rng) -> String {
        let port = self
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        let quote = ["", "\"", "'"][rng.usize(0..3)];
        let mut text = match self.template {
            Some((first, last)) => format!("  server-template {} {first}-{last}", self.name),
            None => format!("  server {quote}{}{quote}", self.name),
        };
        write!(text, " {}{port} inter 50s", self.host).unwrap();
        let mut words = Vec::new();
        let mut option = |word: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{word} {value}")));
        };
        option("weight", self.weight.map(|weight| weight.to_string()));
        option("port", self.check_port.map(|port| port.to_string()));
        option("addr", self.check_addr.clone());
        option("agent-port", self.agent_port.map(|port| port.to_string()));
        option("agent-addr", self.agent_addr.clone());
        option("init-addr", self.init_addr.map(str::to_owned));
        option("track", self.track.clone());
        words.extend(self.disabled.then(|| "disabled".to_owned()));
        words.extend(self.backup.then(|| "backup".to_owned()));
        words.extend(self.check.then(|| "check".to_owned()));
        words.extend(
            self.agent
                .then(|| "agent-inter 50s agent-check agent-send \"x/y\\n\"".to_owned()),
        );
        rng.shuffle(&mut words);
        text + [" ", "\t", "  "][rng.usize(0..3)] + &words.join(" ") + "\n"
    }

    /// One change that an operator might make.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        match rng.u8(0..14) {
            0 => self.port = self.port.map(|_| rng.u16(1..=65535)),
            1 => self.host = loopback(rng),
            2 => self.weight = maybe(rng, 70, |rng| rng.u16(0..=256)),
            3 => self.disabled = !self.disabled,
            4 => self.agent_port = self.agent_port.map(|_| closed_port(rng)),
            5 => self.agent_addr = maybe(rng, 60, loopback),
            6 if self.port.is_some() => self.check_port = maybe(rng, 60, closed_port),
            7 => self.check_addr = maybe(rng, 60, loopback),
            8 if self.track.is_none() && self.port.is_some() => {
                self.agent = self.agent_port.is_some() && !self.agent;
            }
            9 => self.name += "n",
            10 => self.backup = !self.backup,
            11 => self.weight = Some(0),
            12 if self.agent_port.is_none() && self.track.is_none() => {
                self.agent_port = Some(closed_port(rng));
                self.agent = true;
            }
            _ => {}
        }
    }
}
