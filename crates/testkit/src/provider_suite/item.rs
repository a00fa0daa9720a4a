//! Work items for tests of providers.

use orlog_model::{
    CorrelationId, Effect, EffectName, EventId, InstanceKey, Name, Priority, SagaName, TenantId,
    Timestamp, Work, WorkItem,
};
use serde_json::json;
use uuid::Uuid;

/// Start of simulated time: 2025-01-01.
pub const START: Timestamp = Timestamp::from_millis(1_735_689_600_000);

/// Returns a work item of an effect; items with the same number are deliveries of one item.
#[must_use]
pub fn item(effect: &EffectName, number: u128) -> WorkItem {
    let instance = InstanceKey {
        tenant: TenantId::new("acme").expect("valid"),
        saga: SagaName::new("order").expect("valid"),
        correlation: CorrelationId::new(format!("o-{number}")).expect("valid"),
    };
    let effect = Effect {
        round: 0,
        tag: Name::new("charge").expect("valid"),
        name: effect.clone(),
        payload: json!({"order": {"id": format!("o-{number}")}, "amount": 125}),
        timeout: None,
        retry: None,
        schema_version: 1,
        in_doubt: None,
        priority: Priority::Normal,
    };
    WorkItem {
        id: Uuid::from_u128(number << 64 | number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        instance,
        work: Work::Effect(effect),
        deadline: None,
        causation: EventId::new("e-1").expect("valid"),
        trace: None,
        created_at: START,
        priority: Priority::Normal,
    }
}
