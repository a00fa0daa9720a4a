//! Table of all metrics: names, types, labels and descriptions. Metrics that are not in it cannot be
//! registered; `docs/telemetry.md` has the same content.

use MetricKind::{Counter, Gauge, Histogram};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Value that only grows while the process runs.
    Counter,
    /// Value that goes up and down.
    Gauge,
    /// Distribution of values in buckets.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Specification of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Name of the metric; the series of a histogram have the suffixes `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Labels of the series.
    pub labels: &'static [&'static str],
    /// Description of the metric.
    pub help: &'static str,
}

impl MetricSpec {
    /// Returns `seconds` or `bytes`; `None` for a count.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit))
    }
}

/// Returns the metric with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static MetricSpec> {
    ALL.iter().find(|spec| spec.name == name)
}

const fn spec(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind, labels, help }
}

/// All metrics.
pub const ALL: &[MetricSpec] = &[
    // Events and instances.
    spec("orlog_events_ingested_total", Counter, &[], "Messages consumed from the bus"),
    spec(
        "orlog_consumer_lag",
        Gauge,
        &["stream", "shard"],
        "Messages in the stream that the shard has not processed",
    ),
    spec("orlog_bus_connected", Gauge, &[], "1 while the bus is reachable"),
    spec(
        "orlog_bus_messages_rejected_total",
        Counter,
        &["kind"],
        "Messages on NATS that were rejected because their signature is missing or invalid",
    ),
    spec(
        "orlog_stream_anomalies_detected_total",
        Counter,
        &["stream", "kind"],
        "Streams that did not match the stored checkpoint",
    ),
    spec("orlog_streams_lost", Gauge, &[], "Streams that shards do not read because messages are lost"),
    spec("orlog_subscriptions_failing", Gauge, &[], "Subscriptions to streams that fail and are retried"),
    spec("orlog_inputs_delivered_total", Counter, &[], "Inputs delivered to instances"),
    spec("orlog_inputs_ignored_total", Counter, &[], "Inputs ignored without a state change"),
    spec(
        "orlog_inputs_spilled_total",
        Counter,
        &[],
        "Inputs stored because the queue of their instance was full",
    ),
    spec("orlog_spilled_inputs_applied_total", Counter, &[], "Spilled inputs that were applied or dropped"),
    spec(
        "orlog_large_state_transitions_total",
        Counter,
        &[],
        "Transitions to a state larger than half of limits.max_state_size",
    ),
    spec("orlog_early_inputs_buffered_total", Counter, &[], "Inputs buffered before their instance started"),
    spec(
        "orlog_early_inputs_expired_total",
        Counter,
        &[],
        "Buffered inputs that expired before their instance started",
    ),
    spec("orlog_transitions_committed_total", Counter, &[], "Transitions made durable"),
    spec("orlog_instances_stuck", Gauge, &["saga"], "Instances that wait for an operator"),
    spec("orlog_instances_paused", Gauge, &["saga"], "Instances paused by an operator or a crash"),
    spec(
        "orlog_instances_stuck_oldest_age_seconds",
        Gauge,
        &["saga"],
        "Age of the oldest stuck instance; 0 if none",
    ),
    spec("orlog_instances_live", Gauge, &[], "Instances in memory"),
    spec(
        "orlog_instances_quarantined",
        Gauge,
        &[],
        "Instances whose stored data could not be read since the node started",
    ),
    spec("orlog_instances_activated_total", Counter, &[], "Instances loaded into memory"),
    spec("orlog_instances_passivated_total", Counter, &[], "Instances removed from memory"),
    spec("orlog_dead_letters_created_total", Counter, &["reason"], "Inputs and messages dead-lettered"),
    spec("orlog_definitions_collected_total", Counter, &[], "Unused definitions removed"),
    spec("orlog_instances_purged_total", Counter, &[], "Instances purged after their retention"),
    spec("orlog_tasks_purged_total", Counter, &[], "Tasks purged after their retention"),
    spec("orlog_dead_letters_purged_total", Counter, &[], "Dead letters purged after their retention"),
    // Tenants.
    spec("orlog_tenant_transitions_total", Counter, &["tenant"], "Transitions made durable for a tenant"),
    spec("orlog_tenant_instances_started_total", Counter, &["tenant"], "Instances started, by tenant"),
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
        "orlog_tenant_dead_letters_created_total",
        Counter,
        &["tenant"],
        "Inputs and messages dead-lettered, by tenant",
    ),
    // Actors and mailboxes.
    spec("orlog_actors_live", Gauge, &["kind"], "Live actors"),
    spec("orlog_actors_restarted_total", Counter, &["supervisor", "kind"], "Actor restarts after a crash"),
    spec("orlog_mailbox_depth", Gauge, &["kind"], "Messages queued for the actors of a kind"),
    spec("orlog_instance_mailbox_max_depth", Gauge, &[], "Inputs in the deepest mailbox of an instance"),
    spec(
        "orlog_instance_mailbox_depth",
        Histogram,
        &[],
        "Inputs in the mailbox of each live instance, at this moment",
    ),
    // Commits and the store.
    spec("orlog_commits_total", Counter, &[], "Group commits"),
    spec("orlog_commit_group_size", Histogram, &[], "Changes per group commit"),
    spec("orlog_commit_seconds", Histogram, &[], "Duration of a group commit"),
    spec("orlog_store_fsync_seconds", Histogram, &["shard"], "Time of one fsync of the journal"),
    spec("orlog_store_full", Gauge, &[], "1 while the store rejects commits for lack of space"),
    spec("orlog_store_position", Gauge, &["shard"], "Position of the last commit"),
    spec(
        "orlog_store_unflushed_commits",
        Gauge,
        &["shard"],
        "Commits in the journal that are not flushed to the tables",
    ),
    spec("orlog_store_flush_failing", Gauge, &["shard"], "1 while memtable flushes fail"),
    spec("orlog_store_memtable_bytes", Gauge, &["shard"], "Size of the memtables"),
    spec("orlog_store_journal_bytes", Gauge, &["shard"], "Journal on disk"),
    spec("orlog_store_tables_bytes", Gauge, &["shard"], "Tables on disk"),
    spec("orlog_store_tables_max_bytes", Gauge, &["shard"], "Maximum size of the tables"),
    spec("orlog_store_dedupe_backlog", Gauge, &["shard"], "Expired dedupe keys that are not purged yet"),
    spec(
        "orlog_store_damaged_reads",
        Gauge,
        &["shard"],
        "Reads of damaged rows of the tables since the store was opened",
    ),
    spec("orlog_store_pages", Gauge, &["shard"], "Pages of the tables on disk"),
    spec("orlog_store_free_pages", Gauge, &["shard"], "Free pages of the tables on disk"),
    spec("orlog_store_readers", Gauge, &["shard"], "Open read transactions on the tables"),
    spec("orlog_store_rows", Gauge, &["shard", "table"], "Rows in a table on disk"),
    spec("orlog_disk_free_bytes", Gauge, &[], "Free space on the disk of the data directory"),
    spec("orlog_disk_size_bytes", Gauge, &[], "Size of the disk of the data directory"),
    spec("orlog_log_epoch", Gauge, &["shard"], "The epoch in which this node owns the shard"),
    spec("orlog_log_unavailable", Gauge, &["shard"], "1 while the replicated log is unavailable"),
    spec("orlog_log_append_seconds", Histogram, &["shard"], "Duration of an append to the replicated log"),
    spec("orlog_log_unsnapshotted_commits", Gauge, &["shard"], "Commits since the last snapshot"),
    spec("orlog_log_unsnapshotted_bytes", Gauge, &["shard"], "Size of the commits since the last snapshot"),
    spec("orlog_log_snapshot_failing", Gauge, &["shard"], "1 while snapshots cannot be saved"),
    // Work, timers and effects.
    spec("orlog_outbox_depth", Gauge, &["shard", "kind"], "Work items in the outbox"),
    spec(
        "orlog_outbox_oldest_age_seconds",
        Gauge,
        &["shard", "kind"],
        "Age of the oldest work item in the outbox; 0 if empty",
    ),
    spec("orlog_work_dispatched_total", Counter, &[], "Work items dispatched by the relay"),
    spec("orlog_timers_armed", Gauge, &["shard"], "Armed timers"),
    spec("orlog_timers_due", Gauge, &["shard"], "Timers that are due and not yet fired (at most 1000)"),
    spec(
        "orlog_timers_oldest_overdue_seconds",
        Gauge,
        &["shard"],
        "Lateness of the oldest due timer; 0 if none",
    ),
    spec("orlog_timers_fired_total", Counter, &[], "Timers fired"),
    spec("orlog_timer_lateness_seconds", Histogram, &[], "How late timers fired"),
    spec("orlog_effects_completed_total", Counter, &["upstream", "outcome"], "Work items done"),
    spec(
        "orlog_effect_seconds",
        Histogram,
        &["upstream", "outcome"],
        "Time from dispatch to result, including retries",
    ),
    spec("orlog_effect_attempts_total", Counter, &["upstream", "outcome"], "Attempts at work items"),
    spec("orlog_effect_attempt_seconds", Histogram, &["upstream"], "Time of one attempt"),
    spec("orlog_breaker_state", Gauge, &["upstream"], "0 closed, 1 half open, 2 open"),
    spec("orlog_breaker_opened_total", Counter, &["upstream"], "Circuit breaker openings"),
    spec("orlog_upstream_in_flight", Gauge, &["upstream"], "Work items in flight at the upstream"),
    spec(
        "orlog_upstream_retry_budget",
        Gauge,
        &["upstream"],
        "Retries currently available in the retry budget",
    ),
    // The node.
    spec("orlog_node_accepting", Gauge, &[], "1 while the node accepts new work"),
    spec("orlog_audit_trail_bytes", Gauge, &[], "Size of the records of the audit trail"),
    spec("orlog_audit_trail_alarm_bytes", Gauge, &[], "Configured alarm size of the audit trail"),
    spec(
        "orlog_audit_writes_failed_total",
        Counter,
        &[],
        "Audit records that were not written, and failed fsyncs of the audit trail",
    ),
    spec(
        "orlog_audit_publishes_failed_total",
        Counter,
        &[],
        "Failed attempts to publish audit records to audit.nats_subject",
    ),
    spec("orlog_node_shards_up", Gauge, &[], "1 while every shard is up"),
    spec(
        "orlog_shards_leased_not_running",
        Gauge,
        &[],
        "Shards whose lease belongs to this node, but which it does not run",
    ),
    spec("orlog_shard_owned", Gauge, &["shard"], "1 where this node runs the shard"),
    spec("orlog_build_info", Gauge, &["version"], "1"),
    spec("orlog_http_requests_total", Counter, &["route", "method", "status"], "Requests answered"),
    spec(
        "orlog_http_request_seconds",
        Histogram,
        &["route"],
        "Time from request headers to response headers",
    ),
    spec(
        "orlog_http_quota_rejections_total",
        Counter,
        &["quota"],
        "Requests rejected by a quota of one caller",
    ),
    spec("orlog_telemetry_spans_sent_total", Counter, &[], "Spans accepted by the collector"),
    spec(
        "orlog_telemetry_spans_dropped_total",
        Counter,
        &[],
        "Spans dropped: queue full or rejected by the collector",
    ),
    spec("orlog_telemetry_logs_sent_total", Counter, &[], "Log records accepted by the collector"),
    spec(
        "orlog_telemetry_logs_dropped_total",
        Counter,
        &[],
        "Log records dropped: queue full or rejected by the collector",
    ),
    spec("process_cpu_seconds_total", Counter, &[], "CPU time used"),
    spec("process_resident_memory_bytes", Gauge, &[], "Memory in use"),
    spec("process_open_fds", Gauge, &[], "Open files"),
    spec("process_max_fds", Gauge, &[], "Open files allowed"),
    spec("process_start_time_seconds", Gauge, &[], "Start time of the process (Unix epoch)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_follow_the_conventions() {
        let mut seen = std::collections::BTreeSet::new();
        for spec in ALL {
            let name = spec.name;
            assert!(seen.insert(name), "{name} stands there twice");
            assert!(name.starts_with("orlog_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), spec.kind == MetricKind::Counter, "{name}");
            assert!(!name.contains("micro") && !name.contains("milli"), "{name}: base units");
            assert!(!spec.help.ends_with('.') && !spec.help.is_empty(), "{name}");
        }
    }
}
