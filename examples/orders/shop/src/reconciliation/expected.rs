//! What must have been done for an order that ended one way or the other.

use super::mismatch::Kind;
use crate::record::Act;

/// What is wrong with one order.
type Wrongs = Vec<(Kind, String)>;

/// Everything once, nothing undone.
pub(super) fn completed(acts: &[Act]) -> Wrongs {
    let mut wrongs = twice(acts);
    for act in [Act::Reserved, Act::Charged, Act::Shipped] {
        if !acts.contains(&act) {
            wrongs.push((Kind::Lost, format!("is completed, and was never {}", name(act))));
        }
    }
    for act in [Act::Released, Act::Refunded].into_iter().filter(|act| acts.contains(act)) {
        wrongs.push((Kind::Wrong, format!("is completed, and was {}", name(act))));
    }
    wrongs
}

/// Not shipped, and everything done undone, the last first.
pub(super) fn compensated(acts: &[Act]) -> Wrongs {
    let mut wrongs = twice(acts);
    if acts.contains(&Act::Shipped) {
        wrongs.push((Kind::Wrong, "is compensated, and was shipped".to_owned()));
    }
    for (act, undo) in acts.iter().filter_map(|act| Some((*act, act.undo()?))) {
        if !acts.contains(&undo) {
            let what = format!("is compensated, and was {} but never {}", name(act), name(undo));
            wrongs.push((Kind::Lost, what));
        }
    }
    wrongs.extend(out_of_order(acts));
    wrongs
}

fn out_of_order(acts: &[Act]) -> Wrongs {
    let first = first_of_each(acts);
    let undone: Vec<Act> = first.iter().copied().filter(|act| doing(*act).is_some()).collect();
    let (due, idle): (Vec<Act>, Vec<Act>) =
        undone.into_iter().partition(|undo| doing(*undo).is_some_and(|act| first.contains(&act)));
    let mut wrongs: Wrongs =
        idle.iter().map(|undo| (Kind::Wrong, format!("was {} for nothing", name(*undo)))).collect();
    let done = first.iter().rev().filter_map(|act| act.undo());
    let expected: Vec<Act> = done.filter(|undo| due.contains(undo)).collect();
    if due != expected {
        let order: Vec<_> = due.iter().map(|act| name(*act)).collect();
        wrongs.push((Kind::Wrong, format!("was undone in the order {}", order.join(", "))));
    }
    wrongs
}

/// What an act undoes.
fn doing(undo: Act) -> Option<Act> {
    [Act::Reserved, Act::Charged].into_iter().find(|act| act.undo() == Some(undo))
}

fn first_of_each(acts: &[Act]) -> Vec<Act> {
    let mut first = Vec::new();
    for act in acts {
        if !first.contains(act) {
            first.push(*act);
        }
    }
    first
}

fn twice(acts: &[Act]) -> Wrongs {
    let mut seen = Vec::new();
    let mut wrongs = Vec::new();
    for act in acts {
        if seen.contains(act) {
            wrongs.push((Kind::Doubled, format!("was {} twice", name(*act))));
        }
        seen.push(*act);
    }
    wrongs
}

fn name(act: Act) -> &'static str {
    match act {
        Act::Reserved => "reserved",
        Act::Released => "released",
        Act::Authorized => "authorized",
        Act::Charged => "charged",
        Act::Refunded => "refunded",
        Act::Shipped => "shipped",
    }
}
