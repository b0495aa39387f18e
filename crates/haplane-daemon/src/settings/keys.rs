//! The list of keys with their flags and variables: what `--help`, the documentation and the code
//! have to agree on.

use crate::config_file::Override;

/// One key of the file that flags or variables can override.
#[derive(Clone, Copy, Debug)]
pub struct KeyDoc {
    /// The key in the file.
    pub key: &'static str,
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// For a flag without a value: the text that it stands for.
    pub switch: Option<&'static str>,
}

const fn value(key: &'static str, flag: &'static str, variable: &'static str) -> KeyDoc {
    KeyDoc {
        key,
        flag,
        variable,
        switch: None,
    }
}

const fn switch(
    key: &'static str,
    flag: &'static str,
    variable: &'static str,
    text: &'static str,
) -> KeyDoc {
    KeyDoc {
        key,
        flag,
        variable,
        switch: Some(text),
    }
}

/// Every key that can be overridden.
pub const KEYS: [KeyDoc; 21] = [
    value("store", "store", "HAPLANE_STORE"),
    value("prefix", "prefix", "HAPLANE_PREFIX"),
    value("node", "node", "HAPLANE_NODE"),
    value("agent.listen", "listen", "HAPLANE_LISTEN"),
    switch(
        "agent.allow_remote",
        "allow-remote",
        "HAPLANE_ALLOW_REMOTE",
        "true",
    ),
    switch(
        "agent.require_marker",
        "no-require-marker",
        "HAPLANE_REQUIRE_MARKER",
        "false",
    ),
    value("agent.sync_timeout", "sync-timeout", "HAPLANE_SYNC_TIMEOUT"),
    value("agent.weights", "weights", "HAPLANE_WEIGHTS"),
    value("agent.absent", "absent", "HAPLANE_ABSENT"),
    switch("agent.register", "no-register", "HAPLANE_REGISTER", "false"),
    switch("agent.leave", "leave", "HAPLANE_LEAVE", "true"),
    value(
        "agent.max_connections",
        "max-connections",
        "HAPLANE_MAX_CONNECTIONS",
    ),
    value("agent.last_good", "last-good", "HAPLANE_LAST_GOOD"),
    value(
        "agent.last_good_max_age",
        "last-good-max-age",
        "HAPLANE_LAST_GOOD_MAX_AGE",
    ),
    value("http.listen", "http-listen", "HAPLANE_HTTP_LISTEN"),
    switch(
        "http.allow_remote",
        "http-allow-remote",
        "HAPLANE_HTTP_ALLOW_REMOTE",
        "true",
    ),
    switch("http.pprof", "pprof", "HAPLANE_PPROF", "true"),
    value("haproxy.socket", "haproxy-socket", "HAPLANE_HAPROXY_SOCKET"),
    value(
        "haproxy.master_socket",
        "haproxy-master-socket",
        "HAPLANE_HAPROXY_MASTER_SOCKET",
    ),
    switch("haproxy.push", "push", "HAPLANE_PUSH", "true"),
    value(
        "forgotten_after",
        "forgotten-after",
        "HAPLANE_FORGOTTEN_AFTER",
    ),
];

/// The overrides that flags and variables make: a flag before a variable. `flag` gives the text of
/// a flag if it was used, `variable` that of an environment variable.
pub fn overrides(
    flag: impl Fn(&KeyDoc) -> Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Override> {
    let one = |doc: &KeyDoc| {
        let from_flag = flag(doc).map(|text| (text, format!("--{}", doc.flag)));
        let from_variable = || {
            let text = variable(doc.variable).filter(|text| !text.is_empty())?;
            Some((text, doc.variable.to_owned()))
        };
        let (text, origin) = from_flag.or_else(from_variable)?;
        Some(Override {
            key: doc.key.to_owned(),
            text,
            origin,
        })
    };
    KEYS.iter().filter_map(one).collect()
}
