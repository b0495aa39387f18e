//! A write that was stopped: by whom, and what was written before.

use haplane_core::Key;
use haplane_store::{CommitError, Store};

use super::report::count;
use super::{Outcome, Writer};
use crate::failure::Failure;
use crate::write::Interrupted;

impl Writer<'_> {
    /// What stopped a write, and which keys were written before.
    pub(super) async fn interrupted(
        &self,
        interrupted: Interrupted,
        foreseen: &Outcome,
    ) -> Failure {
        let Interrupted {
            written,
            missing,
            error,
        } = interrupted;
        let culprits = match &error {
            CommitError::Conflict { keys } => Some(self.who_changed(keys).await),
            _ => None,
        };
        let mut failure = Failure::from(error);
        if let Some(culprits) = culprits {
            failure.message = format!("{}\n{culprits}", failure.message);
        }
        if !written.changed.is_empty() {
            let names: Vec<&str> = written.changed.iter().map(|one| one.key.as_str()).collect();
            failure.message = format!(
                "{}\nwritten before that: {} ({}); not written: {}; the same command again writes the rest",
                failure.message,
                count(names.len(), "key"),
                names.join(", "),
                count(missing.len(), "key"),
            );
        }
        let outcome = Outcome {
            written,
            ..foreseen.clone()
        };
        failure.document = Some(self.document(&outcome, None));
        failure
    }

    /// Who changed these keys since they were read, and when, as far as the log tells.
    pub async fn who_changed(&self, keys: &[Key]) -> String {
        let Ok(now) = self.session.read().await else {
            return "who changed it cannot be read now".to_owned();
        };
        let mut lines = Vec::new();
        for key in keys {
            let stored = now.get(key);
            let invalid = now.get_invalid(key);
            let log_id = stored.map_or(invalid.and_then(|i| i.log_id), |s| s.log_id);
            let entry = match log_id {
                Some(id) => self.session.store.log_entry(id).await.ok().flatten(),
                None => None,
            };
            let value = match (stored, invalid) {
                (Some(stored), _) => stored.value.to_string(),
                (None, Some(invalid)) => format!("{:?}", invalid.text),
                (None, None) => "absent".to_owned(),
            };
            lines.push(match entry {
                Some(entry) => {
                    format!(
                        "{key} is now {value}, by {} at {} ({})",
                        entry.by, entry.at, entry.command
                    )
                }
                None => format!(
                    "{key} is now {value}, changed by hand or deleted: `haplane log` may tell"
                ),
            });
        }
        lines.push("look at it, then run the command again".to_owned());
        lines.join("\n")
    }
}
