//! A reader of agent answers that behaves like HAProxy's own, so that tests can state the contract
//! (`tcpcheck_agent_expect_reply` in HAProxy's tcpcheck.c; every rule here was measured, facts 1).

use crate::admin_state::AdminState;
use crate::weight::Percent;

/// HAProxy reads an answer into one buffer (`tune.bufsize`); a longer line is never a line.
const BUFFER: usize = 16_384;

/// What an answer makes HAProxy do. A `None` leaves that part as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The last administrative word.
    pub admin: Option<AdminState>,
    /// The last percentage.
    pub weight: Option<Percent>,
    /// The last `maxconn:N`.
    pub maxconn: Option<u32>,
    /// The last health word.
    pub health: Option<Health>,
    /// The first word that HAProxy does not know; it reports that one and applies the others.
    pub unknown: Option<String>,
}

/// A health word: the only kind that changes the operational state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// `up`.
    Up,
    /// `down`.
    Down,
    /// `stopped`.
    Stopped,
    /// `fail`.
    Fail,
}

/// Reads what an agent sent until it closed or until the line was complete. `None`: HAProxy ignores
/// the answer and changes nothing, because no line came to its end.
pub fn read_as_haproxy(bytes: &[u8]) -> Option<Reading> {
    let seen = bytes.get(..BUFFER.min(bytes.len()))?;
    let end = seen.iter().position(|b| matches!(b, b'\n' | b'\r'))?;
    let line = seen.get(..end)?;
    // HAProxy works on a C string: it sees nothing after a NUL, so the line has no end.
    if line.contains(&0) {
        return None;
    }
    let line = String::from_utf8_lossy(line);
    let mut reading = Reading::default();
    for word in line.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        if word.starts_with('#') {
            break;
        }
        reading.take(word);
    }
    Some(reading)
}

impl Reading {
    fn take(&mut self, word: &str) {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "ready" => self.admin = Some(AdminState::Ready),
            "drain" => self.admin = Some(AdminState::Drain),
            "maint" => self.admin = Some(AdminState::Maint),
            "up" => self.health = Some(Health::Up),
            "down" => self.health = Some(Health::Down),
            "stopped" => self.health = Some(Health::Stopped),
            "fail" => self.health = Some(Health::Fail),
            _ => self.take_number(&lower, word),
        }
    }

    fn take_number(&mut self, lower: &str, word: &str) {
        if let Some(limit) = lower.strip_prefix("maxconn:") {
            self.maxconn = limit.parse().ok();
        } else if lower.starts_with(|c: char| c.is_ascii_digit()) && lower.contains('%') {
            // Trailing garbage is warned about and leaves the weight alone.
            if let Some(percent) = lower.strip_suffix('%').and_then(|n| n.parse::<u32>().ok()) {
                let capped = u16::try_from(percent)
                    .unwrap_or(u16::MAX)
                    .min(Percent::MAX.get());
                self.weight = Percent::new(capped);
            }
        } else {
            self.unknown.get_or_insert_with(|| word.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(bytes: &[u8]) -> Option<AdminState> {
        read_as_haproxy(bytes).expect("a whole line").admin
    }

    fn ignored(bytes: &[u8]) -> bool {
        read_as_haproxy(bytes).is_none()
    }

    #[test]
    fn lines_as_measured() {
        assert_eq!(admin(b"ready\r\n"), Some(AdminState::Ready));
        assert_eq!(admin(b"DrAiN\n"), Some(AdminState::Drain));
        assert_eq!(admin(b"maint drain ready\n"), Some(AdminState::Ready));
        assert_eq!(admin(b"ready\ndrain\n"), Some(AdminState::Ready));
        assert_eq!(admin(b"blah drain\n"), Some(AdminState::Drain));
        assert_eq!(admin(b"drain,50%\n"), Some(AdminState::Drain));
        assert_eq!(admin(b"\ndrain\n"), None);
        assert!(ignored(b"drain"), "a line without its end");
        assert!(ignored(b"\0\0\0drain\n"));
        let long = format!("drain{}\n", " ".repeat(20_000));
        assert!(ignored(long.as_bytes()), "longer than HAProxy's buffer");
    }

    #[test]
    fn words_behind_a_hash_are_a_comment() {
        let reading = read_as_haproxy(b"drain # ready 50%\n").unwrap();
        assert_eq!(
            (reading.admin, reading.weight),
            (Some(AdminState::Drain), None)
        );
        let glued = read_as_haproxy(b"stopped#x\n").unwrap();
        assert_eq!(
            (glued.health, glued.unknown.as_deref()),
            (None, Some("stopped#x"))
        );
    }

    #[test]
    fn weights_as_measured() {
        let weight = |text: &str| read_as_haproxy(text.as_bytes()).unwrap().weight;
        assert_eq!(weight("300%\n"), Some(Percent::MAX));
        assert_eq!(weight("33.5%\n"), None);
        assert_eq!(weight("50%x\n"), None);
        assert_eq!(weight("-5%\n"), None);
        assert_eq!(weight("50\n"), None);
        assert_eq!(weight("50%\tdrain\n"), Percent::new(50));
    }
}
