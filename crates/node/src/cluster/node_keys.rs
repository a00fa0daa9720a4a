//! Check that all pods of a cluster have the same key of the node: for its peers, they are one
//! node.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_bus::membership::{ClusterView, Pod};
use tokio::sync::watch;

/// Returns the live pods whose keys differ. During a rotation, pods have one key in common; a pod
/// without keys has no identity.
pub(super) fn different<'a>(
    own: &'a [String],
    view: &'a ClusterView,
) -> impl Iterator<Item = &'a Pod> {
    view.pods.values().filter(|pod| {
        let has_keys = !own.is_empty() && !pod.node_keys.is_empty();
        has_keys && !pod.node_keys.iter().any(|key| own.contains(key))
    })
}

/// Logs an error for each process of a pod whose keys differ from those of this pod.
pub(super) async fn report(me: Pod, mut view: watch::Receiver<Arc<ClusterView>>) {
    let mut reported = BTreeSet::new();
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        for pod in different(&me.node_keys, &current) {
            // By process: a restarted pod that still has the wrong key is reported again. Both key
            // lists are not empty here, because `different` omits pods without keys.
            if reported.insert(pod.incarnation) {
                tracing::error!(
                    pod = pod.name,
                    key = pod.node_keys[0],
                    own_key = me.node_keys[0],
                    "a pod of this node has another node key, so that peers reject the requests \
                     of one of them; set the same identity.key_file on all pods, and restart \
                     those with the wrong key"
                );
            }
        }

        if view.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, keys: &[&str]) -> Pod {
        let node_keys = keys.iter().map(ToString::to_string).collect();
        let (incarnation, url) = (uuid::Uuid::from_u128(7), String::new());
        Pod {
            name: name.to_owned(),
            incarnation,
            url,
            draining: false,
            node_keys,
        }
    }

    #[test]
    fn pods_without_a_common_key_differ() {
        let pods = [
            pod("same", &["a"]),
            pod("rotating", &["a", "b"]),
            pod("rotated", &["b"]),
            pod("wrong", &["c", "d"]),
            pod("without", &[]),
        ];
        let view = ClusterView {
            pods: pods.map(|pod| (pod.name.clone(), pod)).into(),
            ..ClusterView::default()
        };
        let names = |own: &[&str]| -> Vec<String> {
            let own: Vec<_> = own.iter().map(ToString::to_string).collect();
            different(&own, &view).map(|pod| pod.name.clone()).collect()
        };
        assert_eq!(names(&["a", "b"]), ["wrong"]);
        assert_eq!(names(&["b"]), ["same", "wrong"]);
        assert_eq!(names(&[]), [""; 0], "this pod has no identity");
    }
}
