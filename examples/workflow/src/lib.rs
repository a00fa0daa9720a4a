//! Order workflow: reserve stock, write invoice and label concurrently, ship, charge.

use std::time::Duration;

use orlog_workflow::{BuildError, Context, Retry, TaskError, Workflow};
use serde::{Deserialize, Serialize};

/// Order of a customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Number of the order.
    pub number: u32,
    /// Whether a courier delivers it.
    pub express: bool,
    /// Price in cents.
    pub cents: u64,
}

/// Order with reserved stock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    order: Order,
    shelf: String,
}

/// Documents of a shipment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    order: Order,
    documents: Vec<String>,
}

/// Receipt of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Number of the order.
    pub number: u32,
    /// Charged price in cents.
    pub cents: u64,
    /// Key under which the payment provider executed the charge once.
    pub key: String,
}

/// Builds the workflow.
///
/// # Errors
/// If two steps have the same name.
pub fn order() -> Result<Workflow<Order, Receipt>, BuildError> {
    Workflow::builder("order")
        .then("reserve", reserve)
        .undo(release)
        .fork(|fork| fork.branch("invoice", invoice).branch("label", label))
        .join("pack", |(invoice, label): (Packed, Packed)| async move {
            let documents = [invoice.documents, label.documents].concat();
            Ok(Packed {
                documents,
                ..invoice
            })
        })
        .when(
            "express",
            |packed| packed.order.express,
            |body| body.then("courier", courier),
        )
        .otherwise(|body| {
            body.delay("collection", Duration::from_secs(2))
                .then("post", post)
        })
        .then("charge", charge)
        .timeout(Duration::from_mins(5))
        .retry(Retry::attempts(3))
        .undo(refund)
        .build()
}

async fn reserve(_: &Context, order: Order) -> Result<Reserved, TaskError> {
    let shelf = format!("shelf {}", order.number % 7);
    Ok(Reserved { order, shelf })
}

async fn release(_: &Context, _: Order, reserved: Reserved) -> Result<(), TaskError> {
    println!(
        "order {}: {} is free again",
        reserved.order.number, reserved.shelf
    );
    Ok(())
}

async fn invoice(_: &Context, reserved: Reserved) -> Result<Packed, TaskError> {
    let documents = vec![format!("invoice {}", reserved.order.number)];
    Ok(Packed {
        order: reserved.order,
        documents,
    })
}

async fn label(_: &Context, reserved: Reserved) -> Result<Packed, TaskError> {
    let documents = vec![format!(
        "label {}, {}",
        reserved.order.number, reserved.shelf
    )];
    Ok(Packed {
        order: reserved.order,
        documents,
    })
}

async fn courier(_: &Context, packed: Packed) -> Result<Order, TaskError> {
    Ok(packed.order)
}

async fn post(_: &Context, packed: Packed) -> Result<Order, TaskError> {
    Ok(packed.order)
}

/// Charges the order. More than 1000.00 fails, and the stock is released.
async fn charge(context: &Context, order: Order) -> Result<Receipt, TaskError> {
    if order.cents > 100_000 {
        return Err(TaskError::permanent("the card has a limit of 1000.00"));
    }
    Ok(Receipt {
        number: order.number,
        cents: order.cents,
        key: context.idempotency_key(),
    })
}

async fn refund(_: &Context, _: Order, receipt: Receipt) -> Result<(), TaskError> {
    println!(
        "order {}: {} cents are refunded",
        receipt.number, receipt.cents
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use orlog_workflow::{Clock, InProcessRunner, RunError};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_order_waits_for_the_collection_in_virtual_time() {
        let runner = InProcessRunner::new().clock(Clock::virtual_time());
        let start = tokio::time::Instant::now();
        let order = Order {
            number: 7,
            express: false,
            cents: 1250,
        };
        let receipt = runner
            .run(&super::order().expect("valid"), order)
            .await
            .expect("completes");
        assert_eq!((receipt.number, receipt.cents), (7, 1250));
        assert!(start.elapsed() >= Duration::from_secs(2));
    }

    #[tokio::test]
    async fn an_order_over_the_limit_fails() {
        let order = Order {
            number: 8,
            express: true,
            cents: 1_000_000,
        };
        let result = InProcessRunner::new()
            .run(&super::order().expect("valid"), order)
            .await;
        assert!(matches!(result, Err(RunError::Failed(_))), "{result:?}");
    }
}
