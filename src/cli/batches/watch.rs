//! Progress of a batch until it ends or waits: a bar on a terminal, otherwise a line for each
//! change.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::cli::client::ApiClient;
use crate::cli::console::note;
use crate::cli::exit::CommandError;

/// Interval of the requests.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches a batch until it ends or waits; returns it.
pub(super) async fn until_end(
    client: &ApiClient,
    path: &str,
    mut batch: Value,
) -> Result<Value, CommandError> {
    let mut progress = Progress::new();
    while is_running(&batch) {
        progress.show(&batch);
        tokio::time::sleep(INTERVAL).await;
        batch = client.get(path, &[]).await?;
    }
    progress.finish(&batch);
    Ok(batch)
}

fn is_running(batch: &Value) -> bool {
    // A batch that is paused or awaits its approval needs a user, so that waiting would not end.
    matches!(batch["status"].as_str(), Some("running" | "stopping"))
}

/// Display of the progress, on standard error.
struct Progress {
    bar: Option<ProgressBar>,
    last: String,
}

impl Progress {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:32} {percent}% {msg} (ETA {eta})");
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| ProgressBar::new(0).with_style(style.expect("the template is valid")));
        Self {
            bar,
            last: String::new(),
        }
    }

    fn show(&mut self, batch: &Value) {
        let count = |name: &str| batch[name].as_u64().unwrap_or_default();
        let matched = count("matched");
        let processed = count("done") + count("skipped") + count("failed");
        let line = if batch["counted"] == true {
            format!(
                "{processed} of {matched}: {} done, {} skipped, {} failed",
                count("done"),
                count("skipped"),
                count("failed")
            )
        } else {
            format!("counting: {matched} match")
        };

        if let Some(bar) = &self.bar {
            // Instances that start to match after the count are processed too, beyond the counted
            // number.
            bar.set_length(matched.max(processed));
            bar.set_position(processed);
            bar.set_message(line);
        } else if line != self.last {
            note(&line);
            self.last = line;
        }
    }

    fn finish(mut self, batch: &Value) {
        // The end can follow within one interval, so that its counts were not shown yet.
        self.show(batch);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
