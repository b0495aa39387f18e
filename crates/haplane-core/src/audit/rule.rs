//! The rules: their stable names, how bad a finding usually is, and why it matters.

use haplane_haproxy::cfg::Severity;

macro_rules! rules {
    ($($variant:ident, $id:literal, $severity:ident, $reason:literal;)*) => {
        /// A rule of the audit. Its name is a contract: it stands in comments, pipelines and reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is described by its reason and its page in docs/rules")]
        pub enum Rule {
            $($variant,)*
        }

        impl Rule {
            /// All rules, grouped by what they look at.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            /// How bad a finding of this rule usually is.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$variant => Severity::$severity,)*
                }
            }

            /// Why it matters, in a sentence or two.
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$variant => $reason,)*
                }
            }
        }
    };
}

rules! {
    ConfigRefused, "config-refused", Error,
        "HAProxy refuses to start with this configuration.";
    ConfigUnknown, "config-unknown", Note,
        "Something here cannot be understood with certainty; findings that depend on it may be missing.";
    AllowUnused, "allow-unused", Warning,
        "A comment that allows a finding which is not there hides the next one.";

    StateFilePort, "state-file-port", Error,
        "HAProxy always takes a server's port from the state file, whatever the configuration says: the new process talks to the configured address at the old port.";
    StateFileAgent, "state-file-agent", Error,
        "HAProxy takes the agent's address and port from the state file, so an agent that moved is never asked again and the row keeps its last state for ever.";
    StateFileCheckPort, "state-file-check-port", Warning,
        "HAProxy takes the health check's address and port from the state file: it checks something else than the configuration says.";
    StateFileAddress, "state-file-address", Warning,
        "An address set at run time is lost in a reload (only names remember theirs), while the port beside it is kept.";
    StateFilePlaceholder, "state-file-placeholder", Error,
        "A slot that was filled at run time comes back with its placeholder address, its run-time port and in rotation.";
    StateFileDisabled, "state-file-disabled", Warning,
        "The state file remembers who was disabled, and its memory wins where the configuration did not change.";
    StateFileWeight, "state-file-weight", Warning,
        "A weight set at run time comes back after a reload as long as the configured weight is the same.";
    StateFileCheckStuck, "state-file-check-stuck", Error,
        "With the check status 0 no health check of the server has a result any more: it stays up when its origin dies, and an HTTP check can crash HAProxy.";
    StateFileDropped, "state-file-dropped", Error,
        "HAProxy drops a damaged state file, or refuses a row, with a warning in its log and starts all the same: every drain in it is lost.";
    StateFileInUse, "state-file-in-use", Warning,
        "Enrolled rows get their state from the agent; a state file beside it brings back old ports, weights and agent addresses.";

    NotEnrolled, "not-enrolled", Warning,
        "A row without agent-check does not follow its desired state: a drain of its group leaves it in rotation.";
    AgentSendMissing, "agent-send-missing", Error,
        "Without agent-send the agent is not told which row asks and refuses to answer, and the accept is delayed by 200 ms.";
    AgentSendNewline, "agent-send-newline", Warning,
        "Without a line end the agent waits 10 ms for the rest of the line at each ask; another responder may wait for ever.";
    AgentSendMismatch, "agent-send-mismatch", Error,
        "The row asks for the state of another row, or in words that the agent refuses.";
    AgentSendDuplicate, "agent-send-duplicate", Error,
        "Two rows that ask under one name cannot be told apart: they are drained together, and each hides the other's silence.";
    AgentAddressRemote, "agent-address-remote", Warning,
        "Agent checks are neither encrypted nor authenticated: whoever answers on that address decides who gets traffic.";
    AgentInterval, "agent-interval", Warning,
        "The interval is how long a change takes to arrive; under one second it makes the first ask after a start slower, not faster, because other checks then set the spread.";
    AgentTimeout, "agent-timeout", Warning,
        "`timeout check` also limits the wait for the agent: too short and answers are lost, longer than the interval and a stuck agent halves the asks.";
    AgentDisabled, "agent-disabled", Warning,
        "The row's agent check is switched off, so its state stays as it is until somebody switches it on again.";

    WeightTooSmall, "weight-too-small", Warning,
        "HAProxy truncates a percentage of the configured weight: 50% of the default weight 1 is 0, which is no traffic at all.";
    StaticBalance, "static-balance", Warning,
        "Static algorithms accept 0% and 100% only; every other weight from the agent is ignored.";
    NoSlowstart, "no-slowstart", Note,
        "A row that leaves maintenance takes its full share of traffic at once.";
    TrackWeight, "track-weight", Note,
        "A row that tracks another follows its drain and maintenance, but not its weight.";
    InitStateAgent, "init-state-agent", Error,
        "A row that starts down comes up only by the word `up` from the agent, which is sent to rows that ask with `@up`.";
    SlotsWithoutFree, "slots-without-free", Error,
        "An empty slot that is enrolled is put into rotation by the agent's `ready`, pointing at its placeholder address.";

    ReloadWindow, "reload-window", Warning,
        "A new process forgets every drain until the agent is asked for the first time: 2 s with the default interval, some hundred requests.";

    AdminSocketTcp, "admin-socket-tcp", Error,
        "Whoever reaches this port can read, and at level admin change, everything that HAProxy does.";
    AdminSocketMode, "admin-socket-mode", Error,
        "Every local user can talk to this socket.";

    VersionKnownBad, "version-known-bad", Warning,
        "This version of HAProxy has a known fault that concerns what this configuration uses, or gets no more fixes.";

    RunningDiffers, "running-differs", Warning,
        "The running process is not what the files say: after the next restart it will be.";
    RunningMissing, "running-missing", Warning,
        "A row of the files is not in the running process, or the other way round: it has not been reloaded.";
}

impl Rule {
    /// The rule of a name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.id() == id)
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}
