//! Every metric there is: the one table of names, types, labels and meanings. Nothing can be shown that is not in it, and
//! `docs/telemetry.md` says the same.

use Kind::{Counter, Gauge, Histogram};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Under which it is asked for; a histogram's series end with `_bucket`, `_sum` and `_count` besides.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The labels of its series.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

impl Spec {
    /// `seconds` or `bytes`; `None` where it counts things.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit))
    }
}

/// The metric with this name.
#[must_use]
pub fn of(name: &str) -> Option<&'static Spec> {
    ALL.iter().find(|spec| spec.name == name)
}

const fn spec(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Spec {
    Spec { name, kind, labels, help }
}

/// All of them.
pub const ALL: &[Spec] = &[
    // Events and instances.
    spec("orlog_events_ingested_total", Counter, &[], "Messages taken from the bus"),
    spec(
        "orlog_consumer_lag",
        Gauge,
        &["stream", "shard"],
        "Messages in a stream behind the last one that a shard is done with",
    ),
    spec("orlog_bus_connected", Gauge, &[], "1 while the bus can be reached"),
    spec(
        "orlog_stream_breaks_found_total",
        Counter,
        &["stream", "found"],
        "Streams that were not what they were at the checkpoint",
    ),
    spec("orlog_inputs_dispatched_total", Counter, &[], "Inputs brought to instances"),
    spec("orlog_inputs_ignored_total", Counter, &[], "Inputs that changed nothing"),
    spec("orlog_early_inputs_kept_total", Counter, &[], "Inputs kept that came before their instance"),
    spec(
        "orlog_early_inputs_dropped_total",
        Counter,
        &[],
        "Inputs dropped because their instance did not begin in time",
    ),
    spec("orlog_transitions_committed_total", Counter, &[], "Transitions made durable"),
    spec("orlog_instances_stuck", Gauge, &["saga"], "Instances that wait for a person to decide"),
    spec("orlog_instances_paused", Gauge, &["saga"], "Instances that a person or a fault has paused"),
    spec(
        "orlog_instances_stuck_oldest_seconds",
        Gauge,
        &["saga"],
        "Since when the first of them is stuck; 0 where none is",
    ),
    spec("orlog_instances_live", Gauge, &[], "Instances in memory"),
    spec("orlog_instances_activated_total", Counter, &[], "Instances brought into memory"),
    spec("orlog_instances_passivated_total", Counter, &[], "Instances that left memory"),
    spec("orlog_dead_letters_kept_total", Counter, &["reason"], "Inputs and messages set aside"),
    spec("orlog_definitions_collected_total", Counter, &[], "Definitions dropped because nobody used them"),
    spec("orlog_instances_purged_total", Counter, &[], "Instances kept long enough and forgotten"),
    spec("orlog_tasks_purged_total", Counter, &[], "Tasks kept long enough and forgotten"),
    spec("orlog_dead_letters_purged_total", Counter, &[], "Dead letters kept long enough and forgotten"),
    // Tenants.
    spec("orlog_tenant_transitions_total", Counter, &["tenant"], "Transitions made durable for a tenant"),
    spec("orlog_tenant_instances_started_total", Counter, &["tenant"], "Instances begun for a tenant"),
    spec(
        "orlog_tenant_instances_ended_total",
        Counter,
        &["tenant", "status"],
        "Instances of a tenant that ended",
    ),
    spec(
        "orlog_tenant_instances_stuck_total",
        Counter,
        &["tenant"],
        "Instances of a tenant that became stuck",
    ),
    spec(
        "orlog_tenant_dead_letters_total",
        Counter,
        &["tenant"],
        "Inputs and messages of a tenant set aside",
    ),
    // Actors and mailboxes.
    spec("orlog_actors_live", Gauge, &["kind"], "Actors that live"),
    spec(
        "orlog_actors_restarted_total",
        Counter,
        &["supervisor", "kind"],
        "Actors started anew after a death",
    ),
    spec("orlog_mailbox_depth", Gauge, &["kind"], "Messages that wait for the actors of a kind"),
    spec("orlog_mailbox_deepest_depth", Gauge, &[], "Inputs in the deepest mailbox of an instance"),
    spec(
        "orlog_instance_mailbox_depth",
        Histogram,
        &[],
        "Inputs in the mailbox of each live instance, at this moment",
    ),
    // Commits and the store.
    spec("orlog_commits_total", Counter, &[], "Groups committed"),
    spec("orlog_commit_changes", Histogram, &[], "Changes in a group"),
    spec("orlog_commit_seconds", Histogram, &[], "Time to commit a group"),
    spec("orlog_store_fsync_seconds", Histogram, &["shard"], "Time of one fsync of the journal"),
    spec("orlog_store_full", Gauge, &[], "1 while there is no room"),
    spec("orlog_store_position", Gauge, &["shard"], "Commits ever made"),
    spec("orlog_store_unfolded_commits", Gauge, &["shard"], "Commits that only the journal has"),
    spec("orlog_store_fold_failing", Gauge, &["shard"], "1 while the tables cannot be brought up to date"),
    spec("orlog_store_overlay_bytes", Gauge, &["shard"], "Memory of what only the journal has"),
    spec("orlog_store_journal_bytes", Gauge, &["shard"], "Journal on disk"),
    spec("orlog_store_tables_bytes", Gauge, &["shard"], "Tables on disk"),
    spec("orlog_store_tables_max_bytes", Gauge, &["shard"], "What the tables may grow to"),
    spec("orlog_store_pages", Gauge, &["shard"], "Pages of the tables on disk"),
    spec("orlog_store_free_pages", Gauge, &["shard"], "Pages of them that hold nothing"),
    spec("orlog_store_readers", Gauge, &["shard"], "Transactions that read the tables"),
    spec("orlog_store_rows", Gauge, &["shard", "table"], "Rows in a table on disk"),
    spec("orlog_disk_free_bytes", Gauge, &[], "Free room on the disk of the data folder"),
    spec("orlog_disk_size_bytes", Gauge, &[], "Size of the disk of the data folder"),
    spec("orlog_log_epoch", Gauge, &["shard"], "The epoch in which this node owns the shard"),
    spec("orlog_log_unavailable", Gauge, &["shard"], "1 while commits wait for the log"),
    spec("orlog_log_append_seconds", Histogram, &["shard"], "Time until the log has a commit"),
    spec(
        "orlog_log_commits_behind_snapshot",
        Gauge,
        &["shard"],
        "Commits that the last snapshot does not hold",
    ),
    spec("orlog_log_behind_snapshot_bytes", Gauge, &["shard"], "Size of them"),
    spec("orlog_log_snapshot_failing", Gauge, &["shard"], "1 while snapshots cannot be saved"),
    // Work, timers and effects.
    spec("orlog_outbox_depth", Gauge, &["shard", "kind"], "Work items not done"),
    spec(
        "orlog_outbox_oldest_age_seconds",
        Gauge,
        &["shard", "kind"],
        "Age of the first of them; 0 where there is none",
    ),
    spec("orlog_work_offered_total", Counter, &[], "Work items offered by the relay"),
    spec("orlog_timers_armed", Gauge, &["shard"], "Timers that are set"),
    spec(
        "orlog_timers_due",
        Gauge,
        &["shard"],
        "Timers that are due and have not been dealt with, 1000 at most",
    ),
    spec(
        "orlog_timers_overdue_seconds",
        Gauge,
        &["shard"],
        "For how long the first of them has been due; 0 where none is",
    ),
    spec("orlog_timers_fired_total", Counter, &[], "Timers fired"),
    spec("orlog_timer_late_seconds", Histogram, &[], "How late timers fired"),
    spec("orlog_effects_performed_total", Counter, &["upstream", "outcome"], "Work items done"),
    spec(
        "orlog_effect_seconds",
        Histogram,
        &["upstream", "outcome"],
        "Time from offer to outcome, all attempts and pauses",
    ),
    spec("orlog_effect_attempts_total", Counter, &["upstream", "ending"], "Attempts at work items"),
    spec("orlog_effect_attempt_seconds", Histogram, &["upstream"], "Time of one attempt"),
    spec("orlog_breaker_state", Gauge, &["upstream"], "0 closed, 1 half open, 2 open"),
    spec("orlog_breaker_openings_total", Counter, &["upstream"], "How often the breaker has opened"),
    spec("orlog_upstream_in_flight", Gauge, &["upstream"], "Work items that hold a place at the upstream"),
    spec("orlog_upstream_retries_left", Gauge, &["upstream"], "Retries that its budget allows now"),
    // The node.
    spec("orlog_accepting", Gauge, &[], "1 while new work is taken"),
    spec("orlog_shards_up", Gauge, &[], "1 while every shard is up"),
    spec("orlog_shard_owned", Gauge, &["shard"], "1 where this node runs the shard"),
    spec("orlog_build_info", Gauge, &["version"], "1"),
    spec("orlog_http_requests_total", Counter, &["route", "method", "status"], "Requests answered"),
    spec("orlog_http_request_seconds", Histogram, &["route"], "Time from a request's head to its answer's"),
    spec("orlog_telemetry_spans_sent_total", Counter, &[], "Spans that the collector has taken"),
    spec(
        "orlog_telemetry_spans_dropped_total",
        Counter,
        &[],
        "Spans dropped: no room in the queue, or not taken by the collector",
    ),
    spec("orlog_telemetry_logs_sent_total", Counter, &[], "Log lines that the collector has taken"),
    spec(
        "orlog_telemetry_logs_dropped_total",
        Counter,
        &[],
        "Log lines dropped: no room in the queue, or not taken by the collector",
    ),
    spec("process_cpu_seconds_total", Counter, &[], "Processor time used"),
    spec("process_resident_memory_bytes", Gauge, &[], "Memory in use"),
    spec("process_open_fds", Gauge, &[], "Open files"),
    spec("process_max_fds", Gauge, &[], "Open files allowed"),
    spec("process_start_time_seconds", Gauge, &[], "When the process began, since 1970"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let mut seen = std::collections::BTreeSet::new();
        for spec in ALL {
            let name = spec.name;
            assert!(seen.insert(name), "{name} stands there twice");
            assert!(name.starts_with("orlog_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), spec.kind == Kind::Counter, "{name}");
            assert!(!name.contains("micro") && !name.contains("milli"), "{name}: base units");
            assert!(!spec.help.ends_with('.') && !spec.help.is_empty(), "{name}");
        }
    }
}
