//! Drops moves as long as what is left still breaks the same rule.

use crate::invariants::{Broken, Rule};
use crate::step::Move;

/// First large pieces, then single moves, until nothing more can go.
pub(super) fn shrink(
    mut moves: Vec<Move>,
    rule: Rule,
    replay: impl Fn(&[Move]) -> Option<Broken>,
) -> Vec<Move> {
    let still = |moves: &[Move]| replay(moves).is_some_and(|broken| broken.rule == rule);
    if !still(&moves) {
        return moves;
    }
    let mut size = moves.len().div_ceil(2).max(1);
    loop {
        let mut dropped = false;
        let mut at = 0;
        while at < moves.len() {
            let end = (at + size).min(moves.len());
            let rest: Vec<_> = moves[..at].iter().chain(&moves[end..]).cloned().collect();
            if still(&rest) {
                moves = rest;
                dropped = true;
            } else {
                at = end;
            }
        }
        match (dropped, size) {
            (false, 1) => return moves,
            (false, _) => size = size.div_ceil(2),
            (true, _) => {}
        }
    }
}
