//! Node with deployed definitions, and its executed steps.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use orlog::Config;
use orlog::definitions::change::DeployError;
use orlog::definitions::deploy::{DeployPolicy, DeployRequest};
use orlog::definitions::{DefinitionSummary, DeploymentPlan, SourceFile};
use orlog_effect::{FunctionProvider, Policy, ProviderError};
use orlog_model::{
    CorrelationId, Event, EventId, EventType, Instance, InstanceKey, SagaName, Status, TenantId,
    Timestamp,
};
use orlog_store::InstanceQuery;
use orlog_testkit::wait::until;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::harness::node::{self, NodeBuilder};

const EFFECTS: [&str; 4] = ["test.charge", "test.pay", "test.ship", SLOW];
/// Effect that completes only while the gate is open.
const SLOW: &str = "test.slow";

/// Executed steps by order: step and version of the definition.
type ExecutedSteps = Arc<Mutex<BTreeMap<String, BTreeSet<(String, u32)>>>>;

/// Parameters of a generated definition.
#[derive(Clone)]
pub(crate) struct Saga {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    /// Effect of its first step.
    pub(crate) effect: &'static str,
    /// Whether it waits for the event `Shipped` between the steps.
    pub(crate) waits: bool,
}

impl Saga {
    pub(crate) fn order(version: u32) -> Self {
        Self {
            name: "order",
            version,
            effect: "test.charge",
            waits: false,
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self {
            name,
            version,
            effect,
            waits,
        } = self;
        let data = |step: &str| {
            format!(
                "data: {{ order: =vars.orderId, saga: {name}, step: {step}, version: {version} }}"
            )
        };
        let wait = "  - id: wait\n    do: { command: shipping.Ship }\n    ok: Shipped\n";
        let (charge, ship, wait) = (data("charge"), data("ship"), if *waits { wait } else { "" });
        format!(
            "saga: {name}\nversion: {version}\ncorrelate: orderId\nstart: OrderPlaced\n\
             vars: {{ orderId: =event.orderId }}\nsteps:\n  - id: charge\n    do: {{ effect: {effect}, {charge} }}\n\
             {wait}  - id: ship\n    do: {{ effect: test.ship, {ship} }}\n"
        )
    }

    pub(crate) fn file(&self) -> SourceFile {
        file(&format!("{}.saga.yaml", self.name), &self.text())
    }
}

pub(crate) fn file(name: &str, text: &str) -> SourceFile {
    SourceFile {
        path: name.into(),
        bytes: text.as_bytes().into(),
    }
}

/// Returns a version of the order definition.
pub(crate) fn order(version: u32) -> SourceFile {
    Saga::order(version).file()
}

pub(crate) fn names(listed: &[DefinitionSummary]) -> Vec<&str> {
    listed.iter().map(|one| one.saga.as_str()).collect()
}

pub(crate) struct Node {
    inner: node::Node,
    performed: ExecutedSteps,
    gate: watch::Sender<bool>,
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.inner
    }
}

impl Node {
    /// Starts a node with these files in its definitions directory.
    pub(crate) async fn start(files: &[SourceFile]) -> Self {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let performed = ExecutedSteps::default();
        write(&home, files);
        let gate = watch::Sender::new(false);
        let node = start(home, &EFFECTS, true, (&performed, &gate))
            .await
            .unwrap();
        Self {
            inner: node,
            performed,
            gate,
        }
    }

    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    pub(crate) fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    /// Restarts the node on the same data with these effects, and with other definition files if given.
    pub(crate) async fn restart_with(self, effects: &[&str], files: Option<&[SourceFile]>) -> Self {
        self.try_restart(effects, files, true).await.unwrap()
    }

    pub(crate) async fn restart(self) -> Self {
        self.restart_with(&EFFECTS, None).await
    }

    pub(crate) async fn restart_without_dir(self) -> Self {
        self.try_restart(&EFFECTS, None, false).await.unwrap()
    }

    pub(crate) async fn try_restart(
        self,
        effects: &[&str],
        files: Option<&[SourceFile]>,
        has_dir: bool,
    ) -> anyhow::Result<Self> {
        let Self {
            inner,
            performed,
            gate,
        } = self;
        let home = inner.stop().await;
        if let Some(files) = files {
            write(&home, files);
        }
        let node = start(home, effects, has_dir, (&performed, &gate)).await?;
        Ok(Self {
            inner: node,
            performed,
            gate,
        })
    }

    /// Stops the node, changes its data directory and restarts it.
    pub(crate) async fn while_stopped(self, change: impl FnOnce(PathBuf)) -> Self {
        let Self {
            inner,
            performed,
            gate,
        } = self;
        let home = inner.stop().await;
        change(home.path().join("data"));
        let node = start(home, &EFFECTS, true, (&performed, &gate))
            .await
            .unwrap();
        Self {
            inner: node,
            performed,
            gate,
        }
    }

    pub(crate) fn definitions_dir(&self) -> PathBuf {
        self.dir.path().join("definitions")
    }

    pub(crate) async fn deploy(&self, files: &[SourceFile]) -> Result<DeploymentPlan, DeployError> {
        let policy = DeployPolicy {
            allow_downgrade: true,
            ..DeployPolicy::default()
        };
        let request = DeployRequest {
            files: files.to_vec(),
            user: "alice".to_owned(),
            policy,
            ..DeployRequest::default()
        };
        self.app.services.deployments.deploy(request).await
    }

    pub(crate) async fn try_out(
        &self,
        files: &[SourceFile],
    ) -> Result<DeploymentPlan, DeployError> {
        let policy = DeployPolicy {
            allow_downgrade: true,
            ..DeployPolicy::default()
        };
        let (files, dry_run) = (files.to_vec(), true);
        let request = DeployRequest {
            files,
            user: "alice".to_owned(),
            dry_run,
            policy,
            ..DeployRequest::default()
        };
        self.app.services.deployments.deploy(request).await
    }

    /// Returns the warnings of a dry run about live instances.
    pub(crate) async fn live_warnings(&self, new: &Saga) -> Vec<String> {
        let warnings = self.try_out(&[new.file()]).await.unwrap().warnings;
        warnings
            .into_iter()
            .filter(|warning| warning.contains(" live instance"))
            .collect()
    }

    pub(crate) async fn place(&self, number: usize) {
        self.publish("OrderPlaced", number).await;
    }

    pub(crate) async fn publish(&self, kind: &str, number: usize) {
        let event = Event {
            id: EventId::new(format!("{kind}-{number}")).unwrap(),
            tenant: TenantId::default(),
            kind: EventType::new(kind).unwrap(),
            source: "urn:test".to_owned(),
            subject: None,
            time: Timestamp::from_millis(1_700_000_000_000),
            schema_version: 1,
            correlation: None,
            causation: None,
            trace: None,
            data: json!({ "orderId": format!("o-{number}") }),
            user: None,
            attributes: None,
        };
        self.app.publish(vec![event]).await.unwrap();
    }

    pub(crate) fn key(saga: &str, number: usize) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(saga).unwrap(),
            correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
        }
    }

    pub(crate) fn instance(&self, saga: &str, number: usize) -> Option<Instance> {
        let key = Self::key(saga, number);
        self.app
            .runtime
            .reader(&key)
            .unwrap()
            .instance(&key)
            .unwrap()
    }

    pub(crate) fn order(&self, number: usize) -> Option<Instance> {
        self.instance("order", number)
    }

    /// Returns whether an instance of any saga waits for its event.
    pub(crate) fn is_waiting(&self, number: usize) -> bool {
        ["order", "waiting"]
            .iter()
            .filter_map(|saga| self.instance(saga, number))
            .any(|instance| {
                instance
                    .waits
                    .iter()
                    .any(|wait| wait.name.as_str() == "Shipped")
            })
    }

    pub(crate) fn count(&self, status: Status) -> usize {
        let query = InstanceQuery {
            statuses: vec![status],
            limit: usize::MAX,
            ..InstanceQuery::default()
        };
        self.app
            .runtime
            .readers()
            .map(|reader| reader.instances(&query).unwrap().items.len())
            .sum()
    }

    pub(crate) fn dead_letters(&self) -> usize {
        let letters =
            |reader: &orlog_store::Reader| reader.dead_letters(&TenantId::default(), None, 99);
        self.app
            .runtime
            .readers()
            .map(|reader| letters(&reader).unwrap().len())
            .sum()
    }

    pub(crate) fn performed(&self) -> BTreeMap<String, BTreeSet<(String, u32)>> {
        self.performed.lock().clone()
    }

    /// Returns the stored definitions, as saga and version.
    pub(crate) fn stored(&self) -> BTreeSet<(String, u32)> {
        let reader = self.app.runtime.readers().next().unwrap();
        let stored = reader.definitions().unwrap().into_iter();
        stored
            .map(|(program, _)| (program.saga.to_string(), program.version))
            .collect()
    }

    /// Returns the active definitions, as saga and version.
    pub(crate) fn active(&self) -> BTreeSet<(String, u32)> {
        let active = self.app.definitions.active();
        let references = active
            .iter()
            .map(|definition| definition.program.definition_ref());
        references
            .map(|program| (program.saga.to_string(), program.version))
            .collect()
    }

    /// Checks the condition after each commit until it holds.
    #[track_caller]
    pub(crate) fn until(
        &self,
        label: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> impl Future<Output = ()> {
        until(label, move || ready(is_so(self).then_some(())))
    }
}

fn write(home: &TempDir, files: &[SourceFile]) {
    let definitions_dir = home.path().join("definitions");
    if definitions_dir.exists() {
        std::fs::remove_dir_all(&definitions_dir).unwrap();
    }
    std::fs::create_dir(&definitions_dir).unwrap();
    for file in files {
        std::fs::write(definitions_dir.join(&file.path), &file.bytes).unwrap();
    }
}

async fn start(
    home: Arc<TempDir>,
    effects: &[&str],
    has_dir: bool,
    (performed, gate): (&ExecutedSteps, &watch::Sender<bool>),
) -> anyhow::Result<node::Node> {
    let mut native = FunctionProvider::new();
    for effect in effects {
        let (performed, is_slow) = (Arc::clone(performed), effect == &SLOW);
        let gate = gate.subscribe();
        native = native.effect(effect, move |call| {
            let text = |name: &str| call.payload[name].as_str().unwrap_or_default().to_owned();
            let version = call.payload["version"].as_u64().unwrap_or_default();
            let done = (text("step"), u32::try_from(version).unwrap_or_default());
            performed
                .lock()
                .entry(text("order"))
                .or_default()
                .insert(done);
            let mut gate = gate.clone();
            async move {
                if is_slow {
                    gate.wait_for(|open| *open)
                        .await
                        .map_err(|_| ProviderError::permanent("over", "the test is over"))?;
                }
                Ok(json!({}))
            }
        });
    }
    let builder = NodeBuilder::on(home)
        .upstream(native.upstream("world", Policy::default()))
        .gateway();
    let without = |config: &mut Config| {
        if !has_dir {
            config.definitions_dir = None;
        }
    };
    builder.config(without).try_start().await
}
