//! State and transitions of the order saga.

use orlog_guest::{
    Event, Failure, Input, InputBody, Saga, SagaDecision, Status, TransitionBuilder, WorkOutcome,
    WorkResult,
};
use serde::{Deserialize, Serialize};

const PAYMENT_MS: u64 = 30 * 60 * 1000;

/// The order saga.
pub struct OrderSaga;

/// State of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    #[serde(rename = "orderId")]
    id: String,
    total: i64,
    payment_id: Option<String>,
    /// Requested action; `None` after the end.
    at: Option<RequestedAction>,
    /// Completed and not compensated steps, latest last.
    done: Vec<Step>,
    end: FinalStatus,
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
enum RequestedAction {
    Do(Step),
    Compensate(Step),
}

/// Final status after the compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FinalStatus {
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
struct PaymentRequest<'a> {
    order_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
}

impl Saga for OrderSaga {
    type State = Order;

    fn handle(
        state: Option<Order>,
        input: Input,
        transition: &mut TransitionBuilder,
    ) -> SagaDecision<Order> {
        match (state, input.body) {
            (None, InputBody::Event(event)) => start(&event, transition),
            (Some(order), InputBody::Event(event)) => order.on_event(&event.kind, transition),
            (Some(order), InputBody::WorkResult(result)) => {
                order.on_work_result(&result, transition)
            }
            (Some(order), InputBody::Timer { .. })
                if order.at == Some(RequestedAction::Do(Step::Charge)) =>
            {
                order.start_compensation(
                    FinalStatus::Failed,
                    failure("timeout", "not paid in time"),
                    transition,
                )
            }
            (Some(order), InputBody::Cancel { reason })
                if order.end == FinalStatus::Completed && order.at.is_some() =>
            {
                order.start_compensation(
                    FinalStatus::Cancelled,
                    failure("cancelled", &reason),
                    transition,
                )
            }
            (Some(_), InputBody::Cancel { .. }) => {
                SagaDecision::Reject("the saga is already compensating".to_owned())
            }
            (Some(order), InputBody::Retry) => match order.at {
                Some(action) => order.request(action, transition),
                None => SagaDecision::Reject("the saga has ended".to_owned()),
            },
            (Some(_), InputBody::Skip | InputBody::ForceComplete) => {
                SagaDecision::Reject("only retry is possible".to_owned())
            }
            (_, _) => SagaDecision::Ignore("the input has no effect".to_owned()),
        }
    }
}

fn start(event: &Event, transition: &mut TransitionBuilder) -> SagaDecision<Order> {
    let Placed { order_id, total } = match event.data() {
        Ok(placed) => placed,
        Err(error) => return SagaDecision::DeadLetter(error.to_string()),
    };
    transition.reference(&order_id);
    let order = Order {
        id: order_id,
        total,
        payment_id: None,
        at: None,
        done: Vec::new(),
        end: FinalStatus::Completed,
    };
    order.request(RequestedAction::Do(Step::Reserve), transition)
}

fn failure(code: &str, message: &str) -> Failure {
    Failure {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

impl Order {
    fn on_event(self, kind: &str, transition: &mut TransitionBuilder) -> SagaDecision<Order> {
        match (kind, self.at) {
            ("StockReserved", Some(RequestedAction::Do(Step::Reserve))) => {
                self.completed(Step::Reserve, transition)
            }
            ("StockRejected", Some(RequestedAction::Do(Step::Reserve))) => self.start_compensation(
                FinalStatus::Failed,
                failure("out_of_stock", "out of stock"),
                transition,
            ),
            ("StockReleased", Some(RequestedAction::Compensate(Step::Reserve))) => {
                self.compensate_next(transition)
            }
            ("Shipped", Some(RequestedAction::Do(Step::Ship))) => {
                self.completed(Step::Ship, transition)
            }
            ("ShippingFailed", Some(RequestedAction::Do(Step::Ship))) => self.start_compensation(
                FinalStatus::Failed,
                failure("not_shipped", "not shipped"),
                transition,
            ),
            (_, _) => SagaDecision::Ignore("no step awaits this input".to_owned()),
        }
    }

    fn on_work_result(
        mut self,
        result: &WorkResult,
        transition: &mut TransitionBuilder,
    ) -> SagaDecision<Order> {
        let succeeded = result.outcome == WorkOutcome::Succeeded;
        if result.tag == "charge" && succeeded {
            return match result.payload::<Payment>() {
                Ok(payment) => {
                    self.payment_id = Some(payment.payment_id);
                    self.charged(transition)
                }
                Err(error) => SagaDecision::DeadLetter(error.to_string()),
            };
        }
        let failure = || {
            result
                .failure
                .clone()
                .unwrap_or_else(|| failure("failed", "the work failed"))
        };
        match self.at {
            Some(action) if result.tag != tag(action) => {
                SagaDecision::Ignore("no step awaits this input".to_owned())
            }
            Some(_) if succeeded => self.compensate_next(transition),
            Some(RequestedAction::Do(_)) => {
                self.start_compensation(FinalStatus::Failed, failure(), transition)
            }
            Some(action @ RequestedAction::Compensate(_)) => {
                transition.set_status(Status::Stuck);
                transition.wait_for_operator(tag(action));
                transition.failure(failure());
                SagaDecision::Transition(self)
            }
            None => SagaDecision::Ignore("the saga has ended".to_owned()),
        }
    }

    /// Applies a charge, in time or late. A late charge is compensated with the other steps, or immediately
    /// after the end.
    fn charged(mut self, transition: &mut TransitionBuilder) -> SagaDecision<Order> {
        match self.at {
            Some(RequestedAction::Do(Step::Charge)) => {
                transition.cancel_timer("charge");
                self.completed(Step::Charge, transition)
            }
            Some(_) => {
                self.done.push(Step::Charge);
                transition.set_status(Status::Compensating);
                SagaDecision::Transition(self)
            }
            None => {
                self.done.push(Step::Charge);
                self.compensate_next(transition)
            }
        }
    }

    fn completed(mut self, step: Step, transition: &mut TransitionBuilder) -> SagaDecision<Order> {
        self.done.push(step);
        match step {
            Step::Reserve => self.request(RequestedAction::Do(Step::Charge), transition),
            Step::Charge => self.request(RequestedAction::Do(Step::Ship), transition),
            Step::Ship => {
                self.at = None;
                transition.set_status(Status::Completed);
                transition.emit(
                    "OrderCompleted",
                    &PaymentRequest {
                        order_id: &self.id,
                        amount: None,
                    },
                );
                SagaDecision::Transition(self)
            }
        }
    }

    fn start_compensation(
        mut self,
        end: FinalStatus,
        reason: Failure,
        transition: &mut TransitionBuilder,
    ) -> SagaDecision<Order> {
        if self.at == Some(RequestedAction::Do(Step::Charge)) {
            transition.cancel_timer("charge");
        }
        self.end = end;
        transition.failure(reason);
        self.compensate_next(transition)
    }

    fn compensate_next(mut self, transition: &mut TransitionBuilder) -> SagaDecision<Order> {
        if let Some(step) = self.done.pop() {
            return self.request(RequestedAction::Compensate(step), transition);
        }
        self.at = None;
        transition.set_status(if self.end == FinalStatus::Cancelled {
            Status::Cancelled
        } else {
            Status::Failed
        });
        transition.emit(
            "OrderCancelled",
            &PaymentRequest {
                order_id: &self.id,
                amount: None,
            },
        );
        SagaDecision::Transition(self)
    }

    fn request(
        mut self,
        action: RequestedAction,
        transition: &mut TransitionBuilder,
    ) -> SagaDecision<Order> {
        let tag = tag(action);
        let request = PaymentRequest {
            order_id: &self.id,
            amount: None,
        };
        match action {
            RequestedAction::Do(Step::Reserve) => {
                transition.command(tag, "inventory.ReserveStock", &request);
            }
            RequestedAction::Do(Step::Charge) => {
                transition.effect(
                    tag,
                    "payments.charge",
                    &PaymentRequest {
                        amount: Some(self.total),
                        ..request
                    },
                );
                transition.arm_timer(tag, PAYMENT_MS);
            }
            RequestedAction::Do(Step::Ship) => transition.command(tag, "shipping.Ship", &request),
            RequestedAction::Compensate(Step::Reserve) => {
                transition.command(tag, "inventory.ReleaseStock", &request);
            }
            RequestedAction::Compensate(Step::Charge) => {
                let payment_id = self.payment_id.clone().unwrap_or_default();
                transition.effect(tag, "payments.refund", &Payment { payment_id });
            }
            // Shipping is the last step; no step can fail after it.
            RequestedAction::Compensate(Step::Ship) => return self.compensate_next(transition),
        }
        if let RequestedAction::Compensate(_) = action {
            transition.set_status(Status::Compensating);
        }
        self.at = Some(action);
        SagaDecision::Transition(self)
    }
}

fn tag(action: RequestedAction) -> &'static str {
    match action {
        RequestedAction::Do(Step::Reserve) => "reserve",
        RequestedAction::Do(Step::Charge) => "charge",
        RequestedAction::Do(Step::Ship) => "ship",
        RequestedAction::Compensate(Step::Reserve) => "compensate:reserve",
        RequestedAction::Compensate(Step::Charge) => "compensate:charge",
        RequestedAction::Compensate(Step::Ship) => "compensate:ship",
    }
}
