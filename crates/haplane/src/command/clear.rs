//! `haplane clear`: deletes keys.

use haplane_core::target::Among;

use crate::cli::ClearOptions;
use crate::command::targets;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Session;
use crate::writer::Writer;

/// Deletes the keys that the targets name.
pub async fn run(session: &Session, options: &ClearOptions) -> Result<Report, Failure> {
    let targets = targets(&options.selection.targets, &options.selection.zones)?;
    if targets.is_empty() {
        return Err(Failure::usage(
            "name what to clear: a key, a quoted glob, or -z ZONE",
        ));
    }
    let mut writer = Writer::prepare(session, &options.write, &targets, Among::RowsAndKeys).await?;
    let outcome = writer.write(&writer.wanted(None)).await?;
    writer.finish(&outcome).await
}
