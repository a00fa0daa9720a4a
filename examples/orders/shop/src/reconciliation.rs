//! Compares what the runner says happened with what the shop's own book says, order by order.
//!
//! An order is in order when its saga ended, and
//! - completed: reserved, charged and shipped once each, nothing undone;
//! - failed: not shipped, and everything done was undone once, the last first;
//! - every command and effect that the saga asked for reached the shop under its id, and the shop knows no other;
//! - the versions of its history are 1, 2, 3 … without a gap, and nothing is left standing.

mod expected;
mod mismatch;

use std::collections::{BTreeMap, BTreeSet};

use crate::orlog::View;
use crate::record::Book;
pub use mismatch::{Disagreement, Kind};

/// The command that is given up when its time runs out, and may then never be sent.
const MAY_LAPSE: &str = "payment.RequestAuthorization";

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The numbers.
    pub figures: Figures,
    /// Everything on which the two do not agree.
    pub disagreements: Vec<Disagreement>,
}

/// The numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Orders that the runner accepted.
    pub accepted: usize,
    /// Sagas it started.
    pub started: usize,
    /// Sagas that went all the way.
    pub completed: usize,
    /// Sagas that failed and were compensated.
    pub compensated: usize,
    /// Those of them whose time ran out.
    pub timed_out: usize,
    /// Different effects that were asked for.
    pub effects: usize,
    /// Attempts at them beyond the first.
    pub retries: u64,
    /// Commands and events that were delivered more than once.
    pub duplicates: u64,
}

impl Audit {
    /// Whether the two agree.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.disagreements.is_empty()
    }

    /// How many disagreements there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.disagreements.iter().filter(|found| found.kind == kind).count()
    }
}

/// Compares. `accepted` are the orders whose events the runner accepted.
#[must_use]
pub fn audit(accepted: &[String], sagas: &BTreeMap<String, View>, book: &Book) -> Audit {
    let mut found = Findings::default();
    let known: BTreeSet<&String> = accepted.iter().collect();
    for order in &known {
        match sagas.get(*order) {
            Some(view) => of_order(order, view, book, &mut found),
            None => found.add(order, Kind::Lost, "was accepted, and there is no saga".to_owned()),
        }
    }
    for order in sagas.keys().filter(|order| !known.contains(order)) {
        found.add(order, Kind::Wrong, "has a saga, and was never placed".to_owned());
    }
    of_ids(sagas, book, &mut found);
    for fault in &book.faults {
        found.add("", Kind::Wrong, fault.clone());
    }
    Audit { figures: figures(accepted, sagas, book), disagreements: found.0 }
}

#[derive(Default)]
struct Findings(Vec<Disagreement>);

impl Findings {
    fn add(&mut self, order: &str, kind: Kind, what: String) {
        self.0.push(Disagreement { order: order.to_owned(), kind, what });
    }
}

fn of_order(order: &str, view: &View, book: &Book, found: &mut Findings) {
    of_history(order, view, found);
    if view.standing > 0 {
        found.add(order, Kind::Lost, format!("has ended and leaves {} timers or work items", view.standing));
    }
    let entries = book.orders.get(order).map_or(&[][..], Vec::as_slice);
    let acts: Vec<_> = entries.iter().map(|entry| entry.act).collect();
    let wrongs = match view.status.as_str() {
        "completed" => expected::completed(&acts),
        "failed" => expected::compensated(&acts),
        other => vec![(Kind::Lost, format!("has not ended: its saga is {other}"))],
    };
    for (kind, what) in wrongs {
        found.add(order, kind, what);
    }
}

fn of_history(order: &str, view: &View, found: &mut Findings) {
    let versions: Vec<u64> = view.history.iter().map(|step| step.version).collect();
    let expected: Vec<u64> = (1..=view.version).collect();
    if versions != expected {
        found.add(
            order,
            Kind::Lost,
            format!("stands at version {} with the history {versions:?}", view.version),
        );
    }
}

/// Commands and effects by their ids: asked for by a saga, and known to the shop.
fn of_ids(sagas: &BTreeMap<String, View>, book: &Book, found: &mut Findings) {
    let mut asked = BTreeMap::new();
    for (order, view) in sagas {
        let work = view.history.iter().flat_map(|step| &step.work);
        let mut labels = BTreeSet::new();
        for (label, id) in work.filter(|(label, _)| label.contains('.')) {
            if !labels.insert(label) {
                found.add(order, Kind::Doubled, format!("asked for {label} twice"));
            }
            asked.insert(id.as_str(), order.as_str());
            let known = book.commands.contains_key(id) || book.calls.contains_key(id);
            let lapsed = label == MAY_LAPSE && view.failure.as_deref() == Some("timeout");
            if !known && !lapsed {
                found.add(order, Kind::Lost, format!("asked for {label}, and the shop never heard of {id}"));
            }
        }
    }
    let commands = book.commands.iter().map(|(id, command)| (id, &command.order, &command.name));
    let calls = book.calls.iter().map(|(id, call)| (id, &call.order, &call.effect));
    for (id, order, name) in commands.chain(calls) {
        if asked.get(id.as_str()) != Some(&order.as_str()) {
            found.add(order, Kind::Doubled, format!("the shop was asked for {name} under {id}, by no saga"));
        }
    }
}

fn figures(accepted: &[String], sagas: &BTreeMap<String, View>, book: &Book) -> Figures {
    let count = |is: &dyn Fn(&View) -> bool| sagas.values().filter(|view| is(view)).count();
    Figures {
        accepted: accepted.len(),
        started: sagas.len(),
        completed: count(&|view| view.status == "completed"),
        compensated: count(&|view| view.status == "failed"),
        timed_out: count(&|view| view.failure.as_deref() == Some("timeout")),
        effects: book.calls.len(),
        retries: book.retries(),
        duplicates: book.duplicates(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::orlog::Step;
    use crate::record::Act;

    /// One order, and both sides of its story.
    struct Story {
        book: Book,
        view: View,
    }

    impl Story {
        fn ending(status: &str, steps: &[(&str, Option<Act>)]) -> Self {
            let mut story = Self { book: Book::default(), view: View::default() };
            status.clone_into(&mut story.view.status);
            for (number, (label, act)) in steps.iter().enumerate() {
                let id = format!("id-{number}");
                story.does(label, &id, *act);
                story.view.version += 1;
                let work = vec![((*label).to_owned(), id)];
                story.view.history.push(Step { version: story.view.version, work });
            }
            story
        }

        fn does(&mut self, label: &str, id: &str, act: Option<Act>) {
            if label.starts_with("payments.") {
                self.book.call(id, "o", label, &json!({}));
            } else {
                self.book.command(id, "o", label);
            }
            if let Some(act) = act {
                self.book.act("o", act, id);
            }
        }

        fn shipped() -> Self {
            Self::ending(
                "completed",
                &[
                    ("inventory.ReserveStock", Some(Act::Reserved)),
                    ("payments.charge", Some(Act::Charged)),
                    ("shipping.ShipOrder", Some(Act::Shipped)),
                ],
            )
        }

        fn undeliverable() -> Self {
            Self::ending(
                "failed",
                &[
                    ("inventory.ReserveStock", Some(Act::Reserved)),
                    ("payments.charge", Some(Act::Charged)),
                    ("shipping.ShipOrder", None),
                    ("payments.refund", Some(Act::Refunded)),
                    ("inventory.ReleaseStock", Some(Act::Released)),
                ],
            )
        }

        #[track_caller]
        fn check(&self, expected: &[(Kind, &str)]) {
            let sagas = BTreeMap::from([("o".to_owned(), self.view.clone())]);
            let audit = audit(&["o".to_owned()], &sagas, &self.book);
            let found: Vec<_> = audit.disagreements.iter().map(|d| (d.kind, d.what.as_str())).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn orders_that_went_well_or_were_undone_are_clean() {
        Story::shipped().check(&[]);
        Story::undeliverable().check(&[]);
    }

    #[test]
    fn finds_an_accepted_order_without_a_saga() {
        let audit = audit(&["o".to_owned()], &BTreeMap::new(), &Book::default());
        assert_eq!((audit.count(Kind::Lost), audit.is_clean()), (1, false));
    }

    #[test]
    fn finds_a_lost_effect() {
        let mut story = Story::shipped();
        story.book.calls.clear();
        story.book.orders.get_mut("o").unwrap().remove(1);
        story.check(&[
            (Kind::Lost, "is completed, and was never charged"),
            (Kind::Lost, "asked for payments.charge, and the shop never heard of id-1"),
        ]);
    }

    #[test]
    fn finds_a_doubled_effect() {
        let mut story = Story::shipped();
        story.does("payments.charge", "another", Some(Act::Charged));
        story.check(&[
            (Kind::Doubled, "was charged twice"),
            (Kind::Doubled, "the shop was asked for payments.charge under another, by no saga"),
        ]);
    }

    #[test]
    fn finds_a_lost_compensation() {
        let mut story = Story::undeliverable();
        story.book.orders.get_mut("o").unwrap().remove(2);
        story.check(&[(Kind::Lost, "is compensated, and was charged but never refunded")]);
    }

    #[test]
    fn finds_a_doubled_compensation() {
        let mut story = Story::undeliverable();
        story.book.act("o", Act::Refunded, "id-3");
        story.check(&[(Kind::Doubled, "was refunded twice")]);
    }

    #[test]
    fn finds_compensations_out_of_order() {
        let mut story = Story::undeliverable();
        story.book.orders.get_mut("o").unwrap().swap(2, 3);
        story.check(&[(Kind::Wrong, "was undone in the order released, refunded")]);
    }

    #[test]
    fn finds_what_was_undone_although_it_was_completed_or_done_although_it_failed() {
        let mut story = Story::shipped();
        story.book.act("o", Act::Released, "id-0");
        story.check(&[(Kind::Wrong, "is completed, and was released")]);
        let mut story = Story::undeliverable();
        story.book.act("o", Act::Shipped, "id-2");
        story.check(&[(Kind::Wrong, "is compensated, and was shipped")]);
    }

    #[test]
    fn finds_gaps_in_the_history_and_sagas_that_did_not_end() {
        let mut story = Story::shipped();
        story.view.history[1].work.clear();
        story.book.calls.clear();
        story.view.history[1].version = 7;
        story.check(&[(Kind::Lost, "stands at version 3 with the history [1, 7, 3]")]);
        let mut story = Story::shipped();
        "stuck".clone_into(&mut story.view.status);
        story.view.standing = 1;
        story.check(&[
            (Kind::Lost, "has ended and leaves 1 timers or work items"),
            (Kind::Lost, "has not ended: its saga is stuck"),
        ]);
    }

    #[test]
    fn only_a_command_whose_time_ran_out_may_never_have_been_sent() {
        let mut story = Story::ending("failed", &[("payment.RequestAuthorization", None)]);
        story.book.commands.clear();
        story.view.failure = Some("timeout".to_owned());
        story.check(&[]);
        story.view.failure = None;
        story.check(&[(
            Kind::Lost,
            "asked for payment.RequestAuthorization, and the shop never heard of id-0",
        )]);
    }
}
