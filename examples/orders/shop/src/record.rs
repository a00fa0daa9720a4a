//! The shop's own record: every command and every call of an effect with how often it came, and what was done because of it.
//!
//! Nothing here trusts the runner: an act is booked when the shop acts, under the id that the runner gave it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Something that was done for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Stock was taken from the shelf.
    Reserved,
    /// And put back.
    Released,
    /// The customer authorized the payment.
    Authorized,
    /// The card was charged.
    Charged,
    /// And the money given back.
    Refunded,
    /// The parcel left the house.
    Shipped,
}

impl Act {
    /// What undoes it, where something can.
    #[must_use]
    pub fn undo(self) -> Option<Act> {
        match self {
            Act::Reserved => Some(Act::Released),
            Act::Charged => Some(Act::Refunded),
            Act::Released | Act::Authorized | Act::Refunded | Act::Shipped => None,
        }
    }
}

/// An act, and the command or idempotency key that led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What was done.
    pub act: Act,
    /// The id of the command, or the idempotency key.
    pub by: String,
}

/// A command, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Command {
    /// For which order.
    pub order: String,
    /// For example `inventory.ReserveStock`.
    pub name: String,
    /// How often it came.
    pub times: u64,
}

/// Calls of an effect under one idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// For which order.
    pub order: String,
    /// For example `payments.charge`.
    pub effect: String,
    /// What was asked the first time.
    pub body: Value,
    /// How often it came.
    pub asked: u64,
    /// What was answered when it was executed, and is answered ever since.
    pub answer: Option<(u16, Value)>,
}

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Book {
    /// What was done for each order, in order.
    pub orders: BTreeMap<String, Vec<Entry>>,
    /// Commands, by their ids.
    pub commands: BTreeMap<String, Command>,
    /// Effects, by their idempotency keys.
    pub calls: BTreeMap<String, Call>,
    /// Events that were sent to the runner.
    pub events: u64,
    /// Events that were sent once more on purpose.
    pub repeated: u64,
    /// What must never happen: a key with another body, an event that is refused.
    pub faults: Vec<String>,
}

impl Book {
    /// A command has come; `true` when it is the first time.
    pub fn command(&mut self, id: &str, order: &str, name: &str) -> bool {
        let fresh = || Command { order: order.to_owned(), name: name.to_owned(), times: 0 };
        let command = self.commands.entry(id.to_owned()).or_insert_with(fresh);
        command.times += 1;
        if command.name != name || command.order != order {
            self.faults.push(format!("the command {id} came as {name} of {order} and as another one"));
        }
        self.commands[id].times == 1
    }

    /// A call has come. Whether it will be executed is another matter.
    pub fn call(&mut self, key: &str, order: &str, effect: &str, body: &Value) {
        let fresh = || Call {
            order: order.to_owned(),
            effect: effect.to_owned(),
            body: body.clone(),
            asked: 0,
            answer: None,
        };
        self.calls.entry(key.to_owned()).or_insert_with(fresh).asked += 1;
    }

    /// Executes a call that has come, unless it was executed: then the answer is the one given before.
    ///
    /// # Errors
    /// When the key was used for something else.
    pub fn execute(&mut self, key: &str, effect: &str, body: &Value) -> Result<(u16, Value), String> {
        let Some(call) = self.calls.get(key) else { return Err(format!("the key {key} was never asked")) };
        if call.effect != effect || call.body != *body {
            let fault =
                format!("the key {key} came with {effect} {body} after {} {}", call.effect, call.body);
            self.faults.push(fault.clone());
            return Err(fault);
        }
        if let Some(answer) = &call.answer {
            return Ok(answer.clone());
        }
        let order = call.order.clone();
        let (act, answer) = outcome(key, effect, body);
        if let Some(act) = act {
            self.act(&order, act, key);
        }
        let call = self.calls.get_mut(key).expect("it was found above");
        call.answer = Some(answer.clone());
        Ok(answer)
    }

    /// Something was done for an order.
    pub fn act(&mut self, order: &str, act: Act, by: &str) {
        self.orders.entry(order.to_owned()).or_default().push(Entry { act, by: by.to_owned() });
    }

    /// Calls beyond the first of each key: the runner's retries.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.calls.values().map(|call| call.asked - 1).sum()
    }

    /// Commands that came again, and events that were sent again.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.repeated + self.commands.values().map(|command| command.times - 1).sum::<u64>()
    }
}

/// What the payment service does and answers.
fn outcome(key: &str, effect: &str, body: &Value) -> (Option<Act>, (u16, Value)) {
    let declined = body["card"].as_str().is_some_and(|card| card.ends_with(crate::orders::DECLINED));
    match effect {
        "payments.charge" if declined => {
            (None, (402, serde_json::json!({ "reason": "the card was declined" })))
        }
        "payments.charge" => {
            (Some(Act::Charged), (201, serde_json::json!({ "chargeId": format!("ch-{key}") })))
        }
        "payments.refund" => {
            (Some(Act::Refunded), (201, serde_json::json!({ "refundId": format!("re-{key}") })))
        }
        other => (None, (404, serde_json::json!({ "reason": format!("{other} is not done here") }))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_executed_once_and_answers_the_same_again() {
        let mut book = Book::default();
        let body = json!({ "card": "4242", "amount": 5 });
        for _ in 0..3 {
            book.call("k", "o", "payments.charge", &body);
            assert_eq!(book.execute("k", "payments.charge", &body), Ok((201, json!({ "chargeId": "ch-k" }))));
        }
        assert_eq!(book.orders["o"], [Entry { act: Act::Charged, by: "k".to_owned() }]);
        assert_eq!(book.retries(), 2);
    }

    #[test]
    fn a_key_with_another_body_is_a_fault_and_changes_nothing() {
        let mut book = Book::default();
        book.call("k", "o", "payments.charge", &json!({ "amount": 5 }));
        book.execute("k", "payments.charge", &json!({ "amount": 5 })).unwrap();
        book.execute("k", "payments.charge", &json!({ "amount": 6 })).unwrap_err();
        assert_eq!((book.faults.len(), book.orders["o"].len()), (1, 1));
    }

    #[test]
    fn a_declined_card_is_not_charged() {
        let mut book = Book::default();
        let body = json!({ "card": "0002" });
        book.call("k", "o", "payments.charge", &body);
        assert_eq!(book.execute("k", "payments.charge", &body).unwrap().0, 402);
        assert!(book.orders.is_empty());
    }

    #[test]
    fn only_the_first_arrival_of_a_command_counts() {
        let mut book = Book::default();
        assert!(book.command("c", "o", "inventory.ReserveStock"));
        assert!(!book.command("c", "o", "inventory.ReserveStock"));
        assert_eq!(book.duplicates(), 1);
        book.command("c", "o", "inventory.ReleaseStock");
        assert_eq!(book.faults.len(), 1);
    }
}
