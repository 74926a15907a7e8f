//! How soon it is ready, how little it needs.

use hamyon::db::embedded::{self, Embedded, Options};

use crate::Effort;
use crate::stage::{Serving, Stage, data_folder, program, serve};
use crate::table::{Reach, Table, median};

pub async fn measure(stage: &Stage, effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    let (mut given, mut first, mut later, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds.min(3) {
        let serving = stage.serve().await?;
        given.push(serving.ready_after.as_secs_f64());
        serving.stop().await?;

        let folder = data_folder()?;
        let private = || {
            let mut command = serve();
            command.env("HAMYON_DATA_DIR", folder.path());
            command
        };
        let serving = Serving::start(private()).await?;
        first.push(serving.ready_after.as_secs_f64());
        serving.stop().await?;
        let serving = Serving::start(private()).await?;
        later.push(serving.ready_after.as_secs_f64());
        // The first run of the jobs is over by then.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        memory.push(serving.resident_mb()?);
        serving.stop().await?;
        let left: Embedded = embedded::start(Options::new(folder.path())).await?;
        let _ = left.stop().await?;
    }
    table.number("start to ready, database given", median(given), "s", Reach::AtMost(1.0));
    table.number("start to ready, private, first start", median(first), "s", Reach::AtMost(4.0));
    table.number("start to ready, private, later start", median(later), "s", Reach::AtMost(4.0));
    table.number("idle memory", median(memory), "MB", Reach::AtMost(60.0));
    let bytes = u32::try_from(std::fs::metadata(program())?.len())?;
    table.number("release binary", f64::from(bytes) / 1024.0 / 1024.0, "MB", Reach::AtMost(40.0));
    Ok(())
}
