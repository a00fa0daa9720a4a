//! The Aggregates behind the Gateway: a command is accepted once, acted on a little later, and answered with an event.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{Desk, refuse};
use crate::orders::{NOWHERE, SILENT, SOLD_OUT};
use crate::record::Act;

/// A command as the runner submits it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Envelope {
    command_id: String,
    aggregate_type: String,
    aggregate_id: String,
    command_type: String,
    payload_json: Value,
    metadata: Metadata,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    correlation_id: String,
}

/// How an aggregate answers.
#[derive(Debug, PartialEq)]
enum Answer {
    /// It acts, and says so with this event.
    Acts(Act, &'static str),
    /// It does nothing, and says so.
    Says(&'static str, Value),
    /// It says nothing.
    Silence,
}

pub(super) async fn accept(
    State(desk): State<Arc<Desk>>,
    Json(envelope): Json<Envelope>,
) -> (StatusCode, Json<Value>) {
    let name = format!("{}.{}", envelope.aggregate_type, envelope.command_type);
    let order = envelope.metadata.correlation_id.clone();
    let answer = match answer(&name, &envelope.payload_json) {
        Ok(answer) => answer,
        Err(reason) => return refuse(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    };
    let id = envelope.command_id.clone();
    if desk.book().command(&id, &order, &name) {
        tokio::spawn(act(Arc::clone(&desk), envelope, answer));
    }
    (StatusCode::ACCEPTED, Json(json!({ "command_id": id })))
}

async fn act(desk: Arc<Desk>, envelope: Envelope, answer: Answer) {
    desk.work().await;
    let (event, more) = match answer {
        Answer::Acts(act, event) => {
            desk.book().act(&envelope.metadata.correlation_id, act, &envelope.command_id);
            (event, json!({}))
        }
        Answer::Says(event, more) => (event, more),
        Answer::Silence => return,
    };
    desk.emit(happened(&envelope, event, more));
}

/// What an aggregate makes of a command.
fn answer(name: &str, payload: &Value) -> Result<Answer, String> {
    let no_goods =
        || payload["items"].as_array().is_some_and(|items| items.iter().any(|i| i["sku"] == SOLD_OUT));
    Ok(match name {
        "inventory.ReserveStock" if no_goods() => {
            Answer::Says("StockRejected", json!({ "reason": "sold out" }))
        }
        "inventory.ReserveStock" => Answer::Acts(Act::Reserved, "StockReserved"),
        "inventory.ReleaseStock" => Answer::Acts(Act::Released, "StockReleased"),
        "payment.RequestAuthorization" if payload["customer"] == SILENT => Answer::Silence,
        "payment.RequestAuthorization" => Answer::Acts(Act::Authorized, "PaymentAuthorized"),
        "shipping.ShipOrder" if payload["address"] == NOWHERE => {
            Answer::Says("ShippingFailed", json!({ "reason": "no parcel can go there" }))
        }
        "shipping.ShipOrder" => Answer::Acts(Act::Shipped, "OrderShipped"),
        other => return Err(format!("no aggregate takes {other}")),
    })
}

/// An event in the Aggregate service's envelope. Its id is derived from the command's: sent again, it is the same event.
fn happened(envelope: &Envelope, event: &str, more: Value) -> Value {
    let order = &envelope.metadata.correlation_id;
    let mut payload = more;
    payload["orderId"] = json!(order);
    json!({
        "event_id": format!("{}:{event}", envelope.command_id),
        "aggregate_id": envelope.aggregate_id,
        "aggregate_type": envelope.aggregate_type,
        "event_type": event,
        "payload": payload,
        "metadata": { "correlation_id": order, "causation_id": envelope.command_id },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::{Fate, Order};

    #[track_caller]
    fn check(name: &str, fate: Fate, expected: &Answer) {
        let data = Order::new("o".to_owned(), fate, 1).placed()["data"].clone();
        assert_eq!(answer(name, &data).as_ref(), Ok(expected));
    }

    #[test]
    fn an_order_s_content_decides_what_the_aggregates_answer() {
        check("inventory.ReserveStock", Fate::Shipped, &Answer::Acts(Act::Reserved, "StockReserved"));
        let sold_out = Answer::Says("StockRejected", json!({ "reason": "sold out" }));
        check("inventory.ReserveStock", Fate::SoldOut, &sold_out);
        check("payment.RequestAuthorization", Fate::Unauthorized, &Answer::Silence);
        check("shipping.ShipOrder", Fate::Declined, &Answer::Acts(Act::Shipped, "OrderShipped"));
        let nowhere = Answer::Says("ShippingFailed", json!({ "reason": "no parcel can go there" }));
        check("shipping.ShipOrder", Fate::Undeliverable, &nowhere);
        answer("inventory.Juggle", &Value::Null).unwrap_err();
    }
}
