//! The shop's own record: every command and effect call with its count, and the executed actions.
//!
//! The record is independent of the runner: an action is recorded when the shop executes it, under the
//! runner's id.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Executed action of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutedAction {
    /// The stock was reserved.
    Reserved,
    /// The stock was released.
    Released,
    /// The customer authorized the payment.
    Authorized,
    /// The card was charged.
    Charged,
    /// The payment was refunded.
    Refunded,
    /// The parcel was shipped.
    Shipped,
}

impl ExecutedAction {
    /// Returns the compensation of the action, if it has one.
    #[must_use]
    pub fn compensated_by(self) -> Option<ExecutedAction> {
        match self {
            ExecutedAction::Reserved => Some(ExecutedAction::Released),
            ExecutedAction::Charged => Some(ExecutedAction::Refunded),
            ExecutedAction::Released
            | ExecutedAction::Authorized
            | ExecutedAction::Refunded
            | ExecutedAction::Shipped => None,
        }
    }
}

/// Action with the id of its command or its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecutedEntry {
    /// The action.
    pub act: ExecutedAction,
    /// Id of the command, or the idempotency key.
    pub id: String,
}

/// Received command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Id of the order.
    pub order: String,
    /// Name, for example `inventory.ReserveStock`.
    pub name: String,
    /// Number of deliveries.
    pub times: u64,
}

/// Calls of an effect under one idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// Id of the order.
    pub order: String,
    /// Effect, for example `payments.charge`.
    pub effect: String,
    /// Body of the first call.
    pub body: Value,
    /// Number of calls.
    pub attempts: u64,
    /// Response of the execution; it is repeated for later calls.
    pub response: Option<(u16, Value)>,
}

/// Record of the shop.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShopRecord {
    /// Actions by order, in execution order.
    pub orders: BTreeMap<String, Vec<ExecutedEntry>>,
    /// Commands by id.
    pub commands: BTreeMap<String, Command>,
    /// Effect calls by idempotency key.
    pub calls: BTreeMap<String, Call>,
    /// Events sent to the runner.
    pub events: u64,
    /// Events sent twice on purpose.
    pub repeated: u64,
    /// Violations: a key with another body, a rejected event.
    pub faults: Vec<String>,
}

impl ShopRecord {
    /// Records a command; returns `true` for the first delivery.
    pub fn command(&mut self, id: &str, order: &str, name: &str) -> bool {
        let fresh = || Command {
            order: order.to_owned(),
            name: name.to_owned(),
            times: 0,
        };
        let command = self.commands.entry(id.to_owned()).or_insert_with(fresh);
        command.times += 1;
        if command.name != name || command.order != order {
            self.faults.push(format!(
                "command {id} was received as {name} of {order} and as another command"
            ));
        }
        self.commands[id].times == 1
    }

    /// Records a call, executed or not.
    pub fn call(&mut self, key: &str, order: &str, effect: &str, body: &Value) {
        let fresh = || Call {
            order: order.to_owned(),
            effect: effect.to_owned(),
            body: body.clone(),
            attempts: 0,
            response: None,
        };
        self.calls
            .entry(key.to_owned())
            .or_insert_with(fresh)
            .attempts += 1;
    }

    /// Executes a recorded call. If it was executed before, returns the stored response.
    ///
    /// # Errors
    /// Fails if the key was used for another call.
    pub fn execute(
        &mut self,
        key: &str,
        effect: &str,
        body: &Value,
    ) -> Result<(u16, Value), String> {
        let Some(call) = self.calls.get(key) else {
            return Err(format!("key {key} was never received"));
        };
        if call.effect != effect || call.body != *body {
            let fault = format!(
                "key {key} was received with {effect} {body} after {} {}",
                call.effect, call.body
            );
            self.faults.push(fault.clone());
            return Err(fault);
        }
        if let Some(response) = &call.response {
            return Ok(response.clone());
        }
        let order = call.order.clone();
        let (act, response) = outcome(key, effect, body);
        if let Some(act) = act {
            self.act(&order, act, key);
        }
        let call = self.calls.get_mut(key).expect("the key was checked above");
        call.response = Some(response.clone());
        Ok(response)
    }

    /// Records an action of an order.
    pub fn act(&mut self, order: &str, act: ExecutedAction, id: &str) {
        self.orders
            .entry(order.to_owned())
            .or_default()
            .push(ExecutedEntry {
                act,
                id: id.to_owned(),
            });
    }

    /// Returns the number of calls beyond the first per key: the runner's retries.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.calls.values().map(|call| call.attempts - 1).sum()
    }

    /// Returns the number of repeated commands and repeated events.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.repeated
            + self
                .commands
                .values()
                .map(|command| command.times - 1)
                .sum::<u64>()
    }
}

/// Returns the action and the response of the payment service.
fn outcome(key: &str, effect: &str, body: &Value) -> (Option<ExecutedAction>, (u16, Value)) {
    let rejected = body["card"]
        .as_str()
        .is_some_and(|card| card.ends_with(crate::orders::REJECTED_CARD));
    match effect {
        "payments.charge" if rejected => (
            None,
            (
                402,
                serde_json::json!({ "reason": "the card was declined" }),
            ),
        ),
        "payments.charge" => (
            Some(ExecutedAction::Charged),
            (201, serde_json::json!({ "chargeId": format!("ch-{key}") })),
        ),
        "payments.refund" => (
            Some(ExecutedAction::Refunded),
            (201, serde_json::json!({ "refundId": format!("re-{key}") })),
        ),
        other => (
            None,
            (
                404,
                serde_json::json!({ "reason": format!("{other} is not supported") }),
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_is_executed_once_and_replays_its_response() {
        let mut record = ShopRecord::default();
        let body = json!({ "card": "4242", "amount": 5 });
        for _ in 0..3 {
            record.call("k", "o", "payments.charge", &body);
            assert_eq!(
                record.execute("k", "payments.charge", &body),
                Ok((201, json!({ "chargeId": "ch-k" })))
            );
        }
        assert_eq!(
            record.orders["o"],
            [ExecutedEntry {
                act: ExecutedAction::Charged,
                id: "k".to_owned()
            }]
        );
        assert_eq!(record.retries(), 2);
    }

    #[test]
    fn key_reuse_with_another_body_is_rejected() {
        let mut record = ShopRecord::default();
        record.call("k", "o", "payments.charge", &json!({ "amount": 5 }));
        record
            .execute("k", "payments.charge", &json!({ "amount": 5 }))
            .unwrap();
        record
            .execute("k", "payments.charge", &json!({ "amount": 6 }))
            .unwrap_err();
        assert_eq!((record.faults.len(), record.orders["o"].len()), (1, 1));
    }

    #[test]
    fn rejected_card_is_not_charged() {
        let mut record = ShopRecord::default();
        let body = json!({ "card": "0002" });
        record.call("k", "o", "payments.charge", &body);
        assert_eq!(
            record.execute("k", "payments.charge", &body).unwrap().0,
            402
        );
        assert!(record.orders.is_empty());
    }

    #[test]
    fn only_the_first_arrival_of_a_command_counts() {
        let mut record = ShopRecord::default();
        assert!(record.command("c", "o", "inventory.ReserveStock"));
        assert!(!record.command("c", "o", "inventory.ReserveStock"));
        assert_eq!(record.duplicates(), 1);
        record.command("c", "o", "inventory.ReleaseStock");
        assert_eq!(record.faults.len(), 1);
    }
}
