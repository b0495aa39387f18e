//! What every command that touches a store runs with.

use haplane_core::target::Known;
use haplane_core::{Key, Snapshot};
use haplane_daemon::Settings;
use haplane_store::AnyStore;

use crate::cli::{Common, FleetOptions};
use crate::config::Place;
use crate::failure::Failure;
use crate::fleet::{AgentAddress, Fleet};
use crate::identity::Identity;
use crate::interrupt::Standing;
use crate::output::Output;
use crate::state::{self, Marker};

/// One run of one command.
pub struct Session {
    /// All settings.
    pub settings: Settings,
    /// The environment that the command works on.
    pub place: Place,
    /// Its store.
    pub store: AnyStore,
    /// Where to print.
    pub output: Output,
    /// Who runs it.
    pub identity: Identity,
    /// What is left if it is interrupted.
    pub standing: Standing,
}

impl Session {
    /// Opens the store that the command line and the configuration name.
    pub fn open(
        settings: Settings,
        common: &Common,
        output: Output,
        identity: Identity,
    ) -> Result<Self, (Output, Failure)> {
        let opened = Place::pick(&settings, common.env.as_deref())
            .and_then(|place| Ok((AnyStore::open(&place.store)?, place)));
        match opened {
            Ok((store, place)) => Ok(Self {
                settings,
                place,
                store,
                output,
                identity,
                standing: Standing::default(),
            }),
            Err(failure) => Err((output, failure)),
        }
    }

    /// Reads the state.
    pub async fn read(&self) -> Result<Snapshot, Failure> {
        let marker = Marker::of(&self.settings.agent);
        let read = state::read(&self.store, marker, &self.place.store).await;
        read.map_err(|failure| self.place.blame(failure))
    }

    /// Makes sure that those of these keys that a snapshot lacks are not there.
    pub async fn sure_of_absence<'k>(
        &self,
        snapshot: &Snapshot,
        keys: impl IntoIterator<Item = &'k Key>,
    ) -> Result<(), Failure> {
        state::sure_of_absence(&self.store, snapshot, keys, &self.place.store).await
    }

    /// The agents: those named, those of the environment, or those that the store leads to.
    pub async fn fleet(&self, options: &FleetOptions) -> Result<Fleet, Failure> {
        if !options.agents.is_empty() {
            return Ok(Fleet::at(options.agents.iter().cloned()));
        }
        if !self.place.agents.is_empty() {
            let parse = |text: &String| text.parse::<AgentAddress>();
            let agents: Result<Vec<_>, _> = self.place.agents.iter().map(parse).collect();
            return agents
                .map(Fleet::at)
                .map_err(|error| Failure::usage(error.to_string()));
        }
        Ok(Fleet::beside(&self.store, self.local_agent()).await)
    }

    /// Both at once: a store that does not answer takes its time only once.
    pub async fn read_and_fleet(
        &self,
        options: &FleetOptions,
    ) -> Result<(Result<Snapshot, Failure>, Fleet), Failure> {
        let (read, fleet) = tokio::join!(self.read(), self.fleet(options));
        Ok((read, fleet?))
    }

    /// A fleet that the store led to while it cannot be read: if that is nobody, the local agent.
    pub fn or_local(&self, fleet: Fleet) -> Fleet {
        fleet.or_at(self.local_agent())
    }

    fn local_agent(&self) -> AgentAddress {
        let local = self.settings.http.listen;
        AgentAddress::new(local.ip().to_string(), local.port())
    }

    /// Whether a person is going to be asked.
    pub fn will_ask(&self, yes: bool) -> bool {
        self.place.environment.is_some() && self.place.confirm && !yes && self.output.can_ask()
    }

    /// Lets a person say yes where the environment demands it.
    pub fn confirm(&self, yes: bool, what: &str) -> Result<(), Failure> {
        let Some(name) = self
            .place
            .environment
            .as_ref()
            .filter(|_| self.place.confirm)
        else {
            return Ok(());
        };
        if yes || self.output.is_agreed(&format!("{what} in {name}?")) {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "environment {name} demands confirmation; nothing was written; add --yes when you mean it"
        )))
    }
}

/// The names that the store knows.
pub fn stored_names(snapshot: &Snapshot) -> Known {
    let valid = snapshot.keys().map(|(key, _)| key.clone());
    let invalid = snapshot
        .invalid()
        .filter_map(|(name, _)| name.parse::<Key>().ok());
    Known {
        stored: valid.chain(invalid).collect(),
        ..Known::default()
    }
}
