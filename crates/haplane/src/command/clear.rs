//! `haplane clear`: deletes keys.

use haplane_core::target::Among;

use crate::cli::ClearOptions;
use crate::command::targets;
use crate::exit::Failure;
use crate::output::Report;
use crate::session::Session;
use crate::write::Wanted;
use crate::writer::Writer;

/// Deletes the keys that the targets name.
pub async fn run(session: &Session, options: &ClearOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to clear: a key, a quoted glob, or -z ZONE",
        ));
    }
    let writer = Writer::prepare(session, &options.write, &targets, Among::Stored).await?;
    let wanted: Vec<Wanted> = writer
        .keys()
        .iter()
        .cloned()
        .map(|key| Wanted { key, value: None })
        .collect();
    writer.write(&wanted).await
}
