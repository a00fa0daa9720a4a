//! Lines of a flow: a page of them, from the store of this pod.

use std::time::Duration;

use orlog_model::InstanceKey;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::resources::flows::Flow;
use crate::resources::sagas::flow::step_of;
use crate::resources::sagas::resource::missing;
use crate::server::page::{PageBuilder, PageLimits};
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;
use orlog_node::sagas::state::hidden_values;

/// Interval in which an ended flow is read again while lines of it wait to be stored.
const UNSAVED_CHECK: Duration = Duration::from_millis(200);

/// Lines of a flow.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct LinePage {
    /// Lines, oldest first.
    pub(super) items: Vec<LineView>,
    /// Number of the last line that was read; `after` of the next page.
    pub(super) last: u64,
    /// Number of the oldest stored line; earlier ones are deleted.
    pub(super) first: u64,
    /// Whether the flow has ended and there are no more lines.
    pub(super) ended: bool,
    /// Whether lines wait to be stored.
    #[serde(skip)]
    pub(super) has_unsaved: bool,
}

/// Line of a job.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub(super) struct LineView {
    /// Number in the flow, from 1.
    pub(super) number: u64,
    /// Job, or its element: `cut[2]`.
    pub(super) job: String,
    /// Time of receipt.
    #[schema(format = "date-time")]
    pub(super) at: String,
    /// Text.
    pub(super) text: String,
}

/// Lines to read.
#[derive(Clone)]
pub(super) struct LineRequest {
    pub(super) key: InstanceKey,
    pub(super) job: Option<String>,
    pub(super) after: u64,
    pub(super) limits: PageLimits,
}

/// Returns the next lines, and advances the request; waits for them until a time, or until the flow
/// has ended.
pub(super) async fn next(
    instances: &Instances,
    request: &mut LineRequest,
    until: Instant,
) -> Result<LinePage, Problem> {
    loop {
        // Registered before the read: lines that are stored after it wake the request, and other
        // commits do not.
        let waiter = instances.watch_lines(&request.key);
        let page = read(instances, request).await?;
        let has_advanced = page.last > request.after;
        request.after = page.last;
        // Before the waiter is needed: a page without a wait succeeds also while the shard
        // registers none.
        if !page.items.is_empty() || page.ended || Instant::now() >= until {
            return Ok(page);
        }
        if has_advanced {
            // The lines belong to other jobs.
            continue;
        }

        let next_check = if page.has_unsaved {
            until.min(Instant::now() + UNSAVED_CHECK)
        } else {
            until
        };
        let Ok(mut waiter) = waiter else {
            return unless_moving(instances, page);
        };

        // A wake-up only means that lines can be there; the loop reads again.
        tokio::select! {
            is_running = waiter.woken() => if !is_running {
                return unless_moving(instances, page);
            },
            () = tokio::time::sleep_until(next_check) => {}
        }
    }
}

/// Returns a page without lines while the node drains; otherwise the shard of the flow moves or
/// restarts.
fn unless_moving(instances: &Instances, page: LinePage) -> Result<LinePage, Problem> {
    // A drain ends the wait as its end would; after a move, only another pod has further lines.
    if instances.request.health().accepting {
        Err(Problem::moving())
    } else {
        Ok(page)
    }
}

async fn read(instances: &Instances, request: &LineRequest) -> Result<LinePage, Problem> {
    let LineRequest {
        key,
        job,
        after,
        limits,
    } = request.clone();
    let api = &instances.request;
    api.read(move |scope| {
        // The shard was here when the request arrived.
        let reader = scope.reader(&key).ok_or_else(Problem::moving)?;
        let instance = reader
            .instance(&key)?
            .ok_or_else(|| missing::<Flow>(&key))?;
        // In this order: the lines of a flow that has ended are received, those that do not wait
        // are stored.
        let has_unsaved = scope.has_unsaved_lines(&key);
        let (first, _) = reader.job_log_range(&key)?;
        let found = reader.job_log(&key, after, limits.entries)?;
        let hidden = hidden_values(scope.stores(), &instance);
        // A client stops at `ended`, so that it is set only when nothing is left to read or to
        // store.
        let ended = found.is_empty() && instance.status.is_final() && !has_unsaved;
        let is_of = |tag: &str| {
            job.as_ref()
                .is_none_or(|job| tag == job || step_of(tag) == job)
        };

        // A read returns whole chunks, so that a page can have more lines than its limit of
        // entries; its size is limited.
        let mut page = PageBuilder::new(PageLimits {
            entries: usize::MAX,
            ..limits
        });
        let mut last = after;

        for line in found {
            if is_of(line.job.as_str()) {
                let view = LineView {
                    number: line.number,
                    job: line.job.to_string(),
                    at: line.line.at.to_string(),
                    text: hidden.remove_from(&line.line.text),
                };
                if !page.push(view, line.number.to_string()) {
                    break;
                }
            }
            // Lines of other jobs advance the position, too: the next page does not read them
            // again.
            last = line.number;
        }

        Ok(LinePage {
            items: page.finish(None).entries,
            last,
            first,
            ended,
            has_unsaved,
        })
    })
    .await
}
