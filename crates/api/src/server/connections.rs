//! Places of connections: limits in all and per address, and the connection that is closed when
//! places run out.
//!
//! A connection without a request in flight is idle. If no place is free, the connection that is
//! idle for the longest time is closed; for an address at its limit, the one of this address. If
//! none is idle, the new connection gets a reserved place, which serves only the health checks and
//! metrics.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use orlog_node::descriptors::RESERVED_CONNECTIONS;

/// Limits of the number of connections, without the reserved places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) total: usize,
    pub(crate) per_address: usize,
}

/// Open connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    places: Mutex<Places>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    open: BTreeMap<u64, OpenConnection>,
    /// Idle connections by the order in which they became idle.
    idle: BTreeMap<u64, u64>,
    /// Number of connections with a place that is not reserved.
    by_address: BTreeMap<IpAddr, usize>,
    reserved: usize,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    is_reserved: bool,
    /// Key in `idle`; `None` while a request is in flight or the connection is being closed.
    idle: Option<u64>,
    close: Arc<Notify>,
}

/// Result of a request for a place.
enum Admission {
    Granted(u64, Arc<Notify>, bool),
    /// Another connection is being closed.
    Closing(u64),
    Rejected,
}

/// Place of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    id: u64,
    close: Arc<Notify>,
    is_reserved: bool,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            places: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Returns a place for a connection from this address. Closes an idle connection if no place is
    /// free. `None` if all connections have requests in flight.
    pub(crate) async fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        loop {
            let admission = self.places.lock().admit(self.limits, network(from));
            match admission {
                Admission::Granted(id, close, is_reserved) => {
                    return Some(Place {
                        connections: Arc::clone(self),
                        id,
                        close,
                        is_reserved,
                    });
                }
                // The place is free when the task of the closed connection has ended, not when it
                // is notified.
                Admission::Closing(id) => self.closed(id).await,
                Admission::Rejected => return None,
            }
        }
    }

    async fn closed(&self, id: u64) {
        loop {
            // Created before the check: `notify_waiters` wakes it from here on, so that no release
            // is missed.
            let freed = self.freed.notified();
            if !self.places.lock().open.contains_key(&id) {
                return;
            }
            freed.await;
        }
    }
}

impl Places {
    fn admit(&mut self, limits: ConnectionLimits, address: IpAddr) -> Admission {
        let of_address = self.by_address.get(&address).copied().unwrap_or_default();
        let at_limit = of_address >= limits.per_address;
        if !at_limit && self.open.len() - self.reserved < limits.total {
            return self.open(address, false);
        }

        // An address at its limit makes space among its own connections; it must not close those of
        // others.
        let is_candidate =
            |open: &OpenConnection| !open.is_reserved && (!at_limit || open.address == address);
        if let Some(id) = self.close_oldest_idle(is_candidate) {
            return Admission::Closing(id);
        }
        // All connections are busy; health checks and metrics must be possible nevertheless.
        if self.reserved < RESERVED_CONNECTIONS {
            return self.open(address, true);
        }

        self.close_oldest_idle(|open| open.is_reserved)
            .map_or(Admission::Rejected, Admission::Closing)
    }

    fn open(&mut self, address: IpAddr, is_reserved: bool) -> Admission {
        let id = self.next;
        let close = Arc::new(Notify::new());
        if is_reserved {
            self.reserved += 1;
        } else {
            *self.by_address.entry(address).or_default() += 1;
        }

        self.open.insert(
            id,
            OpenConnection {
                address,
                is_reserved,
                idle: None,
                close: Arc::clone(&close),
            },
        );
        // Idle until its first request, so that a connection that sends nothing can be closed for
        // another one.
        self.set_idle(id);

        Admission::Granted(id, close, is_reserved)
    }

    fn close_oldest_idle(&mut self, is_candidate: impl Fn(&OpenConnection) -> bool) -> Option<u64> {
        let mut idle = self.idle.iter();
        let (&since, &id) = idle.find(|(_, id)| self.open.get(id).is_some_and(&is_candidate))?;
        self.idle.remove(&since);
        let open = self.open.get_mut(&id)?;
        // No longer a candidate: two new connections must not wait for the same place.
        open.idle = None;
        // Stored if the task does not wait for it at this moment.
        open.close.notify_one();
        Some(id)
    }

    fn set_busy(&mut self, id: u64) {
        if let Some(since) = self.open.get_mut(&id).and_then(|open| open.idle.take()) {
            self.idle.remove(&since);
        }
    }

    fn set_idle(&mut self, id: u64) {
        // Removes the earlier entry: each frame of a response restarts the idle time.
        self.set_busy(id);
        self.next += 1;
        if let Some(open) = self.open.get_mut(&id) {
            open.idle = Some(self.next);
            self.idle.insert(self.next, id);
        }
    }

    fn remove(&mut self, id: u64) {
        self.set_busy(id);
        let Some(open) = self.open.remove(&id) else {
            return;
        };

        if open.is_reserved {
            self.reserved -= 1;
        } else if let Some(count) = self.by_address.get_mut(&open.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&open.address);
            }
        }
    }
}

impl Place {
    /// Returns whether the place serves only health checks and metrics.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Marks the connection as busy: it is not closed for another one.
    pub(crate) fn set_busy(&self) {
        self.connections.places.lock().set_busy(self.id);
    }

    /// Marks the connection as idle from now on.
    pub(crate) fn set_idle(&self) {
        self.connections.places.lock().set_idle(self.id);
    }

    /// Waits until the connection must close for another one.
    pub(crate) async fn must_close(&self) {
        self.close.notified().await;
    }
}

/// Connection that leaves HTTP, in the request that upgrades it. It keeps its place until it is
/// dropped.
#[derive(Clone, Debug)]
pub(crate) struct UpgradedConnection {
    place: Arc<Place>,
    stopping: watch::Receiver<()>,
}

impl UpgradedConnection {
    /// `stopping` changes when the server stops. The server waits until the connection is dropped.
    pub(crate) fn new(place: Arc<Place>, stopping: watch::Receiver<()>) -> Self {
        Self { place, stopping }
    }

    /// Marks the connection as busy: it is not closed for another one.
    pub(crate) fn set_busy(&self) {
        self.place.set_busy();
    }

    /// Waits until the server stops, or until the connection must close for another one.
    pub(crate) async fn must_close(&mut self) {
        tokio::select! {
            // An error means the same: the sender was dropped.
            _ = self.stopping.changed() => {}
            () = self.place.must_close() => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.places.lock().remove(self.id);
        self.connections.freed.notify_waiters();
    }
}

/// Returns the address that the limit counts: of IPv6, the network of 64 bits, which one host owns.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn connections(total: usize, per_address: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits { total, per_address })
    }

    /// Admits a connection; the connection at `closed` is dropped when it must close.
    async fn admit_over(
        connections: &Arc<Connections>,
        from: IpAddr,
        places: &mut Vec<Place>,
        closed: usize,
    ) -> Place {
        let admitted = connections.admit(from);
        tokio::pin!(admitted);
        tokio::select! {
            biased;
            _ = &mut admitted => panic!("no place was free"),
            () = places[closed].must_close() => {}
        }
        drop(places.remove(closed));
        admitted.now_or_never().flatten().expect("a place is free")
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_closes_for_a_new_one() {
        let connections = connections(3, 3);
        let mut places = Vec::new();
        for number in 1..=3 {
            places.push(connections.admit(host(number)).await.unwrap());
        }
        places[0].set_busy();
        let new = admit_over(&connections, host(4), &mut places, 1).await;
        assert!(!new.is_reserved());
        places[0].set_idle();
        let new = admit_over(&connections, host(5), &mut places, 1).await;
        assert!(!new.is_reserved());
    }

    #[tokio::test]
    async fn an_address_at_its_limit_closes_its_own_connections() {
        let connections = connections(10, 2);
        let mut places = vec![connections.admit(host(1)).await.unwrap()];
        for _ in 0..2 {
            places.push(connections.admit(host(2)).await.unwrap());
        }
        let new = admit_over(&connections, host(2), &mut places, 1).await;
        assert!(!new.is_reserved());
    }

    #[tokio::test]
    async fn busy_connections_leave_the_reserved_places_to_new_ones() {
        let connections = connections(2, 2);
        let mut places = Vec::new();
        for number in 1..=2 {
            places.push(connections.admit(host(number)).await.unwrap());
            places.last().unwrap().set_busy();
        }
        let mut reserved = Vec::new();
        for number in 0..RESERVED_CONNECTIONS {
            reserved.push(
                connections
                    .admit(host(u8::try_from(number).unwrap()))
                    .await
                    .unwrap(),
            );
        }
        assert!(reserved.iter().all(Place::is_reserved));
        let new = admit_over(&connections, host(9), &mut reserved, 0).await;
        reserved.push(new);
        reserved.iter().for_each(Place::set_busy);
        assert!(connections.admit(host(9)).await.is_none());
        places.clear();
        assert!(!connections.admit(host(9)).await.unwrap().is_reserved());
        drop(reserved);
        let empty = connections.places.lock();
        assert!(empty.open.is_empty() && empty.idle.is_empty() && empty.by_address.is_empty());
        assert_eq!(empty.reserved, 0);
    }

    #[test]
    fn an_ipv6_host_is_its_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), host(1));
    }
}
