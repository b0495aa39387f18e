//! `haplane ready`: back into rotation.

use haplane_core::outlook::Outlook;
use haplane_core::resolve::Absent;
use haplane_core::target::{Among, Target};
use haplane_core::{Desired, Value};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::{ReadyOptions, WriteOptions};
use crate::command::targets;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::writer::{Outcome, Writer};

/// How a key says ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The key is deleted: what is behind it decides.
    Left,
    /// The key says `ready`, whatever is behind it.
    Written,
}

/// Brings back what the targets name.
pub async fn run(session: &Session, options: &ReadyOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to bring back: a key, a quoted glob, or -z ZONE",
        ));
    }
    let word = if options.explicit {
        Word::Written
    } else {
        Word::Left
    };
    ready(session, &options.write, &targets, word).await
}

/// Writes, says what keeps rows out all the same, and proves.
pub async fn ready(
    session: &Session,
    options: &WriteOptions,
    targets: &[Target],
    word: Word,
) -> Result<Report, Failure> {
    let mut writer = Writer::prepare(session, options, targets, Among::Rows).await?;
    let value = (word == Word::Written).then_some(Value::lasting(Desired::READY));
    let wanted = writer.wanted(value);
    let kept_out = kept_out(&writer, value);
    let outcome = writer.write(&wanted).await?;
    advise(session, &outcome, word);
    for one in &kept_out {
        session.output.warn(&format!(
            "{} is still kept out of rotation by {} = {} (haplane why {0} tells more)",
            one.row, one.by, one.value
        ));
    }
    let mut report = writer.finish(&outcome).await?;
    if let Some(document) = report.document.as_object_mut() {
        let told: Vec<_> = kept_out
            .iter()
            .map(|one| json!({"row": one.row, "key": one.by, "value": one.value}))
            .collect();
        document.insert("kept_out".to_owned(), json!(told));
    }
    Ok(report)
}

/// A row that another key keeps out of rotation.
struct KeptOut {
    row: String,
    by: String,
    value: String,
}

fn kept_out(writer: &Writer<'_>, value: Option<Value>) -> Vec<KeptOut> {
    let present = Outlook::present(&writer.snapshot, Timestamp::now());
    let after = present.with(writer.keys.iter().map(|key| (key.clone(), value)));
    let known = &writer.knowledge.known;
    let still = |row: &haplane_core::Key| {
        let keys = known.rows.get(row)?;
        let (by, desired) = after.deciding(keys)?;
        (!desired.in_rotation()).then(|| KeptOut {
            row: row.to_string(),
            by: by.to_string(),
            value: desired.to_string(),
        })
    };
    known
        .rows_of(&writer.keys)
        .into_iter()
        .filter_map(still)
        .collect()
}

fn advise(session: &Session, outcome: &Outcome, word: Word) {
    let from_drain: Vec<&str> = outcome
        .written
        .changed
        .iter()
        .filter(|one| {
            one.before
                .as_deref()
                .is_some_and(|text| text.starts_with("drain"))
        })
        .map(|one| one.key.as_str())
        .collect();
    if !from_drain.is_empty() {
        session.output.note(&format!(
            "from drain, traffic comes back at once: HAProxy's slowstart ramps only what leaves maint ({})",
            from_drain.join(", ")
        ));
    }
    if word == Word::Left && session.settings.agent.absent == Absent::Keep {
        session.output.warn(
            "absent = \"keep\": without a key rows stay as they are; --explicit writes ready and brings them back",
        );
    }
}
