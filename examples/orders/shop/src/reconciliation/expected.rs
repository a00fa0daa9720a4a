//! Required actions of an order by the final status of its saga.

use super::mismatch::MismatchKind;
use crate::record::ExecutedAction;

/// Mismatches of one order.
type OrderMismatches = Vec<(MismatchKind, String)>;

/// Checks that each action was executed once and none was compensated.
pub(super) fn completed(acts: &[ExecutedAction]) -> OrderMismatches {
    let mut mismatches = twice(acts);
    for act in [
        ExecutedAction::Reserved,
        ExecutedAction::Charged,
        ExecutedAction::Shipped,
    ] {
        if !acts.contains(&act) {
            mismatches.push((
                MismatchKind::Lost,
                format!("is completed, but was never {}", name(act)),
            ));
        }
    }
    for act in [ExecutedAction::Released, ExecutedAction::Refunded]
        .into_iter()
        .filter(|act| acts.contains(act))
    {
        mismatches.push((
            MismatchKind::Unexpected,
            format!("is completed, but was {}", name(act)),
        ));
    }
    mismatches
}

/// Checks that the order was not shipped, and that all actions were compensated in reverse order.
pub(super) fn compensated(acts: &[ExecutedAction]) -> OrderMismatches {
    let mut mismatches = twice(acts);
    if acts.contains(&ExecutedAction::Shipped) {
        mismatches.push((
            MismatchKind::Unexpected,
            "is compensated, but was shipped".to_owned(),
        ));
    }
    for (act, compensation) in acts
        .iter()
        .filter_map(|act| Some((*act, act.compensated_by()?)))
    {
        if !acts.contains(&compensation) {
            let message = format!(
                "is compensated, and was {} but never {}",
                name(act),
                name(compensation)
            );
            mismatches.push((MismatchKind::Lost, message));
        }
    }
    mismatches.extend(out_of_order(acts));
    mismatches
}

fn out_of_order(acts: &[ExecutedAction]) -> OrderMismatches {
    let first = first_of_each(acts);
    let compensations: Vec<ExecutedAction> = first
        .iter()
        .copied()
        .filter(|act| compensated_action(*act).is_some())
        .collect();
    let (due, idle): (Vec<ExecutedAction>, Vec<ExecutedAction>) =
        compensations.into_iter().partition(|compensation| {
            compensated_action(*compensation).is_some_and(|act| first.contains(&act))
        });
    let mut mismatches: OrderMismatches = idle
        .iter()
        .map(|compensation| {
            (
                MismatchKind::Unexpected,
                format!("was {} without a reason", name(*compensation)),
            )
        })
        .collect();
    let done = first.iter().rev().filter_map(|act| act.compensated_by());
    let expected: Vec<ExecutedAction> = done
        .filter(|compensation| due.contains(compensation))
        .collect();
    if due != expected {
        let order: Vec<_> = due.iter().map(|act| name(*act)).collect();
        mismatches.push((
            MismatchKind::Unexpected,
            format!("was compensated in the order {}", order.join(", ")),
        ));
    }
    mismatches
}

/// Returns the action that a compensation reverses.
fn compensated_action(compensation: ExecutedAction) -> Option<ExecutedAction> {
    [ExecutedAction::Reserved, ExecutedAction::Charged]
        .into_iter()
        .find(|act| act.compensated_by() == Some(compensation))
}

fn first_of_each(acts: &[ExecutedAction]) -> Vec<ExecutedAction> {
    let mut first = Vec::new();
    for act in acts {
        if !first.contains(act) {
            first.push(*act);
        }
    }
    first
}

fn twice(acts: &[ExecutedAction]) -> OrderMismatches {
    let mut seen = Vec::new();
    let mut mismatches = Vec::new();
    for act in acts {
        if seen.contains(act) {
            mismatches.push((
                MismatchKind::Duplicated,
                format!("was {} twice", name(*act)),
            ));
        }
        seen.push(*act);
    }
    mismatches
}

fn name(act: ExecutedAction) -> &'static str {
    match act {
        ExecutedAction::Reserved => "reserved",
        ExecutedAction::Released => "released",
        ExecutedAction::Authorized => "authorized",
        ExecutedAction::Charged => "charged",
        ExecutedAction::Refunded => "refunded",
        ExecutedAction::Shipped => "shipped",
    }
}
