//! `[retention]`: for how long what is over is kept. What a key means stands in `config/default.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{SagaName, TenantId};
use serde::{Deserialize, Serialize};

use super::units;

/// For how long something is kept. The longer window is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Text", into = "Text")]
pub enum Window {
    /// So long.
    For(Duration),
    /// For ever; written as an empty text.
    ForEver,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Text(#[serde(with = "units::optional_duration")] Option<Duration>);

impl From<Text> for Window {
    fn from(Text(window): Text) -> Self {
        window.map_or(Window::ForEver, Window::For)
    }
}

impl From<Window> for Text {
    fn from(window: Window) -> Self {
        Text(window.limit())
    }
}

impl Window {
    /// How long that is; `None`: for ever.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        match self {
            Window::For(window) => Some(window),
            Window::ForEver => None,
        }
    }
}

/// `[retention]`: what is forgotten when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Instances that have ended, with their histories and tasks, from their end on.
    pub instances: Window,
    /// Dead letters.
    pub dead_letters: Window,
    /// How often it is looked for what was kept long enough.
    #[serde(with = "units::duration")]
    pub every: Duration,
    /// Other windows for a saga.
    pub sagas: BTreeMap<SagaName, SagaRetention>,
    /// Other windows for a tenant.
    pub tenants: BTreeMap<TenantId, TenantRetention>,
}

/// `[retention.sagas.<name>]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SagaRetention {
    /// Its instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Window>,
}

/// `[retention.tenants.<name>]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantRetention {
    /// Its instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Window>,
    /// Its dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<Window>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            instances: Window::For(Duration::from_hours(30 * 24)),
            dead_letters: Window::For(Duration::from_hours(90 * 24)),
            every: Duration::from_hours(1),
            sagas: BTreeMap::new(),
            tenants: BTreeMap::new(),
        }
    }
}

impl Retention {
    /// For how long an instance is kept after its end. Where tenant and saga both say something, the longer window holds.
    #[must_use]
    pub fn of_instance(&self, tenant: &TenantId, saga: &SagaName) -> Window {
        let by_tenant = self.tenants.get(tenant).and_then(|tenant| tenant.instances);
        let by_saga = self.sagas.get(saga).and_then(|saga| saga.instances);
        by_tenant.max(by_saga).unwrap_or(self.instances)
    }

    /// For how long a dead letter is kept.
    #[must_use]
    pub fn of_dead_letter(&self, tenant: &TenantId) -> Window {
        self.tenants.get(tenant).and_then(|tenant| tenant.dead_letters).unwrap_or(self.dead_letters)
    }

    /// A window for instances that is shorter than events are remembered: the key, and why that cannot be.
    pub(super) fn mistake(&self, remembered: Duration) -> Option<(String, String)> {
        let sagas = self.sagas.iter().map(|(saga, of)| (format!("retention.sagas.{saga}"), of.instances));
        let tenants =
            self.tenants.iter().map(|(tenant, of)| (format!("retention.tenants.{tenant}"), of.instances));
        let all = [("retention".to_owned(), Some(self.instances))].into_iter().chain(sagas).chain(tenants);
        let (table, window) = all
            .filter_map(|(table, window)| Some((table, window?.limit()?)))
            .find(|(_, window)| *window < remembered)?;
        let what = format!(
            "{window:?} is shorter than store.dedupe_window, {remembered:?}: an event that comes a second time would begin the \
             instance anew"
        );
        Some((format!("{table}.instances"), what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: u64) -> Window {
        Window::For(Duration::from_hours(24 * days))
    }

    fn read(text: &str) -> Retention {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_longer_of_what_tenant_and_saga_say_holds() {
        let retention = read(
            "[sagas.beat]\ninstances = \"48h\"\n[sagas.tax]\ninstances = \"\"\n[tenants.acme]\ninstances = \"72h\"\n\
             dead_letters = \"24h\"\n",
        );
        let check = |tenant: &str, saga: &str, expected| {
            let (tenant, saga) = (TenantId::new(tenant).unwrap(), SagaName::new(saga).unwrap());
            assert_eq!(retention.of_instance(&tenant, &saga), expected, "{tenant} {saga}");
        };
        check("", "order", days(30));
        check("", "beat", days(2));
        check("acme", "order", days(3));
        check("acme", "beat", days(3));
        check("acme", "tax", Window::ForEver);
        assert_eq!(retention.of_dead_letter(&TenantId::new("acme").unwrap()), days(1));
        assert_eq!(retention.of_dead_letter(&TenantId::default()), days(90));
    }

    #[test]
    fn a_window_in_which_an_event_could_come_again_is_refused_with_its_key() {
        let day = Duration::from_hours(24);
        assert_eq!(Retention::default().mistake(day), None);
        let (key, what) = read("[tenants.acme]\ninstances = \"1h\"").mistake(day).unwrap();
        assert_eq!(key, "retention.tenants.acme.instances");
        assert!(what.contains("store.dedupe_window"), "{what}");
        assert_eq!(read("instances = \"\"").mistake(day), None);
    }
}
