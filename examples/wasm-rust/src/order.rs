//! What the saga remembers and decides.

use orlog_guest::{Answer, Event, Failure, Input, Outcome, Saga, Status, Verdict, What};
use serde::{Deserialize, Serialize};

const PAYMENT_MS: u64 = 30 * 60 * 1000;

/// The saga.
pub struct Orders;

/// What is remembered of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    #[serde(rename = "orderId")]
    id: String,
    total: i64,
    payment_id: Option<String>,
    /// What is asked for; nothing when it has ended.
    at: Option<Asked>,
    /// What was done and not undone, the last at the end.
    done: Vec<Step>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    Reserve,
    Charge,
    Ship,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Asked {
    Do(Step),
    Undo(Step),
}

/// How it is going to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Completed,
    Failed,
    Cancelled,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    order_id: String,
    total: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payment {
    payment_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ask<'a> {
    order_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
}

impl Saga for Orders {
    type State = Order;

    fn on(state: Option<Order>, input: Input, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        match (state, input.what) {
            (None, What::Event(event)) => begin(&event, orders),
            (Some(order), What::Event(event)) => order.happened(&event.kind, orders),
            (Some(order), What::Outcome(outcome)) => order.answered(&outcome, orders),
            (Some(order), What::Timer { .. }) if order.at == Some(Asked::Do(Step::Charge)) => {
                order.turn_back(End::Failed, failure("timeout", "not paid in time"), orders)
            }
            (Some(order), What::Cancel { reason }) if order.end == End::Completed && order.at.is_some() => {
                order.turn_back(End::Cancelled, failure("cancelled", &reason), orders)
            }
            (Some(_), What::Cancel { .. }) => Answer::Refuse("it no longer goes forward".to_owned()),
            (Some(order), What::Retry) => match order.at {
                Some(asked) => order.ask(asked, orders),
                None => Answer::Refuse("it has ended".to_owned()),
            },
            (Some(_), What::Skip | What::ForceComplete) => {
                Answer::Refuse("it can only be retried".to_owned())
            }
            (_, _) => Answer::Ignore("nothing to do".to_owned()),
        }
    }
}

fn begin(event: &Event, orders: &mut orlog_guest::Orders) -> Answer<Order> {
    let Placed { order_id, total } = match event.data() {
        Ok(placed) => placed,
        Err(error) => return Answer::Reject(error.to_string()),
    };
    orders.reference(&order_id);
    let order =
        Order { id: order_id, total, payment_id: None, at: None, done: Vec::new(), end: End::Completed };
    order.ask(Asked::Do(Step::Reserve), orders)
}

fn failure(code: &str, message: &str) -> Failure {
    Failure { code: code.to_owned(), message: message.to_owned() }
}

impl Order {
    fn happened(self, kind: &str, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        match (kind, self.at) {
            ("StockReserved", Some(Asked::Do(Step::Reserve))) => self.completed(Step::Reserve, orders),
            ("StockRejected", Some(Asked::Do(Step::Reserve))) => {
                self.turn_back(End::Failed, failure("out_of_stock", "out of stock"), orders)
            }
            ("StockReleased", Some(Asked::Undo(Step::Reserve))) => self.undo_next(orders),
            ("Shipped", Some(Asked::Do(Step::Ship))) => self.completed(Step::Ship, orders),
            ("ShippingFailed", Some(Asked::Do(Step::Ship))) => {
                self.turn_back(End::Failed, failure("not_shipped", "not shipped"), orders)
            }
            (_, _) => Answer::Ignore("no step waits for it".to_owned()),
        }
    }

    fn answered(mut self, outcome: &Outcome, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        let succeeded = outcome.verdict == Verdict::Succeeded;
        if outcome.tag == "charge" && succeeded {
            return match outcome.payload::<Payment>() {
                Ok(payment) => {
                    self.payment_id = Some(payment.payment_id);
                    self.charged(orders)
                }
                Err(error) => Answer::Reject(error.to_string()),
            };
        }
        let failure = || outcome.failure.clone().unwrap_or_else(|| failure("failed", "it failed"));
        match self.at {
            Some(asked) if outcome.tag != tag(asked) => Answer::Ignore("no step waits for it".to_owned()),
            Some(_) if succeeded => self.undo_next(orders),
            Some(Asked::Do(_)) => self.turn_back(End::Failed, failure(), orders),
            Some(asked @ Asked::Undo(_)) => {
                orders.end(Status::Stuck);
                orders.wait_for_operator(tag(asked));
                orders.failure(failure());
                Answer::Become(self)
            }
            None => Answer::Ignore("it has ended".to_owned()),
        }
    }

    /// In time, or too late: then it is undone with the rest, or at once when the rest is over.
    fn charged(mut self, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        match self.at {
            Some(Asked::Do(Step::Charge)) => {
                orders.disarm("charge");
                self.completed(Step::Charge, orders)
            }
            Some(_) => {
                self.done.push(Step::Charge);
                orders.end(Status::Compensating);
                Answer::Become(self)
            }
            None => {
                self.done.push(Step::Charge);
                self.undo_next(orders)
            }
        }
    }

    fn completed(mut self, step: Step, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        self.done.push(step);
        match step {
            Step::Reserve => self.ask(Asked::Do(Step::Charge), orders),
            Step::Charge => self.ask(Asked::Do(Step::Ship), orders),
            Step::Ship => {
                self.at = None;
                orders.end(Status::Completed);
                orders.tell("OrderCompleted", &Ask { order_id: &self.id, amount: None });
                Answer::Become(self)
            }
        }
    }

    fn turn_back(mut self, end: End, why: Failure, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        if self.at == Some(Asked::Do(Step::Charge)) {
            orders.disarm("charge");
        }
        self.end = end;
        orders.failure(why);
        self.undo_next(orders)
    }

    fn undo_next(mut self, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        if let Some(step) = self.done.pop() {
            return self.ask(Asked::Undo(step), orders);
        }
        self.at = None;
        orders.end(if self.end == End::Cancelled { Status::Cancelled } else { Status::Failed });
        orders.tell("OrderCancelled", &Ask { order_id: &self.id, amount: None });
        Answer::Become(self)
    }

    fn ask(mut self, asked: Asked, orders: &mut orlog_guest::Orders) -> Answer<Order> {
        let tag = tag(asked);
        let about = Ask { order_id: &self.id, amount: None };
        match asked {
            Asked::Do(Step::Reserve) => orders.command(tag, "inventory.ReserveStock", &about),
            Asked::Do(Step::Charge) => {
                orders.effect(tag, "payments.charge", &Ask { amount: Some(self.total), ..about });
                orders.arm(tag, PAYMENT_MS);
            }
            Asked::Do(Step::Ship) => orders.command(tag, "shipping.Ship", &about),
            Asked::Undo(Step::Reserve) => orders.command(tag, "inventory.ReleaseStock", &about),
            Asked::Undo(Step::Charge) => {
                let payment_id = self.payment_id.clone().unwrap_or_default();
                orders.effect(tag, "payments.refund", &Payment { payment_id });
            }
            // Shipping is the last step: nothing can fail after it.
            Asked::Undo(Step::Ship) => return self.undo_next(orders),
        }
        if let Asked::Undo(_) = asked {
            orders.end(Status::Compensating);
        }
        self.at = Some(asked);
        Answer::Become(self)
    }
}

fn tag(asked: Asked) -> &'static str {
    match asked {
        Asked::Do(Step::Reserve) => "reserve",
        Asked::Do(Step::Charge) => "charge",
        Asked::Do(Step::Ship) => "ship",
        Asked::Undo(Step::Reserve) => "undo:reserve",
        Asked::Undo(Step::Charge) => "undo:charge",
        Asked::Undo(Step::Ship) => "undo:ship",
    }
}
