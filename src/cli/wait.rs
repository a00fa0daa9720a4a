//! `--wait`: the option of commands that wait for an end, in requests that each wait a part of the
//! time.

use std::time::{Duration, Instant};

use super::console::note;
use super::exit::{CommandError, CommandExit};

/// Maximum wait of one request.
const PART: Duration = Duration::from_secs(50);
/// Timeout of a request that waits.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(75);
/// Maximum outage of the node of a command that follows a resource.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// Pause between two requests during an outage.
const PAUSE: Duration = Duration::from_millis(500);
/// Value of the option without a duration.
const UNTIL_END: &str = "end";

/// Option of a command that waits for an end.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Wait for the end, which decides the exit code: at most for a duration, for example 30s or
    /// 10m, or without a limit
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = UNTIL_END,
        value_parser = limit
    )]
    wait: Option<WaitLimit>,
}

/// Maximum wait; `None`: until the end.
#[derive(Clone, Copy, Debug)]
struct WaitLimit(Option<Duration>);

fn limit(text: &str) -> Result<WaitLimit, String> {
    if text == UNTIL_END {
        return Ok(WaitLimit(None));
    }
    orlog_model::parse_duration(text)
        .map(|limit| WaitLimit(Some(limit)))
        .map_err(|error| {
            format!(
                "{error}; write a duration, for example --wait 30s, or --wait as the last argument \
                 to wait without a limit"
            )
        })
}

/// Wait of a command, from its begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// `None`: until the end.
    until: Option<Instant>,
}

impl WaitArgs {
    /// Begins the wait; `None` without the option.
    pub(crate) fn begin(self) -> Option<Waiting> {
        let WaitLimit(limit) = self.wait?;
        // A limit beyond the range of the clock is none.
        Some(Waiting {
            until: limit.and_then(|limit| Instant::now().checked_add(limit)),
        })
    }
}

impl Waiting {
    /// Returns a wait that is over: one request that does not wait.
    pub(crate) fn over() -> Self {
        Self {
            until: Some(Instant::now()),
        }
    }

    /// Returns a wait without a limit.
    pub(crate) fn unlimited() -> Self {
        Self { until: None }
    }

    /// Returns whether its time has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Returns the parameter of the next request, which waits for a part of the time.
    pub(crate) fn next_part(&self) -> (&'static str, String) {
        let rest = self.until.map_or(PART, |until| {
            // A limit that has passed is 0: one request that does not wait.
            until.saturating_duration_since(Instant::now())
        });
        ("wait", format!("{}ms", rest.min(PART).as_millis()))
    }
}

/// Outage of the node of a command that follows a resource: a restart or a takeover takes some
/// seconds.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_connected: bool,
    since: Option<Instant>,
}

impl Outage {
    /// Returns the response; `None`, after a pause, if the request is to be repeated, because the
    /// node responded before and has not been unavailable for too long.
    ///
    /// # Errors
    /// Those of the request that another one does not fix.
    pub(crate) async fn bridge<T>(
        &mut self,
        result: Result<T, CommandError>,
    ) -> Result<Option<T>, CommandError> {
        let error = match result {
            Ok(response) => {
                *self = Self {
                    is_connected: true,
                    since: None,
                };
                return Ok(Some(response));
            }
            Err(error) => error,
        };
        // Before the first response, the URL may be wrong: waiting would only delay the message.
        if !self.is_connected || error.exit() != CommandExit::Unavailable {
            return Err(error);
        }

        // One note for each outage, not one for each request.
        if self.since.is_none() {
            note(&format!("{error}; trying again for {MAX_OUTAGE:?}"));
        }
        // From the first failed request: time without requests does not count.
        if self.since.get_or_insert_with(Instant::now).elapsed() >= MAX_OUTAGE {
            return Err(error);
        }

        tokio::time::sleep(PAUSE).await;
        Ok(None)
    }
}

/// Returns the error of a command that waited long enough. `subject` is for example `the flow is
/// running`.
pub(crate) fn not_ended(subject: &str, remedy: &str) -> CommandError {
    CommandError::new(
        CommandExit::Unavailable,
        format!("{subject}: it has not ended; {remedy}"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        file: String,
        #[command(flatten)]
        wait: WaitArgs,
    }

    fn parse(args: &[&str]) -> Result<Option<Waiting>, String> {
        let parsed = Command::try_parse_from([&["c"], args].concat());
        parsed
            .map(|command| command.wait.begin())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn wait_has_a_limit_or_lasts_until_the_end() {
        assert!(parse(&["f"]).unwrap().is_none());
        let unlimited = parse(&["f", "--wait"]).unwrap().unwrap();
        assert!(!unlimited.is_over() && unlimited.next_part().1 == "50000ms");
        for args in [["f", "--wait", "1h"], ["--wait", "1h", "f"]] {
            let limited = parse(&args).unwrap().unwrap();
            assert!(
                !limited.is_over() && limited.until.is_some() && limited.next_part().1 == "50000ms"
            );
        }
        let over = parse(&["f", "--wait", "0s"]).unwrap().unwrap();
        assert!(over.is_over() && over.next_part().1 == "0ms");
    }

    #[tokio::test(start_paused = true)]
    async fn outage_is_bridged_for_a_limited_time_and_only_after_a_response() {
        let unavailable = || Err(CommandError::new(CommandExit::Unavailable, "no response"));
        let mut outage = Outage::default();
        assert!(
            outage.bridge::<u8>(unavailable()).await.is_err(),
            "the URL may be wrong"
        );
        assert_eq!(outage.bridge(Ok(1)).await.unwrap(), Some(1));
        assert_eq!(outage.bridge::<u8>(unavailable()).await.unwrap(), None);
        let denied = Err(CommandError::new(CommandExit::Rejected, "revoked"));
        assert!(outage.bridge::<u8>(denied).await.is_err());
        outage.since = Some(Instant::now().checked_sub(MAX_OUTAGE).unwrap());
        assert!(outage.bridge::<u8>(unavailable()).await.is_err());
        assert_eq!(outage.bridge(Ok(2)).await.unwrap(), Some(2));
        assert_eq!(
            outage.bridge::<u8>(unavailable()).await.unwrap(),
            None,
            "a new outage"
        );
    }

    #[test]
    fn argument_in_place_of_the_duration_is_an_error_with_its_remedy() {
        let error = parse(&["--wait", "flow.yaml"]).unwrap_err();
        assert!(
            error.contains("'flow.yaml' for '--wait [<DURATION>]'"),
            "{error}"
        );
        assert!(error.contains("--wait as the last argument"), "{error}");
    }
}
