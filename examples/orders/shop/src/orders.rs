//! Generated orders; the content of an order determines its expected result.

use fastrand::Rng;
use serde_json::{Value, json};

/// Article that is always out of stock.
pub const SOLD_OUT: &str = "unicorn-saddle";
/// Customer that never responds.
pub const UNRESPONSIVE: &str = "unresponsive@example.org";
/// Last digits of a card that is always declined.
pub const REJECTED_CARD: &str = "0002";
/// Address that cannot be shipped to.
pub const NOWHERE: &str = "Atlantis";

/// Order of a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Id of the order and correlation id of its saga.
    pub id: String,
    /// Email address of the customer.
    pub customer: String,
    /// Ordered article.
    pub sku: String,
    /// Price in cents.
    pub total: u64,
    /// Last four digits of the card.
    pub card: String,
    /// Shipping address.
    pub address: String,
}

/// Expected result of an order without injected faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// The order is shipped.
    Shipped,
    /// The reservation is rejected.
    SoldOut,
    /// The customer never authorizes the payment.
    Unauthorized,
    /// The card is declined.
    CardRejected,
    /// The order cannot be shipped, so the payment is refunded.
    Undeliverable,
}

impl Order {
    /// Creates an order with the expected result.
    #[must_use]
    pub fn new(id: String, fate: ExpectedResult, total: u64) -> Self {
        let or = |when: ExpectedResult, invalid: &str, valid: &str| {
            (if fate == when { invalid } else { valid }).to_owned()
        };
        Self {
            id,
            customer: or(
                ExpectedResult::Unauthorized,
                UNRESPONSIVE,
                "ada@example.org",
            ),
            sku: or(ExpectedResult::SoldOut, SOLD_OUT, "teapot"),
            total,
            card: or(ExpectedResult::CardRejected, REJECTED_CARD, "4242"),
            address: or(ExpectedResult::Undeliverable, NOWHERE, "12 Harbour Street"),
        }
    }

    /// Returns the start event of its saga as a `CloudEvent`.
    #[must_use]
    pub fn placed(&self) -> Value {
        json!({
            "specversion": "1.0",
            "id": format!("placed-{}", self.id),
            "source": "urn:shop:checkout",
            "type": "OrderPlaced",
            "correlationid": self.id,
            "data": {
                "orderId": self.id,
                "customer": self.customer,
                "items": [{ "sku": self.sku, "quantity": 1 }],
                "total": self.total,
                "card": self.card,
                "address": self.address,
            },
        })
    }
}

/// Generates `count` orders, deterministic by seed. Six in ten are shipped.
#[must_use]
pub fn orders(seed: u64, count: usize) -> Vec<Order> {
    let mut chance = Rng::with_seed(seed);
    (1..=count)
        .map(|number| {
            Order::new(
                format!("o-{number:05}"),
                fate(&mut chance),
                chance.u64(100..50_000),
            )
        })
        .collect()
}

fn fate(chance: &mut Rng) -> ExpectedResult {
    match chance.u8(0..100) {
        0..60 => ExpectedResult::Shipped,
        60..70 => ExpectedResult::SoldOut,
        70..80 => ExpectedResult::Unauthorized,
        80..90 => ExpectedResult::CardRejected,
        _ => ExpectedResult::Undeliverable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_is_deterministic_and_covers_every_result() {
        let first = orders(7, 200);
        assert_eq!(first, orders(7, 200));
        assert_ne!(first, orders(8, 200));
        let count = |is: &dyn Fn(&Order) -> bool| first.iter().filter(|order| is(order)).count();
        for found in [
            count(&|o| o.sku == SOLD_OUT),
            count(&|o| o.customer == UNRESPONSIVE),
            count(&|o| o.card == REJECTED_CARD),
            count(&|o| o.address == NOWHERE),
        ] {
            assert!((5..=40).contains(&found), "{found} of 200");
        }
    }
}
