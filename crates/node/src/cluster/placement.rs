//! Shard placement: a pure function of the live pods and the current owners.
//!
//! Rendezvous hashing (Thaler and Ravishankar, 1998) with bounded loads: each shard goes to the pod
//! with the highest score that is not full. A pod is full at the even share, rounded up. All pods
//! with the same view compute the same result. When a pod joins or leaves, few other shards move.

use std::collections::BTreeMap;

use orlog_bus::membership::{ClusterView, Pod, ShardLease};
use orlog_model::fnv1a;

/// Step towards the target placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlacementStep {
    /// Acquire a shard whose last lease is this one.
    Acquire(u16, ShardLease),
    /// Release a shard that another pod should own.
    Release(u16),
    /// Release the lease of a shard that another pod should own and that does not run here.
    ReleaseLease(u16, ShardLease),
}

/// Policy that assigns shards to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacementPolicy {
    /// Even distribution by rendezvous hashing.
    Even,
    /// Shard n runs on the pod whose name ends in `-<n modulo the number of pods>`: each shard is
    /// bound to the volume of a pod.
    Ordinal(u16),
}

/// Returns the target pod of each shard. Omits shards without a target.
pub(super) fn assign(
    view: &ClusterView,
    shards: u16,
    rule: PlacementPolicy,
) -> BTreeMap<u16, String> {
    let pods: Vec<&Pod> = view.pods.values().filter(|pod| !pod.draining).collect();
    match rule {
        PlacementPolicy::Even => evenly(&pods, shards),
        PlacementPolicy::Ordinal(count) => by_ordinal(&pods, shards, count),
    }
}

fn by_ordinal(pods: &[&Pod], shards: u16, count: u16) -> BTreeMap<u16, String> {
    let mut placed = BTreeMap::new();
    for shard in 0..shards {
        let end = format!("-{}", shard % count.max(1));
        if let Some(pod) = pods.iter().find(|pod| pod.name.ends_with(&end)) {
            placed.insert(shard, pod.name.clone());
        }
    }
    placed
}

fn evenly(pods: &[&Pod], shards: u16) -> BTreeMap<u16, String> {
    if pods.is_empty() {
        return BTreeMap::new();
    }

    let share = usize::from(shards).div_ceil(pods.len());
    let mut loads = vec![0; pods.len()];
    let mut placed = BTreeMap::new();
    for shard in 0..shards {
        let best = (0..pods.len())
            .filter(|pod| loads[*pod] < share)
            .max_by_key(|pod| (score(&pods[*pod].name, shard), *pod))
            .expect("shares cover all shards");
        loads[best] += 1;
        placed.insert(shard, pods[best].name.clone());
    }
    placed
}

/// Returns the next steps of `me`, the owner of the `held` shards. A shard without a target pod
/// stays where it is.
pub(super) fn plan_steps(
    view: &ClusterView,
    me: &Pod,
    owned: &[u16],
    shards: u16,
    rule: PlacementPolicy,
) -> Vec<PlacementStep> {
    let assignment = assign(view, shards, rule);
    let mut steps = Vec::new();
    for shard in 0..shards {
        let Some(target) = assignment.get(&shard) else {
            continue;
        };

        match (target == &me.name, owned.contains(&shard)) {
            (true, false) => {
                // An earlier process of this name has stopped: its shards have no owner.
                let has_owner = view
                    .owner_of(shard)
                    .is_some_and(|pod| pod.incarnation != me.incarnation);
                if !has_owner {
                    let holding = view.shards.get(&shard);
                    let seen = holding.map_or(ShardLease::default(), |holding| holding.lease);
                    steps.push(PlacementStep::Acquire(shard, seen));
                }
            }
            (false, true) => steps.push(PlacementStep::Release(shard)),
            // The end of an earlier run, or the response to an acquisition, was lost.
            (false, false) => {
                let is_named = view
                    .owner_of(shard)
                    .is_some_and(|pod| pod.incarnation == me.incarnation);
                if let Some(holding) = view.shards.get(&shard).filter(|_| is_named) {
                    steps.push(PlacementStep::ReleaseLease(shard, holding.lease));
                }
            }
            (true, true) => {}
        }
    }
    steps
}

/// Returns the mixed FNV-1a hash of pod and shard.
fn score(pod: &str, shard: u16) -> u32 {
    // Mixed, because pod names often differ only in the last character.
    let mut hash = fnv1a(&[pod, "/", &shard.to_string()]);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use orlog_bus::membership::ShardOwnership;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn pod(name: &str) -> Pod {
        let incarnation = Uuid::from_u128(u128::from(fnv1a(&[name])));
        Pod {
            name: name.to_owned(),
            incarnation,
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        }
    }

    fn view(pods: &[Pod]) -> ClusterView {
        let pods = pods
            .iter()
            .map(|pod| (pod.name.clone(), pod.clone()))
            .collect();
        ClusterView {
            pods,
            shards: BTreeMap::new(),
            current: true,
        }
    }

    fn lease(epoch: u64) -> ShardLease {
        ShardLease {
            epoch,
            revision: epoch + 10,
        }
    }

    fn owned_by(pod: &Pod) -> ShardOwnership {
        ShardOwnership {
            owner: Some((pod.name.clone(), pod.incarnation)),
            lease: lease(7),
        }
    }

    #[test]
    fn shard_is_acquired_after_release_or_owner_loss() {
        let (a, stopped) = (pod("a"), pod("stopped"));
        let mut view = view(std::slice::from_ref(&a));
        assert_eq!(
            plan_steps(&view, &a, &[], 2, PlacementPolicy::Even),
            [0, 1].map(|shard| PlacementStep::Acquire(shard, ShardLease::default()))
        );
        view.shards.insert(0, owned_by(&stopped));
        view.shards.insert(
            1,
            ShardOwnership {
                owner: None,
                lease: lease(9),
            },
        );
        assert_eq!(
            plan_steps(&view, &a, &[], 2, PlacementPolicy::Even),
            [
                PlacementStep::Acquire(0, lease(7)),
                PlacementStep::Acquire(1, lease(9))
            ]
        );
    }

    #[test]
    fn shard_is_not_acquired_while_its_owner_is_live() {
        let (a, b) = (pod("a"), pod("b"));
        let mut view = view(&[a.clone(), b.clone()]);
        (0..8).for_each(|shard| drop(view.shards.insert(shard, owned_by(&a))));
        let owned: Vec<u16> = (0..8).collect();
        assert_eq!(plan_steps(&view, &b, &[], 8, PlacementPolicy::Even), []);
        let released = plan_steps(&view, &a, &owned, 8, PlacementPolicy::Even);
        assert_eq!(released.len(), 4, "half of them: {released:?}");
        assert!(
            released
                .iter()
                .all(|step| matches!(step, PlacementStep::Release(_)))
        );
    }

    #[test]
    fn lease_of_a_shard_that_does_not_run_here_is_released_for_its_target() {
        let (a, b) = (pod("a"), pod("b"));
        let mut view = view(&[a.clone(), b.clone()]);
        (0..8).for_each(|shard| drop(view.shards.insert(shard, owned_by(&a))));
        let steps = plan_steps(&view, &a, &[], 8, PlacementPolicy::Even);
        let released = |step: &&PlacementStep| matches!(step, PlacementStep::ReleaseLease(_, at) if *at == lease(7));
        assert_eq!(
            steps.iter().filter(released).count(),
            4,
            "the half that b should own: {steps:?}"
        );
        assert_eq!(plan_steps(&view, &b, &[], 8, PlacementPolicy::Even), []);
    }

    #[test]
    fn draining_pod_releases_all_unless_it_is_alone() {
        let (a, b) = (
            Pod {
                draining: true,
                ..pod("a")
            },
            pod("b"),
        );
        let both = view(&[a.clone(), b]);
        assert_eq!(
            plan_steps(&both, &a, &[0, 1], 2, PlacementPolicy::Even),
            [PlacementStep::Release(0), PlacementStep::Release(1)]
        );
        assert_eq!(
            plan_steps(
                &view(std::slice::from_ref(&a)),
                &a,
                &[0, 1],
                2,
                PlacementPolicy::Even
            ),
            []
        );
    }

    #[test]
    fn shards_of_a_previous_incarnation_are_acquired() {
        let a = pod("a");
        let mut view = view(std::slice::from_ref(&a));
        let former = Pod {
            incarnation: Uuid::from_u128(1),
            ..a.clone()
        };
        view.shards.insert(0, owned_by(&former));
        assert_eq!(
            plan_steps(&view, &a, &[], 1, PlacementPolicy::Even),
            [PlacementStep::Acquire(0, lease(7))]
        );
    }

    #[test]
    fn static_placement_waits_for_the_assigned_pod() {
        let (zero, two) = (pod("orlog-0"), pod("orlog-2"));
        let placed = assign(&view(&[zero, two]), 5, PlacementPolicy::Ordinal(3));
        let expected = [(0, "orlog-0"), (2, "orlog-2"), (3, "orlog-0")]
            .map(|(shard, pod)| (shard, pod.to_owned()));
        assert_eq!(placed, BTreeMap::from(expected));
    }

    proptest! {
        #[test]
        fn assignment_is_total_and_balanced(pods in 1usize..9, shards in 1u16..200) {
            let pods: Vec<Pod> = (0..pods).map(|number| pod(&format!("orlog-{number}"))).collect();
            let placed = assign(&view(&pods), shards, PlacementPolicy::Even);
            prop_assert_eq!(placed.len(), usize::from(shards));
            for pod in &pods {
                let load = placed.values().filter(|name| **name == pod.name).count();
                prop_assert!(load <= usize::from(shards).div_ceil(pods.len()));
            }
        }

        #[test]
        fn pod_loss_moves_few_other_shards(pods in 2usize..9) {
            let all: Vec<Pod> = (0..pods).map(|number| pod(&format!("orlog-{number}"))).collect();
            let (before, after) = (assign(&view(&all), 128, PlacementPolicy::Even), assign(&view(&all[1..]), 128, PlacementPolicy::Even));
            let moved = before.iter().filter(|(shard, name)| **name != "orlog-0" && after[shard] != **name).count();
            prop_assert!(moved <= 128 / 4, "{moved} of 128");
        }
    }
}
