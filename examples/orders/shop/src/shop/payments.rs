//! The payment service: executes once per idempotency key, and fails as it is told to.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::state::{Desk, refuse};

/// At which point a call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Nothing was done.
    Before,
    /// It was done, and the answer is lost.
    After,
}

pub(super) async fn charge(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    perform(&desk, "payments.charge", &headers, &body).await
}

pub(super) async fn refund(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    perform(&desk, "payments.refund", &headers, &body).await
}

async fn perform(desk: &Desk, effect: &str, headers: &HeaderMap, body: &Value) -> (StatusCode, Json<Value>) {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (Some(key), Some(order)) = (key, body["orderId"].as_str()) else {
        return refuse(StatusCode::BAD_REQUEST, "an idempotency-key and an orderId are required");
    };
    desk.book().call(key, order, effect, body);
    if desk.mood().down {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "down for maintenance");
    }
    let failure = failure(desk);
    desk.work().await;
    if failure == Some(Failure::Before) {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "bad luck");
    }
    let executed = desk.book().execute(key, effect, body);
    match executed {
        Err(fault) => refuse(StatusCode::UNPROCESSABLE_ENTITY, &fault),
        Ok(_) if failure == Some(Failure::After) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "done, but the answer was lost")
        }
        Ok((status, answer)) => {
            let status = StatusCode::from_u16(status).expect("the book holds statuses of HTTP");
            (status, Json(answer))
        }
    }
}

fn failure(desk: &Desk) -> Option<Failure> {
    let rate = desk.mood().fail_rate;
    desk.draw(|chance| match chance.f64() {
        draw if draw >= rate => None,
        draw if draw < rate / 2.0 => Some(Failure::Before),
        _ => Some(Failure::After),
    })
}
