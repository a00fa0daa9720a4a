//! Where shards run: a pure function of who is there and who holds what.
//!
//! Rendezvous hashing (Thaler and Ravishankar, 1998) with bounded loads: each shard goes to the pod with the highest score
//! for it that is not full; full is the even share, rounded up. All pods that see the same compute the same, and when a pod
//! comes or goes, few shards move that need not.

use std::collections::BTreeMap;

use orlog_bus::membership::{Pod, View};
use orlog_model::fnv1a;

/// A step towards where shards belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Take a shard whose record has this number (0: there is none).
    Take(u16, u64),
    /// Let a shard go: another pod should have it.
    LetGo(u16),
}

/// By which rule shards find their pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Evenly, by rendezvous hashing.
    Even,
    /// Shard n to the pod whose name ends in `-<n modulo the number of pods>`: each is tied to that pod's volume.
    Ordinal(u16),
}

/// The name of the pod that should have each shard. One that nobody should have now is not there.
#[must_use]
pub fn assignment(view: &View, shards: u16, rule: Rule) -> BTreeMap<u16, String> {
    let pods: Vec<&Pod> = view.pods.values().filter(|pod| !pod.draining).collect();
    match rule {
        Rule::Even => evenly(&pods, shards),
        Rule::Ordinal(count) => by_ordinal(&pods, shards, count),
    }
}

fn by_ordinal(pods: &[&Pod], shards: u16, count: u16) -> BTreeMap<u16, String> {
    let place = |shard: u16| {
        let end = format!("-{}", shard % count.max(1));
        let pod = pods.iter().find(|pod| pod.name.ends_with(&end))?;
        Some((shard, pod.name.clone()))
    };
    (0..shards).filter_map(place).collect()
}

fn evenly(pods: &[&Pod], shards: u16) -> BTreeMap<u16, String> {
    if pods.is_empty() {
        return BTreeMap::new();
    }
    let share = usize::from(shards).div_ceil(pods.len());
    let mut loads = vec![0; pods.len()];
    let place = |shard: u16| {
        let free = (0..pods.len()).filter(|pod| loads[*pod] < share);
        let best =
            free.max_by_key(|pod| (score(&pods[*pod].name, shard), *pod)).expect("shares cover all shards");
        loads[best] += 1;
        (shard, pods[best].name.clone())
    };
    (0..shards).map(place).collect()
}

/// What `me`, who holds these shards, has to do now. What nobody should have stays where it is.
#[must_use]
pub fn steps(view: &View, me: &Pod, held: &[u16], shards: u16, rule: Rule) -> Vec<Step> {
    let assignment = assignment(view, shards, rule);
    let step = |shard: u16| {
        let owner = assignment.get(&shard)?;
        match (owner == &me.name, held.contains(&shard)) {
            (true, false) => {
                // Another process of this name has gone: its shards are nobody's.
                let taken = view.holder(shard).is_some_and(|pod| pod.incarnation != me.incarnation);
                let seen = view.shards.get(&shard).map_or(0, |holding| holding.epoch);
                (!taken).then_some(Step::Take(shard, seen))
            }
            (false, true) => Some(Step::LetGo(shard)),
            _ => None,
        }
    };
    (0..shards).filter_map(step).collect()
}

/// FNV-1a of pod and shard, mixed: the names of pods often differ in their last letter only.
fn score(pod: &str, shard: u16) -> u32 {
    let mut hash = fnv1a(&[pod, "/", &shard.to_string()]);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use orlog_bus::membership::Holding;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn pod(name: &str) -> Pod {
        let incarnation = Uuid::from_u128(u128::from(fnv1a(&[name])));
        Pod { name: name.to_owned(), incarnation, url: String::new(), draining: false }
    }

    fn view(pods: &[Pod]) -> View {
        let pods = pods.iter().map(|pod| (pod.name.clone(), pod.clone())).collect();
        View { pods, shards: BTreeMap::new(), current: true }
    }

    fn held_by(pod: &Pod) -> Holding {
        Holding { holder: Some((pod.name.clone(), pod.incarnation)), epoch: 7 }
    }

    #[test]
    fn a_shard_is_taken_when_its_holder_lets_go_or_is_gone() {
        let (a, gone) = (pod("a"), pod("gone"));
        let mut view = view(std::slice::from_ref(&a));
        assert_eq!(steps(&view, &a, &[], 2, Rule::Even), [Step::Take(0, 0), Step::Take(1, 0)]);
        view.shards.insert(0, held_by(&gone));
        view.shards.insert(1, Holding { holder: None, epoch: 9 });
        assert_eq!(steps(&view, &a, &[], 2, Rule::Even), [Step::Take(0, 7), Step::Take(1, 9)]);
    }

    #[test]
    fn a_shard_is_not_taken_from_a_living_holder_which_lets_it_go() {
        let (a, b) = (pod("a"), pod("b"));
        let mut view = view(&[a.clone(), b.clone()]);
        (0..8).for_each(|shard| drop(view.shards.insert(shard, held_by(&a))));
        let held: Vec<u16> = (0..8).collect();
        assert_eq!(steps(&view, &b, &[], 8, Rule::Even), []);
        let let_go = steps(&view, &a, &held, 8, Rule::Even);
        assert_eq!(let_go.len(), 4, "half of them: {let_go:?}");
        assert!(let_go.iter().all(|step| matches!(step, Step::LetGo(_))));
    }

    #[test]
    fn one_that_drains_lets_everything_go_unless_nobody_else_is_there() {
        let (a, b) = (Pod { draining: true, ..pod("a") }, pod("b"));
        let both = view(&[a.clone(), b]);
        assert_eq!(steps(&both, &a, &[0, 1], 2, Rule::Even), [Step::LetGo(0), Step::LetGo(1)]);
        assert_eq!(steps(&view(std::slice::from_ref(&a)), &a, &[0, 1], 2, Rule::Even), []);
    }

    #[test]
    fn what_a_former_process_of_this_name_held_is_taken() {
        let a = pod("a");
        let mut view = view(std::slice::from_ref(&a));
        let former = Pod { incarnation: Uuid::from_u128(1), ..a.clone() };
        view.shards.insert(0, held_by(&former));
        assert_eq!(steps(&view, &a, &[], 1, Rule::Even), [Step::Take(0, 7)]);
    }

    #[test]
    fn with_ordinals_a_shard_waits_for_its_own_pod() {
        let (zero, two) = (pod("orlog-0"), pod("orlog-2"));
        let placed = assignment(&view(&[zero, two]), 5, Rule::Ordinal(3));
        let expected =
            [(0, "orlog-0"), (2, "orlog-2"), (3, "orlog-0")].map(|(shard, pod)| (shard, pod.to_owned()));
        assert_eq!(placed, BTreeMap::from(expected));
    }

    proptest! {
        #[test]
        fn every_shard_has_one_place_and_shares_are_even(pods in 1usize..9, shards in 1u16..200) {
            let pods: Vec<Pod> = (0..pods).map(|number| pod(&format!("orlog-{number}"))).collect();
            let placed = assignment(&view(&pods), shards, Rule::Even);
            prop_assert_eq!(placed.len(), usize::from(shards));
            for pod in &pods {
                let load = placed.values().filter(|name| **name == pod.name).count();
                prop_assert!(load <= usize::from(shards).div_ceil(pods.len()));
            }
        }

        #[test]
        fn when_a_pod_goes_few_shards_of_the_others_move(pods in 2usize..9) {
            let all: Vec<Pod> = (0..pods).map(|number| pod(&format!("orlog-{number}"))).collect();
            let (before, after) = (assignment(&view(&all), 128, Rule::Even), assignment(&view(&all[1..]), 128, Rule::Even));
            let moved = before.iter().filter(|(shard, name)| **name != "orlog-0" && after[shard] != **name).count();
            prop_assert!(moved <= 128 / 4, "{moved} of 128");
        }
    }
}
