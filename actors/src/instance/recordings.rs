//! Recordings: instances whose inputs are stored whole in their history, so that a shadow can apply
//! them to another definition.

use std::sync::atomic::{AtomicBool, Ordering};

use std::time::Duration;

use orlog_model::{
    Commit, Input, Instance, InstanceKey, SagaName, SampleRate, TenantId, Timestamp, json_length,
};
use parking_lot::Mutex;

/// Maximum size of the data of a recorded input, in bytes of JSON. The history of an instance with
/// a larger input is incomplete.
const MAX_INPUT_BYTES: usize = 64 << 10;
/// Time after the end of the recorded starts in which inputs are recorded, if its end is lost.
const GRACE: Duration = Duration::from_hours(1);

/// Sample of the new instances of one definition that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Tenant.
    pub tenant: TenantId,
    /// Saga.
    pub saga: SagaName,
    /// Hash of the definition that the instances have.
    pub definition: [u8; 16],
    /// Sample.
    pub sample: SampleRate,
    /// Instances that started earlier are not recorded.
    pub from: Timestamp,
    /// Instances that start later are not recorded.
    pub until: Timestamp,
}

impl Recording {
    fn includes(&self, key: &InstanceKey, instance: &Instance) -> bool {
        self.saga == key.saga
            && self.tenant == key.tenant
            && self.definition == instance.definition.hash
            && (self.from..self.until).contains(&instance.created_at)
            && instance.updated_at < self.until.saturating_add(GRACE)
            && self.sample.includes(key)
    }
}

/// Active recordings of a process: at most one for each saga of a tenant. Without any, a transition
/// costs one read of a flag.
#[derive(Debug, Default)]
pub struct Recordings {
    is_active: AtomicBool,
    list: Mutex<Vec<Recording>>,
}

impl Recordings {
    /// Starts a recording, or replaces that of the same saga and tenant.
    pub fn start(&self, recording: Recording) {
        let mut list = self.list.lock();
        list.retain(|other| (&other.tenant, &other.saga) != (&recording.tenant, &recording.saga));
        list.push(recording);
        self.is_active.store(true, Ordering::Release);
    }

    /// Ends the recording of a saga of a tenant.
    pub fn end(&self, tenant: &TenantId, saga: &SagaName) {
        let mut list = self.list.lock();
        list.retain(|recording| (&recording.tenant, &recording.saga) != (tenant, saga));
        self.is_active.store(!list.is_empty(), Ordering::Release);
    }

    /// Adds the input to the history entry of its transition, if the instance is recorded.
    pub(crate) fn record(&self, commit: &mut Commit, input: &Input) {
        // Almost every transition ends here.
        if !self.is_active.load(Ordering::Acquire) {
            return;
        }

        let (Some(entry), Some(instance)) = (&mut commit.history, &commit.instance) else {
            return;
        };

        let is_recorded = self
            .list
            .lock()
            .iter()
            .any(|recording| recording.includes(&commit.key, instance));
        if is_recorded && json_length(input) <= MAX_INPUT_BYTES {
            entry.input = Some(Box::new(input.clone()));
        }
    }
}
