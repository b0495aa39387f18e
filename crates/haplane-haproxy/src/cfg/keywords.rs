//! The keywords of server lines and how many words each takes, so that a value is never mistaken for a keyword.

/// How many words follow a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arity {
    /// None: a flag.
    Flag,
    /// One value.
    One,
    /// `source`: an address, and perhaps `usesrc …` or `interface …`.
    Source,
}

/// Flags of HAProxy 2.2 to 3.2.
const FLAGS: &[&str] = &[
    "agent-check",
    "allow-0rtt",
    "backup",
    "check",
    "check-reuse-pool",
    "check-send-proxy",
    "check-ssl",
    "check-via-socks4",
    "disabled",
    "enabled",
    "force-sslv3",
    "force-tlsv10",
    "force-tlsv11",
    "force-tlsv12",
    "force-tlsv13",
    "no-agent-check",
    "no-backup",
    "no-check",
    "no-check-reuse-pool",
    "no-check-send-proxy",
    "no-check-ssl",
    "no-renegotiate",
    "no-send-proxy",
    "no-send-proxy-v2",
    "no-send-proxy-v2-ssl",
    "no-send-proxy-v2-ssl-cn",
    "no-ssl",
    "no-ssl-reuse",
    "no-sslv3",
    "no-tfo",
    "no-tls-tickets",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "no-verifyhost",
    "non-stick",
    "renegotiate",
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2-ssl",
    "send-proxy-v2-ssl-cn",
    "ssl",
    "ssl-reuse",
    "sslv3",
    "stick",
    "strict-maxconn",
    "tfo",
    "tls-tickets",
    "tlsv10",
    "tlsv11",
    "tlsv12",
    "tlsv13",
];

/// Keywords with one value, HAProxy 2.2 to 3.2.
const VALUES: &[&str] = &[
    "addr",
    "agent-addr",
    "agent-inter",
    "agent-port",
    "agent-send",
    "alpn",
    "ca-file",
    "cc",
    "check-alpn",
    "check-pool-conn-name",
    "check-proto",
    "check-sni",
    "ciphers",
    "ciphersuites",
    "client-sigalgs",
    "cookie",
    "crl-file",
    "crt",
    "curves",
    "downinter",
    "ecdhe",
    "error-limit",
    "fall",
    "fastinter",
    "guid",
    "hash-key",
    "healthcheck",
    "id",
    "idle-ping",
    "init-addr",
    "init-state",
    "inter",
    "log-bufsize",
    "log-proto",
    "max-reuse",
    "maxconn",
    "maxqueue",
    "minconn",
    "namespace",
    "npn",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "pool-conn-name",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "proto",
    "proxy-v2-options",
    "quic-cc-algo",
    "redir",
    "resolve-net",
    "resolve-opts",
    "resolve-prefer",
    "resolvers",
    "rise",
    "shard",
    "sigalgs",
    "slowstart",
    "sni",
    "socks4",
    "ssl-max-ver",
    "ssl-min-ver",
    "tcp-md5sig",
    "tcp-ut",
    "track",
    "verify",
    "verifyhost",
    "weight",
    "ws",
];

/// All keywords of server lines that we know, of HAProxy 2.2 to 3.2.
pub fn server_keywords() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().chain(VALUES).copied().chain(["source"])
}

/// How many words follow `keyword`; none for one that we do not know.
pub(super) fn arity(keyword: &str) -> Option<Arity> {
    if FLAGS.contains(&keyword) {
        return Some(Arity::Flag);
    }
    if VALUES.contains(&keyword) || keyword.starts_with("set-proxy-v2-tlv-fmt(") {
        return Some(Arity::One);
    }
    (keyword == "source").then_some(Arity::Source)
}
