//! Incidents that counters show: each is one sentence with its remedy. The alert rules in
//! `deploy/prometheus/alerts.yml` detect the same.

use std::time::Duration;

use super::check::CheckResult;
use super::trends::{Fsyncs, Trend};
use crate::definitions::closed::VisibleDefinitions;

/// Change of the wall clock that is reported.
const MAX_CLOCK_JUMP_MS: u64 = 1000;
/// Failed instances of one version above which it is reported …
const MIN_FAILED: u64 = 5;
/// … if they are more than this share of the ended ones.
const FAILED_PERCENT: u64 = 50;
/// Inputs per second that a saga sends to itself above which it is reported.
const OWN_INPUTS_PER_SECOND: u64 = 10;
/// Share of the transitions above which a tenant is reported, if work of several tenants waits.
const TENANT_PERCENT: u64 = 80;
/// Share of slow syncs above which a disk is reported.
const SLOW_SYNC_PERCENT: u64 = 10;

/// Returns the incidents of a trend. `work_waits`: work or events wait for longer than usual.
pub(super) fn incidents(
    trend: &Trend,
    definitions: &VisibleDefinitions,
    work_waits: bool,
) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    findings.extend(clock_jump(trend));
    findings.extend(failing_versions(trend, definitions));
    findings.extend(runaway_sagas(trend, definitions));
    findings.extend(hot_tenant(trend).filter(|_| work_waits));
    findings.extend(dead_letters(trend));
    findings
}

fn clock_jump(trend: &Trend) -> Option<CheckResult> {
    let jump = trend.clock_jump_ms;
    let direction = if jump > 0 { "forward" } else { "back" };

    (jump.unsigned_abs() > MAX_CLOCK_JUMP_MS).then(|| {
        let by = seconds(Duration::from_millis(jump.unsigned_abs()));
        let found = format!("the wall clock of this machine was set {direction} by {by}");
        let remedy = "correct the clock with NTP, and configure NTP to slew: a clock that is set \
            forward fires timers early (docs/runbooks/clock-jump.md)";
        CheckResult::error("clock", found, remedy)
    })
}

fn failing_versions(trend: &Trend, definitions: &VisibleDefinitions) -> Vec<CheckResult> {
    let failing = trend.definitions.iter().filter(|(_, totals)| {
        totals.failed > MIN_FAILED && totals.failed * 100 > totals.ended() * FAILED_PERCENT
    });

    failing
        .map(|((saga, version), totals)| {
            let found = format!(
                "{} of {} instances of {} that ended within {} failed",
                totals.failed,
                totals.ended(),
                definitions.describe_version(saga, *version),
                seconds(trend.elapsed)
            );

            let remedy = "if the version is new, deploy the previous one with `orlog deploy \
                    --allow-downgrade` (docs/runbooks/bad-deploy.md)";
            CheckResult::error("definitions", found, remedy)
        })
        .collect()
}

fn runaway_sagas(trend: &Trend, definitions: &VisibleDefinitions) -> Vec<CheckResult> {
    let running = trend.own_inputs.iter().filter(|(_, inputs)| {
        u128::from(**inputs) * 1000
            // At least one second: directly after the start, a few inputs would exceed the rate.
            > u128::from(OWN_INPUTS_PER_SECOND) * trend.elapsed.as_millis().max(1000)
    });

    running
        .map(|(saga, inputs)| {
            let saga = definitions.describe_saga(saga);
            let found = format!(
                "instances of {saga} sent {inputs} start events or facts to {saga} itself \
                 within {}",
                seconds(trend.elapsed)
            );
            let remedy = "deploy a definition that does not start itself, then cancel the \
                remaining instances (docs/runbooks/runaway-definition.md)";

            CheckResult::error("definitions", found, remedy)
        })
        .collect()
}

fn hot_tenant(trend: &Trend) -> Option<CheckResult> {
    let active = trend
        .tenants
        .values()
        .filter(|transitions| **transitions > 0)
        .count();
    let all: u64 = trend.tenants.values().sum();
    let (tenant, transitions) = trend
        .tenants
        .iter()
        .max_by_key(|(_, transitions)| **transitions)?;

    // With one active tenant, its share says nothing.
    (active > 1 && transitions * 100 > all * TENANT_PERCENT).then(|| {
        let found = format!(
            "tenant {tenant:?} causes {} % of the transitions while work waits",
            transitions * 100 / all
        );
        let remedy = "limit the tenant with `per_tenant` of the upstream and `orlog reload`, or \
            stop its source (docs/runbooks/hot-tenant.md)";
        CheckResult::warn("tenants", found, remedy)
    })
}

fn dead_letters(trend: &Trend) -> Option<CheckResult> {
    let created: u64 = trend.dead_letters.values().sum();
    let (reason, _) = trend.dead_letters.iter().max_by_key(|(_, count)| **count)?;

    (created > 0).then(|| {
        let found = format!(
            "{created} messages were dead-lettered within {}, most for {reason}",
            seconds(trend.elapsed)
        );
        let remedy = "list them with `orlog dlq list`; fix the cause, then use `orlog dlq redrive`";
        CheckResult::warn("dead letters", found, remedy)
    })
}

/// Returns the finding of a shard whose disk is slow.
pub(super) fn slow_disk(check: &str, trend: &Trend, fsyncs: Fsyncs) -> Option<CheckResult> {
    (fsyncs.slow * 100 > fsyncs.all * SLOW_SYNC_PERCENT).then(|| {
        let found = format!(
            "the disk is slow: {} of {} syncs within {} took longer than 100 ms, and every commit \
             waits for one",
            fsyncs.slow,
            fsyncs.all,
            seconds(trend.elapsed)
        );
        CheckResult::warn(
            check,
            found,
            "find other users of the disk, or use a faster one",
        )
    })
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use orlog_actors::{DefinitionTotals, ProgramRegistry};
    use orlog_model::SagaName;

    use super::*;

    fn trend() -> Trend {
        Trend {
            elapsed: Duration::from_mins(5),
            ..Trend::default()
        }
    }

    fn messages(trend: &Trend, work_waits: bool) -> Vec<String> {
        let all = VisibleDefinitions::all(&ProgramRegistry::default());
        let findings = incidents(trend, &all, work_waits);
        assert!(
            findings.iter().all(|finding| !finding.remedy.is_empty()),
            "{findings:?}"
        );
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    fn saga(name: &str) -> SagaName {
        SagaName::new(name).unwrap()
    }

    #[test]
    fn quiet_node_has_no_incident() {
        assert!(messages(&trend(), true).is_empty());
    }

    #[test]
    fn clock_jump_is_reported_in_both_directions() {
        let jump = |clock_jump_ms| {
            messages(
                &Trend {
                    clock_jump_ms,
                    ..trend()
                },
                false,
            )
        };
        assert_eq!(
            jump(3_600_000),
            ["the wall clock of this machine was set forward by 3600 s"]
        );
        assert_eq!(
            jump(-5000),
            ["the wall clock of this machine was set back by 5 s"]
        );
        assert!(jump(1000).is_empty() && jump(-1000).is_empty());
    }

    #[test]
    fn version_is_reported_if_most_of_its_instances_fail() {
        let of = |failed, ended| {
            let totals = DefinitionTotals {
                started: ended,
                completed: ended - failed,
                failed,
                cancelled: 0,
            };
            messages(
                &Trend {
                    definitions: BTreeMap::from([((saga("order"), 2), totals)]),
                    ..trend()
                },
                false,
            )
        };
        assert_eq!(
            of(6, 10),
            ["6 of 10 instances of order version 2 that ended within 300 s failed"]
        );
        assert!(of(5, 5).is_empty() && of(6, 12).is_empty());
    }

    #[test]
    fn saga_that_starts_itself_is_reported_above_ten_per_second() {
        let of = |inputs| {
            messages(
                &Trend {
                    own_inputs: BTreeMap::from([(saga("tick"), inputs)]),
                    ..trend()
                },
                false,
            )
        };
        assert_eq!(
            of(3001),
            ["instances of tick sent 3001 start events or facts to tick itself within 300 s"]
        );
        assert!(of(3000).is_empty());
    }

    #[test]
    fn tenant_is_reported_only_among_several_and_if_work_waits() {
        let of = |acme, others, work_waits| {
            let tenants = BTreeMap::from([("acme".to_owned(), acme), ("zeta".to_owned(), others)]);
            messages(&Trend { tenants, ..trend() }, work_waits)
        };
        assert_eq!(
            of(900, 100, true),
            ["tenant \"acme\" causes 90 % of the transitions while work waits"]
        );
        assert!(
            of(900, 100, false).is_empty()
                && of(900, 0, true).is_empty()
                && of(800, 200, true).is_empty()
        );
    }

    #[test]
    fn slow_syncs_are_reported_above_a_tenth() {
        let of = |slow| slow_disk("shard 0", &trend(), Fsyncs { all: 100, slow });
        assert!(
            of(11).is_some_and(|found| found.message.contains("11 of 100 syncs"))
                && of(10).is_none()
        );
    }
}
