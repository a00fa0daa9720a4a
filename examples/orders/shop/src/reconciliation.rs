//! Reconciliation: compares the runner's record with the shop's own record, order by order.
//!
//! An order is consistent if its saga has ended, and
//! - completed: it was reserved, charged and shipped once each, without compensation;
//! - failed: it was not shipped, and each completed step was compensated once, in reverse order;
//! - every command and effect that the saga requested reached the shop under its id, and the shop has
//!   no others;
//! - the versions of its history are 1, 2, 3 … without a gap, and no timers or work items are left.

mod expected;
mod mismatch;

use std::collections::{BTreeMap, BTreeSet};

use crate::orlog::SagaView;
use crate::record::ShopRecord;
pub use mismatch::{Mismatch, MismatchKind};

/// Command that is abandoned after its timeout and may then never be sent.
const MAY_LAPSE: &str = "payment.RequestAuthorization";

/// Result of the reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// The totals.
    pub totals: Totals,
    /// All mismatches of the two records.
    pub mismatches: Vec<Mismatch>,
}

/// Totals over all orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Orders that the runner accepted.
    pub accepted: usize,
    /// Started sagas.
    pub started: usize,
    /// Completed sagas.
    pub completed: usize,
    /// Failed and compensated sagas.
    pub compensated: usize,
    /// Compensated sagas that timed out.
    pub timed_out: usize,
    /// Distinct effects that were requested.
    pub effects: usize,
    /// Attempts of these effects beyond the first.
    pub retries: u64,
    /// Commands and events that were delivered more than once.
    pub duplicates: u64,
}

impl Reconciliation {
    /// Returns whether the records match.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// Returns the number of mismatches of a kind.
    #[must_use]
    pub fn count(&self, kind: MismatchKind) -> usize {
        self.mismatches
            .iter()
            .filter(|found| found.kind == kind)
            .count()
    }
}

/// Compares the records. `accepted` are the orders whose events the runner accepted.
#[must_use]
pub fn reconcile(
    accepted: &[String],
    sagas: &BTreeMap<String, SagaView>,
    record: &ShopRecord,
) -> Reconciliation {
    let mut found = Mismatches::default();
    let known: BTreeSet<&String> = accepted.iter().collect();
    for order in &known {
        match sagas.get(*order) {
            Some(view) => of_order(order, view, record, &mut found),
            None => found.add(
                order,
                MismatchKind::Lost,
                "was accepted, but has no saga".to_owned(),
            ),
        }
    }
    for order in sagas.keys().filter(|order| !known.contains(order)) {
        found.add(
            order,
            MismatchKind::Unexpected,
            "has a saga, but was never placed".to_owned(),
        );
    }
    of_ids(sagas, record, &mut found);
    for fault in &record.faults {
        found.add("", MismatchKind::Unexpected, fault.clone());
    }
    Reconciliation {
        totals: totals(accepted, sagas, record),
        mismatches: found.0,
    }
}

#[derive(Default)]
struct Mismatches(Vec<Mismatch>);

impl Mismatches {
    fn add(&mut self, order: &str, kind: MismatchKind, message: String) {
        self.0.push(Mismatch {
            order: order.to_owned(),
            kind,
            message,
        });
    }
}

fn of_order(order: &str, view: &SagaView, record: &ShopRecord, found: &mut Mismatches) {
    of_history(order, view, found);
    if view.remaining > 0 {
        found.add(
            order,
            MismatchKind::Lost,
            format!(
                "has ended and leaves {} timers or work items",
                view.remaining
            ),
        );
    }
    let entries = record.orders.get(order).map_or(&[][..], Vec::as_slice);
    let acts: Vec<_> = entries.iter().map(|entry| entry.act).collect();
    let mismatches = match view.status.as_str() {
        "completed" => expected::completed(&acts),
        "failed" => expected::compensated(&acts),
        other => vec![(
            MismatchKind::Lost,
            format!("has not ended: its saga is {other}"),
        )],
    };
    for (kind, message) in mismatches {
        found.add(order, kind, message);
    }
}

fn of_history(order: &str, view: &SagaView, found: &mut Mismatches) {
    let versions: Vec<u64> = view.history.iter().map(|step| step.version).collect();
    let expected: Vec<u64> = (1..=view.version).collect();
    if versions != expected {
        found.add(
            order,
            MismatchKind::Lost,
            format!("has version {} with the history {versions:?}", view.version),
        );
    }
}

/// Compares commands and effects by id: requested by a saga, and received by the shop.
fn of_ids(sagas: &BTreeMap<String, SagaView>, record: &ShopRecord, found: &mut Mismatches) {
    let mut requested = BTreeMap::new();
    for (order, view) in sagas {
        let work = view.history.iter().flat_map(|step| &step.work);
        let mut labels = BTreeSet::new();
        for (label, id) in work.filter(|(label, _)| label.contains('.')) {
            if !labels.insert(label) {
                found.add(
                    order,
                    MismatchKind::Duplicated,
                    format!("requested {label} twice"),
                );
            }
            requested.insert(id.as_str(), order.as_str());
            let known = record.commands.contains_key(id) || record.calls.contains_key(id);
            let lapsed = label == MAY_LAPSE && view.failure.as_deref() == Some("timeout");
            if !known && !lapsed {
                found.add(
                    order,
                    MismatchKind::Lost,
                    format!("requested {label}, but the shop never received {id}"),
                );
            }
        }
    }
    let commands = record
        .commands
        .iter()
        .map(|(id, command)| (id, &command.order, &command.name));
    let calls = record
        .calls
        .iter()
        .map(|(id, call)| (id, &call.order, &call.effect));
    for (id, order, name) in commands.chain(calls) {
        if requested.get(id.as_str()) != Some(&order.as_str()) {
            found.add(
                order,
                MismatchKind::Duplicated,
                format!("the shop received {name} under {id}, which no saga requested"),
            );
        }
    }
}

fn totals(accepted: &[String], sagas: &BTreeMap<String, SagaView>, record: &ShopRecord) -> Totals {
    let count = |is: &dyn Fn(&SagaView) -> bool| sagas.values().filter(|view| is(view)).count();
    Totals {
        accepted: accepted.len(),
        started: sagas.len(),
        completed: count(&|view| view.status == "completed"),
        compensated: count(&|view| view.status == "failed"),
        timed_out: count(&|view| view.failure.as_deref() == Some("timeout")),
        effects: record.calls.len(),
        retries: record.retries(),
        duplicates: record.duplicates(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::orlog::HistoryStep;
    use crate::record::ExecutedAction;

    /// Both records of one order.
    struct Story {
        record: ShopRecord,
        view: SagaView,
    }

    impl Story {
        fn ended(status: &str, steps: &[(&str, Option<ExecutedAction>)]) -> Self {
            let mut story = Self {
                record: ShopRecord::default(),
                view: SagaView::default(),
            };
            status.clone_into(&mut story.view.status);
            for (number, (label, act)) in steps.iter().enumerate() {
                let id = format!("id-{number}");
                story.does(label, &id, *act);
                story.view.version += 1;
                let work = vec![((*label).to_owned(), id)];
                story.view.history.push(HistoryStep {
                    version: story.view.version,
                    work,
                });
            }
            story
        }

        fn does(&mut self, label: &str, id: &str, act: Option<ExecutedAction>) {
            if label.starts_with("payments.") {
                self.record.call(id, "o", label, &json!({}));
            } else {
                self.record.command(id, "o", label);
            }
            if let Some(act) = act {
                self.record.act("o", act, id);
            }
        }

        fn shipped() -> Self {
            Self::ended(
                "completed",
                &[
                    ("inventory.ReserveStock", Some(ExecutedAction::Reserved)),
                    ("payments.charge", Some(ExecutedAction::Charged)),
                    ("shipping.ShipOrder", Some(ExecutedAction::Shipped)),
                ],
            )
        }

        fn undeliverable() -> Self {
            Self::ended(
                "failed",
                &[
                    ("inventory.ReserveStock", Some(ExecutedAction::Reserved)),
                    ("payments.charge", Some(ExecutedAction::Charged)),
                    ("shipping.ShipOrder", None),
                    ("payments.refund", Some(ExecutedAction::Refunded)),
                    ("inventory.ReleaseStock", Some(ExecutedAction::Released)),
                ],
            )
        }

        #[track_caller]
        fn check(&self, expected: &[(MismatchKind, &str)]) {
            let sagas = BTreeMap::from([("o".to_owned(), self.view.clone())]);
            let audit = reconcile(&["o".to_owned()], &sagas, &self.record);
            let found: Vec<_> = audit
                .mismatches
                .iter()
                .map(|d| (d.kind, d.message.as_str()))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn completed_and_compensated_orders_are_consistent() {
        Story::shipped().check(&[]);
        Story::undeliverable().check(&[]);
    }

    #[test]
    fn finds_an_accepted_order_without_a_saga() {
        let audit = reconcile(&["o".to_owned()], &BTreeMap::new(), &ShopRecord::default());
        assert_eq!(
            (audit.count(MismatchKind::Lost), audit.is_clean()),
            (1, false)
        );
    }

    #[test]
    fn finds_a_lost_effect() {
        let mut story = Story::shipped();
        story.record.calls.clear();
        story.record.orders.get_mut("o").unwrap().remove(1);
        story.check(&[
            (MismatchKind::Lost, "is completed, but was never charged"),
            (
                MismatchKind::Lost,
                "requested payments.charge, but the shop never received id-1",
            ),
        ]);
    }

    #[test]
    fn finds_a_duplicate_effect() {
        let mut story = Story::shipped();
        story.does("payments.charge", "another", Some(ExecutedAction::Charged));
        story.check(&[
            (MismatchKind::Duplicated, "was charged twice"),
            (
                MismatchKind::Duplicated,
                "the shop received payments.charge under another, which no saga requested",
            ),
        ]);
    }

    #[test]
    fn finds_a_lost_compensation() {
        let mut story = Story::undeliverable();
        story.record.orders.get_mut("o").unwrap().remove(2);
        story.check(&[(
            MismatchKind::Lost,
            "is compensated, and was charged but never refunded",
        )]);
    }

    #[test]
    fn finds_a_duplicate_compensation() {
        let mut story = Story::undeliverable();
        story.record.act("o", ExecutedAction::Refunded, "id-3");
        story.check(&[(MismatchKind::Duplicated, "was refunded twice")]);
    }

    #[test]
    fn finds_compensations_out_of_order() {
        let mut story = Story::undeliverable();
        story.record.orders.get_mut("o").unwrap().swap(2, 3);
        story.check(&[(
            MismatchKind::Unexpected,
            "was compensated in the order released, refunded",
        )]);
    }

    #[test]
    fn finds_wrong_final_states() {
        let mut story = Story::shipped();
        story.record.act("o", ExecutedAction::Released, "id-0");
        story.check(&[(MismatchKind::Unexpected, "is completed, but was released")]);
        let mut story = Story::undeliverable();
        story.record.act("o", ExecutedAction::Shipped, "id-2");
        story.check(&[(MismatchKind::Unexpected, "is compensated, but was shipped")]);
    }

    #[test]
    fn finds_gaps_in_the_history_and_sagas_that_did_not_end() {
        let mut story = Story::shipped();
        story.view.history[1].work.clear();
        story.record.calls.clear();
        story.view.history[1].version = 7;
        story.check(&[(
            MismatchKind::Lost,
            "has version 3 with the history [1, 7, 3]",
        )]);
        let mut story = Story::shipped();
        "stuck".clone_into(&mut story.view.status);
        story.view.remaining = 1;
        story.check(&[
            (
                MismatchKind::Lost,
                "has ended and leaves 1 timers or work items",
            ),
            (MismatchKind::Lost, "has not ended: its saga is stuck"),
        ]);
    }

    #[test]
    fn unsent_command_requires_a_timeout() {
        let mut story = Story::ended("failed", &[("payment.RequestAuthorization", None)]);
        story.record.commands.clear();
        story.view.failure = Some("timeout".to_owned());
        story.check(&[]);
        story.view.failure = None;
        story.check(&[(
            MismatchKind::Lost,
            "requested payment.RequestAuthorization, but the shop never received id-0",
        )]);
    }
}
