//! From settings to an open store: what the file says, on top of Consul's own variables.

use haplane_store::any::{Location, StoreSettings as Opening};
use haplane_store::consul::{self, ConsulSettings, TokenSettings};
use haplane_store::{AnyStore, StoreError, StoreErrorKind};

use crate::settings::{Consistency, StoreSettings};

/// Opens the store; nothing is read or dialled yet. `variable` looks up an environment variable.
pub fn open_store(
    settings: &StoreSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<AnyStore, StoreError> {
    AnyStore::open(&opening(settings, variable)?)
}

/// What the store is opened with; also for Consul's services.
pub fn opening(
    settings: &StoreSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Opening, StoreError> {
    let location: Location = settings.location.parse().map_err(|error| {
        StoreError::new(StoreErrorKind::Config, "store cannot be understood").because(error)
    })?;
    // A directory needs nothing of Consul, so a broken variable of Consul's is no reason to stop.
    let consul = match (&location, ConsulSettings::from_environment(variable)) {
        (Location::Dir(_), Err(_)) => ConsulSettings::default(),
        (_, given) => given?,
    };
    Ok(Opening {
        location,
        consul: with_file(consul, settings),
        state_prefix: settings.state_prefix.parse()?,
        log_prefix: settings.log_prefix.parse()?,
    })
}

fn with_file(mut consul: ConsulSettings, file: &StoreSettings) -> ConsulSettings {
    if let Some(token) = &file.token_file {
        consul.token = TokenSettings::File(token.clone());
    }
    consul.tls.ca_file = file.ca_file.clone().or(consul.tls.ca_file);
    if file.cert_file.is_some() {
        consul.tls.cert_file.clone_from(&file.cert_file);
        consul.tls.key_file.clone_from(&file.key_file);
    }
    consul.datacenter = file.datacenter.clone().or(consul.datacenter);
    consul.consistency = match file.consistency {
        Consistency::Default => consul::Consistency::Default,
        Consistency::Stale => consul::Consistency::Stale,
        Consistency::Consistent => consul::Consistency::Consistent,
    };
    consul
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(location: &str) -> StoreSettings {
        StoreSettings {
            location: location.to_owned(),
            state_prefix: "haplane/state/".to_owned(),
            log_prefix: "haplane/log/".to_owned(),
            ..StoreSettings::default()
        }
    }

    fn variables(name: &str) -> Option<String> {
        let text = match name {
            "CONSUL_HTTP_ADDR" => "10.0.0.1:8500",
            "CONSUL_HTTP_TOKEN_FILE" => "/var/token",
            "CONSUL_CACERT" => "/var/ca.pem",
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn the_file_wins_over_consuls_variables_and_an_address_in_store_over_theirs() {
        let plain = opening(&settings("consul"), variables).unwrap();
        assert_eq!(plain.consul().address.to_string(), "http://10.0.0.1:8500");
        assert_eq!(plain.consul.token, TokenSettings::File("/var/token".into()));

        let mut given = settings("consul:http://127.0.0.1:8501");
        given.token_file = Some("/etc/token".into());
        let given = opening(&given, variables).unwrap();
        assert_eq!(given.consul().address.to_string(), "http://127.0.0.1:8501");
        assert_eq!(given.consul.token, TokenSettings::File("/etc/token".into()));
        assert_eq!(given.consul.tls.ca_file, Some("/var/ca.pem".into()));
    }

    #[test]
    fn a_broken_variable_of_consul_stops_only_who_uses_consul() {
        let broken = |name: &str| (name == "CONSUL_HTTP_SSL").then(|| "perhaps".to_owned());
        assert!(opening(&settings("consul"), broken).is_err());
        assert!(opening(&settings("dir:/x"), broken).is_ok());
    }
}
