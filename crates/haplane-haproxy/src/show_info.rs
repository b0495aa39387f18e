//! Which process answers: the text of `show info`.

use std::time::Duration;

use thiserror::Error;

/// Why a text is not a whole answer to `show info`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InfoError {
    /// The text stops before the empty line that ends every answer of HAProxy.
    #[error("the answer to `show info` was cut short: no empty line ends it")]
    CutShort,
    /// A line is not `Name: value`: usually HAProxy's own refusal, e.g. `Permission denied`.
    #[error("line {line} of `show info` should be `Name: value`, but reads: {found}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What stands there, shortened.
        found: String,
    },
    /// A value that every HAProxy gives is missing or not readable.
    #[error("`show info` should say {name}, but says: {found}")]
    Value {
        /// HAProxy's own name of the value.
        name: &'static str,
        /// What stands there, shortened; empty when there is none.
        found: String,
    },
}

/// What one HAProxy process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// `Version`, e.g. `2.8.25-5cf5d0683`.
    pub version: String,
    /// `Pid`. Inside a container it is the container's own number.
    pub pid: u32,
    /// `Uptime_sec`.
    pub uptime: Duration,
    /// `Nbproc`: 1 since HAProxy 2.5.
    pub nbproc: u32,
    /// `Process_num`: which of them this one is, from 1.
    pub process_number: u32,
    /// `Nbthread`.
    pub nbthread: u32,
    /// `node`: the host name, or `node` of the configuration.
    pub node: Option<String>,
    /// `description` of the configuration.
    pub description: Option<String>,
    /// `Stopping`: the process is on its way out and only finishes what it has.
    pub stopping: bool,
    /// `CurrConns`: connections at this moment.
    pub connections: Option<u64>,
    /// `Start_time_sec`: when the process started, in seconds since 1970 (2.4 and later).
    pub started_at: Option<u64>,
}

/// Reads the whole answer of a process to `show info`.
///
/// # Errors
///
/// An answer that is cut short or not understood: see [`InfoError`].
pub fn read(text: &str) -> Result<ProcessInfo, InfoError> {
    let values = Values(read_lines(text)?);
    Ok(ProcessInfo {
        version: values.required("Version")?.to_owned(),
        pid: values.required_number("Pid")?,
        uptime: Duration::from_secs(values.required_number("Uptime_sec")?),
        nbproc: values.number("Nbproc")?.unwrap_or(1),
        process_number: values.number("Process_num")?.unwrap_or(1),
        nbthread: values.number("Nbthread")?.unwrap_or(1),
        node: values.get("node").map(str::to_owned),
        description: values
            .get("description")
            .filter(|text| !text.is_empty())
            .map(str::to_owned),
        stopping: values
            .number::<u32>("Stopping")?
            .is_some_and(|stopping| stopping != 0),
        connections: values.number("CurrConns")?,
        started_at: values.number("Start_time_sec")?,
    })
}

/// `Name: value` pairs up to the empty line.
fn read_lines(text: &str) -> Result<Vec<(&str, &str)>, InfoError> {
    let mut values = Vec::new();
    let mut rest = text.trim_start_matches('\n');
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.is_empty() {
            return Ok(values);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| InfoError::Line {
            line: values.len() + 1,
            found: line.chars().take(80).collect(),
        })?;
        values.push((name, value.trim()));
    }
    Err(InfoError::CutShort)
}

struct Values<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Values<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    fn required(&self, name: &'static str) -> Result<&'a str, InfoError> {
        self.get(name).ok_or(InfoError::Value {
            name,
            found: String::new(),
        })
    }

    fn required_number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, InfoError> {
        self.number(name)?.ok_or(InfoError::Value {
            name,
            found: String::new(),
        })
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, InfoError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let wrong = |_| InfoError::Value {
            name,
            found: text.chars().take(80).collect(),
        };
        text.parse().map(Some).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Name: HAProxy\nVersion: 2.8.25-5cf5d0683\nNbthread: 2\nNbproc: 1\nProcess_num: 1\nPid: 8539\n\
        Uptime: 0d 0h00m01s\nUptime_sec: 61\nCurrConns: 3\nnode: lb-01\nStopping: 0\nUnstoppable Jobs: 0\ndescription: \n\n";

    #[test]
    fn one_process() {
        let info = read(ANSWER).unwrap();
        assert_eq!(
            (info.pid, info.uptime, info.nbthread),
            (8539, Duration::from_secs(61), 2)
        );
        assert_eq!(
            (info.version.as_str(), info.node.as_deref()),
            ("2.8.25-5cf5d0683", Some("lb-01"))
        );
        assert_eq!(
            (info.stopping, info.connections, info.description),
            (false, Some(3), None)
        );
    }

    #[test]
    fn every_cut_is_noticed() {
        for end in 0..ANSWER.len() {
            assert!(read(&ANSWER[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_text() {
        let error = read("Permission denied\n\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 1 of `show info` should be `Name: value`, but reads: Permission denied"
        );
        assert!(matches!(read("\n"), Err(InfoError::CutShort)));
        assert!(matches!(
            read("Name: HAProxy\n\n"),
            Err(InfoError::Value {
                name: "Version",
                ..
            })
        ));
        assert!(matches!(
            read(&ANSWER.replace("8539", "x")),
            Err(InfoError::Value { name: "Pid", .. })
        ));
    }
}
