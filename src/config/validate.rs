//! What no single key of the configuration shows: which do not go together.

use super::{Bus, BusKind, ClusterMode, Config, Error, Replication, Role};

/// A key, and what is wrong about it.
type Wrong = (String, String);

impl Config {
    /// Everything that does not go together.
    #[must_use]
    pub fn mistakes(&self) -> Vec<Error> {
        let mut wrong = Vec::new();
        self.about_sagas(&mut wrong);
        self.about_bounds(&mut wrong);
        self.about_others(&mut wrong);
        wrong.into_iter().map(|(place, what)| Error::Wrong { place, what }).collect()
    }

    fn about_sagas(&self, wrong: &mut Vec<Wrong>) {
        let mut say = |place: &str, what: String| wrong.push((place.to_owned(), what));
        if !(1..=orlog_model::SLOTS).contains(&self.shards) {
            say("shards", format!("{} is not between 1 and {}", self.shards, orlog_model::SLOTS));
        }
        if self.roles != Role::Combined && self.bus.kind != BusKind::Nats {
            let role = self.roles.as_str();
            let what =
                format!("the role {role:?} meets the others over NATS; write bus.kind = \"nats\" and [nats]");
            say("roles", what);
        }
        if let Some(what) = self.gateway_mistake() {
            say("gateway", what.to_owned());
        }
        if let Some((place, what)) = self.queue.mistake() {
            say(place, what);
        }
    }

    fn about_bounds(&self, wrong: &mut Vec<Wrong>) {
        let mut say = |place: &str, what: String| wrong.push((place.to_owned(), what));
        if !(0.0..=1.0).contains(&self.telemetry.sample_ratio) {
            let found = self.telemetry.sample_ratio;
            say("telemetry.sample_ratio", format!("{found} is not between 0.0 and 1.0"));
        }
        if self.http.page_limit == 0 || self.http.scan_limit < self.http.page_limit {
            let (page, scan) = (self.http.page_limit, self.http.scan_limit);
            let what = format!("must be at least 1 and not more than http.scan_limit: {page}, {scan}");
            say("http.page_limit", what);
        }
        if self.bus.max_message_size > Bus::default().max_message_size {
            say("bus.max_message_size", "1MiB is the most that events may take".to_owned());
        }
        if let Some((key, what)) = self.retention.mistake(self.store.dedupe_window) {
            say(&key, what);
        }
    }

    /// Servers, callers, other pods.
    fn about_others(&self, wrong: &mut Vec<Wrong>) {
        let mut say = |place: &str, what: String| wrong.push((place.to_owned(), what));
        let on_nats = self.bus.kind == BusKind::Nats;
        if self.store.replication == Replication::JetStream && !on_nats {
            let what =
                "\"jetstream\" needs bus.kind = \"nats\"; set that, or replication to \"none\"".to_owned();
            say("store.replication", what);
        }
        if let Some((key, what)) = self.nats.mistake() {
            say(key, what);
        }
        let many_pods = self.cluster.mode != ClusterMode::Alone;
        let access = self.auth.mistakes(self.listen, many_pods).into_iter().chain(self.audit.mistake());
        access.for_each(|(key, what)| say(key, what));
        if let Some((key, what)) = self.cluster.mistake(&self.node_name(), on_nats) {
            say(key, what);
        }
        if self.cluster.mode == ClusterMode::Leased && !self.replicated() {
            let what = "shards that move between pods need their commits on NATS: \"auto\" or \"jetstream\"";
            say("store.replication", what.to_owned());
        } else if many_pods && self.listen.ip().is_unspecified() && self.cluster.advertise.is_empty() {
            let what = format!("other pods cannot reach {}; say where they can", self.listen);
            say("cluster.advertise", what);
        }
    }
}
