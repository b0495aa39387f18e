//! The host list: one instance a line, or JSON.
//!
//! ```text
//! # address:port [id=…] [zone=…] [weight=1..256] [groups=a,b]
//! 10.0.0.7:8080 id=web-7 zone=us-east-1a
//! [fd00::8]:8080 weight=50 groups=canary
//! ```
//!
//! A bad line is refused by its number and the good ones are served; a text without any good line is no list.

use haplane_core::key::Key;
use haplane_core::slots::{Endpoint, EndpointError, Instance, InstanceId};
use haplane_haproxy::Percent;
use serde_json::{Map, Value};

use super::{Listing, Place};

/// More instances than any pool has.
const MOST_INSTANCES: usize = 100_000;

/// Reads a host list in either form.
///
/// # Errors
///
/// What is wrong with the text as a whole: then there is no list.
pub fn read(text: &str) -> Result<Listing, String> {
    if text.trim_start().starts_with('{') {
        return Err("JSON, but no list: it begins with { and not with [".to_owned());
    }
    let listing = if text.trim_start().starts_with('[') && !begins_with_ipv6(text) {
        read_json(text)?
    } else {
        read_lines(text)
    };
    if listing.instances.len() > MOST_INSTANCES {
        return Err(format!("more than {MOST_INSTANCES} instances"));
    }
    Ok(listing)
}

/// `[fd00::8]:8080` begins like a JSON list.
fn begins_with_ipv6(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    first.parse::<Endpoint>().is_ok()
}

fn read_lines(text: &str) -> Listing {
    let mut listing = Listing::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        listing.push(Place::Line(index + 1), read_line(line));
    }
    listing
}

fn read_line(line: &str) -> Result<Instance, String> {
    let mut words = line.split_whitespace();
    let address = words.next().unwrap_or_default();
    let mut parts = Parts::default();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| format!("{word:?} is not NAME=VALUE"))?;
        let slot = match name {
            "id" => &mut parts.id,
            "zone" => &mut parts.zone,
            "weight" => &mut parts.weight,
            "groups" => &mut parts.groups,
            _ => return Err(format!("{name:?} is none of id, zone, weight and groups")),
        };
        if slot.replace(value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let endpoint: Endpoint = address.parse().map_err(|error| format!("{error}"))?;
    let weight = parts
        .weight
        .map(|text| text.parse::<u64>().map_err(|_| weight_range(text)))
        .transpose()?;
    let groups = parts
        .groups
        .map(|text| text.split(',').collect())
        .unwrap_or_default();
    instance(endpoint, parts.id, parts.zone, weight, groups)
}

#[derive(Default)]
struct Parts<'a> {
    id: Option<&'a str>,
    zone: Option<&'a str>,
    weight: Option<&'a str>,
    groups: Option<&'a str>,
}

fn read_json(text: &str) -> Result<Listing, String> {
    let entries: Vec<Value> =
        serde_json::from_str(text).map_err(|error| format!("not a whole JSON list: {error}"))?;
    let mut listing = Listing::default();
    for (index, entry) in entries.iter().enumerate() {
        listing.push(Place::Entry(index + 1), read_entry(entry));
    }
    Ok(listing)
}

fn read_entry(entry: &Value) -> Result<Instance, String> {
    let entry = entry
        .as_object()
        .ok_or_else(|| format!("{entry} is no object with address and port"))?;
    if let Some(name) = entry.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("{name:?} is none of {}", NAMES.join(", ")));
    }
    let text = |name| optional(entry, name, "a text", Value::as_str);
    let number = |name| optional(entry, name, "a whole number", Value::as_u64);
    let address = text("address")?.ok_or("it has no address")?;
    let port = number("port")?.ok_or("it has no port")?;
    let address = address
        .parse()
        .map_err(|_| format!("{address:?} is not an IP address"))?;
    let endpoint = u16::try_from(port)
        .map_err(|_| EndpointError::Port(port))
        .and_then(|port| Endpoint::new(address, port))
        .map_err(|error| error.to_string())?;
    let groups = optional(entry, "groups", "a list of texts", |value| {
        value.as_array()?.iter().map(Value::as_str).collect()
    })?;
    instance(
        endpoint,
        text("id")?,
        text("zone")?,
        number("weight")?,
        groups.unwrap_or_default(),
    )
}

/// What an entry may have.
const NAMES: [&str; 6] = ["id", "address", "port", "zone", "weight", "groups"];

/// A value that may be absent, or null.
fn optional<'a, T>(
    entry: &'a Map<String, Value>,
    name: &str,
    what: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, String> {
    match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value)
            .map(Some)
            .ok_or_else(|| format!("{name} is {value}, not {what}")),
    }
}

fn instance(
    endpoint: Endpoint,
    id: Option<&str>,
    zone: Option<&str>,
    weight: Option<u64>,
    groups: Vec<&str>,
) -> Result<Instance, String> {
    let id = id.map_or_else(|| endpoint.to_string(), str::to_owned);
    let id: InstanceId = id.parse().map_err(|error| format!("{error}"))?;
    let weight = weight
        .map(|weight| share(weight).ok_or_else(|| weight_range(&weight.to_string())))
        .transpose()?;
    let group = |text: &str| {
        text.parse::<Key>()
            .map_err(|error| format!("{text:?} is no group: {error}"))
    };
    let groups = groups
        .into_iter()
        .filter(|text| !text.is_empty())
        .map(group)
        .collect::<Result<_, _>>()?;
    let zone = zone.filter(|zone| !zone.is_empty()).map(str::to_owned);
    Ok(Instance {
        id,
        endpoint,
        zone,
        weight,
        groups,
    })
}

fn share(weight: u64) -> Option<Percent> {
    u16::try_from(weight)
        .ok()
        .filter(|weight| *weight > 0)
        .and_then(Percent::new)
}

fn weight_range(text: &str) -> String {
    format!("{text:?} is not a weight from 1 to 256")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(listing: &Listing) -> Vec<String> {
        listing
            .instances
            .iter()
            .map(|instance| format!("{}={}", instance.id, instance.endpoint))
            .collect()
    }

    fn refused(listing: &Listing) -> Vec<usize> {
        listing
            .refused
            .iter()
            .map(|refused| refused.place.number())
            .collect()
    }

    #[test]
    fn lines() {
        let listing = read(
            "# rendered\n\
             10.0.0.1:80\n\
             \t 10.0.0.2:80  id=b zone=z1 weight=50 groups=canary,batch # why\r\n\
             \n\
             [fd00::1]:80\n\
             10.0.0.3:70000\n\
             10.0.0.3:0\n\
             web.example:80\n\
             10.0.0.3\n\
             10.0.0.4:80 weight=257\n\
             10.0.0.4:80 wieght=7\n\
             10.0.0.4:80 id=a id=b\n\
             10.0.0.4:80 weight=0\n\
             300.0.0.1:80\n\
             0.0.0.0:80\n\
             [::]:80\n\
             224.0.0.1:80\n\
             255.255.255.255:80\n\
             [fe80::1%eth0]:80\n\
             [::ffff:10.0.0.6]:80\n\
             10.0.0.5:80",
        )
        .unwrap();
        assert_eq!(
            served(&listing),
            [
                "10.0.0.1:80=10.0.0.1:80",
                "b=10.0.0.2:80",
                "[fd00::1]:80=[fd00::1]:80",
                "10.0.0.6:80=10.0.0.6:80",
                "10.0.0.5:80=10.0.0.5:80"
            ]
        );
        assert_eq!(refused(&listing), (6..=19).collect::<Vec<_>>());
        let second = &listing.instances[1];
        assert_eq!(
            (second.zone.as_deref(), second.weight),
            (Some("z1"), Percent::new(50))
        );
        assert_eq!(
            second.groups.iter().map(Key::as_str).collect::<Vec<_>>(),
            ["canary", "batch"]
        );
    }

    #[test]
    fn a_list_that_begins_with_an_ipv6_address_is_no_json() {
        assert_eq!(
            served(&read("[fd00::1]:80 id=a\n").unwrap()),
            ["a=[fd00::1]:80"]
        );
    }

    #[test]
    fn json() {
        let listing = read(
            r#" [{"id": "a", "address": "10.0.0.1", "port": 80, "zone": "z", "weight": 7, "groups": ["g"]},
                {"address": "fd00::1", "port": 80},
                {"address": "10.0.0.1", "port": 70000},
                {"address": "web.example", "port": 80},
                {"address": "10.0.0.1"},
                {"address": "10.0.0.1", "port": 80, "wieght": 1}]"#,
        )
        .unwrap();
        assert_eq!(
            served(&listing),
            ["a=10.0.0.1:80", "[fd00::1]:80=[fd00::1]:80"]
        );
        assert_eq!(refused(&listing), [3, 4, 5, 6]);
        assert_eq!(read("[]").unwrap(), Listing::default());
        let why = |text: &str| {
            let listing = read(text).unwrap();
            listing
                .refused
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            why(
                r#"[7, null, {"port": 80}, {"address": "10.0.0.1", "port": "80"}, {"address": "10.0.0.1", "port": 80.5},
                    {"address": "10.0.0.1", "port": 80, "note": 1}, {"address": "0.0.0.0", "port": 80},
                    {"address": "10.0.0.1", "port": 80, "groups": "g"}, {"address": "10.0.0.1", "port": 80, "id": null}]"#
            ),
            [
                "entry 1 is refused: 7 is no object with address and port",
                "entry 2 is refused: null is no object with address and port",
                "entry 3 is refused: it has no address",
                "entry 4 is refused: port is \"80\", not a whole number",
                "entry 5 is refused: port is 80.5, not a whole number",
                "entry 6 is refused: \"note\" is none of id, address, port, zone, weight, groups",
                "entry 7 is refused: 0.0.0.0 is not the address of one machine",
                "entry 8 is refused: groups is \"g\", not a list of texts",
            ]
        );
        assert!(read("{\"hosts\": []}").unwrap_err().contains("no list"));
        for half in [
            "[",
            "[{\"id\": \"a\"",
            "[{\"address\": \"10.0.0.1\", \"port\": 80}",
        ] {
            assert!(read(half).is_err(), "{half}");
        }
    }

    /// Whatever stands in a file: no line is lost, and what is served can be said again.
    #[test]
    fn every_line_is_served_or_refused() {
        let pieces = [
            "10.0.0.1:80",
            "[fd00::1]:80",
            ":",
            " ",
            "\n",
            "#",
            "id=",
            "weight=",
            "256",
            "0",
            "zone=a",
            ",",
            "[",
            "é",
            "\r\n",
        ];
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let text: String = (0..rng.usize(0..40))
                .filter_map(|_| rng.choice(pieces))
                .collect();
            let listing = read_lines(&text);
            let lines = text
                .lines()
                .filter(|line| !line.split('#').next().unwrap().trim().is_empty());
            assert_eq!(
                listing.instances.len() + listing.refused.len(),
                lines.count(),
                "{text:?}"
            );
            for instance in &listing.instances {
                let again =
                    read_line(&format!("{} id={}", instance.endpoint, instance.id)).unwrap();
                assert_eq!(
                    (again.endpoint, &again.id),
                    (instance.endpoint, &instance.id),
                    "{text:?}"
                );
            }
            // As JSON it is a list or none, never a panic.
            drop(read_json(&text));
        }
    }
}
