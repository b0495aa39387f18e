//! Rows as forecast against rows as a process shows them.

use haplane_haproxy::cfg::{Address, Config};
use haplane_haproxy::forecast::{ForecastRow, StartAddress, StateFiles, forecast};
use haplane_haproxy::server_state::ServerRow;

/// Every difference, in words; empty when the process has exactly what was forecast. Also how many rows were compared.
pub(crate) fn differences(
    config: &Config,
    files: &StateFiles,
    shown: &[ServerRow],
) -> (Vec<String>, usize) {
    let forecasts = forecast(config, files);
    let mut found = Vec::new();
    let names = |rows: Vec<String>| rows.join(" ");
    let ours = names(forecasts.iter().map(|row| row.row.to_string()).collect());
    let theirs = names(shown.iter().map(|row| row.row.to_string()).collect());
    if ours != theirs {
        found.push(format!("rows: forecast {ours}, shown {theirs}"));
    }
    let settings: Vec<_> = config.rows().map(|row| &row.server.settings).collect();
    for ((ours, theirs), settings) in forecasts.iter().zip(shown).zip(settings) {
        let mut expect = |what: &str, forecast: String, shown: String| {
            if forecast != shown {
                found.push(format!(
                    "{} {what}: forecast {forecast}, shown {shown}",
                    ours.row
                ));
            }
        };
        match &ours.address.value {
            StartAddress::Ip(ip) => {
                expect("address", show(Some(ip)), show(theirs.address.as_ref()));
            }
            StartAddress::Local(_) | StartAddress::Unresolved => {
                expect("address", "-".to_owned(), show(theirs.address.as_ref()));
            }
            StartAddress::Lookup(name) => expect("name", name.clone(), show(theirs.fqdn.as_ref())),
        }
        expect("port", ours.port.value.to_string(), theirs.port.to_string());
        expect(
            "weight",
            ours.weight.value.to_string(),
            theirs.uweight.to_string(),
        );
        expect(
            "configured weight",
            ours.configured_weight.to_string(),
            theirs.iweight.to_string(),
        );
        expect(
            "admin",
            ours.admin.value.to_string(),
            theirs.admin.to_string(),
        );
        expect(
            "check port",
            show(ours.check_port.value.as_ref()),
            show(theirs.check_port.as_ref()),
        );
        expect(
            "agent port",
            show(ours.agent_port.value.as_ref()),
            show(theirs.agent_port.as_ref()),
        );
        expect_address(
            &mut expect,
            "check address",
            ours.check_address.value.as_ref(),
            theirs.check_address,
        );
        expect_address(
            &mut expect,
            "agent address",
            ours.agent_address.value.as_ref(),
            theirs.agent_address,
        );
        expect(
            "check",
            checks(settings.check.enabled.value, ours.check_enabled.value),
            bits(theirs.check),
        );
        expect(
            "agent",
            checks(settings.agent.enabled.value, ours.agent_enabled.value),
            bits(theirs.agent),
        );
        // Checks soon decide the operational state; without one it stays what it was at start.
        if !settings.check.enabled.value && settings.track.is_none() {
            expect(
                "operational state",
                format!("{:?}", ours.op_state.value),
                format!("{:?}", theirs.op_state),
            );
        }
    }
    (found, forecasts.len())
}

fn show<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

fn checks(configured: bool, enabled: bool) -> String {
    format!("configured {configured}, enabled {}", configured && enabled)
}

fn bits(bits: haplane_haproxy::server_state::CheckBits) -> String {
    format!(
        "configured {}, enabled {}",
        bits.is_configured(),
        bits.is_enabled()
    )
}

/// A name stands for an address that we do not look up.
fn expect_address(
    expect: &mut impl FnMut(&str, String, String),
    what: &str,
    ours: Option<&Address>,
    theirs: Option<std::net::IpAddr>,
) {
    if let Some(Address::Name(_)) = ours {
        return;
    }
    expect(what, show(ours), show(theirs.as_ref()));
}

/// Fails with all differences and the files that led to them.
pub(crate) fn assert_same(
    what: &str,
    config: &Config,
    files: &StateFiles,
    shown: &[ServerRow],
) -> usize {
    let (found, rows) = differences(config, files, shown);
    let text = String::from_utf8_lossy(config.files()[0].bytes());
    assert!(
        found.is_empty(),
        "{what}:\n{}\n--- haproxy.cfg\n{text}",
        found.join("\n")
    );
    rows
}

/// For a message: a row that is expected to exist.
pub(crate) fn row<'a>(forecasts: &'a [ForecastRow], name: &str) -> &'a ForecastRow {
    forecasts
        .iter()
        .find(|row| row.row.to_string() == name)
        .unwrap_or_else(|| panic!("no row {name}"))
}
