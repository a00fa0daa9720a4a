//! Seat booking as a typed saga: reserve, charge, and release the seat if the card is declined.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use orlog::typed::{
    Compensation, Event, Handler, HandlerContext, HandlerError, Handlers, Identifier, NoFailure, Saga,
    Trigger,
};
use orlog_effect::ProviderError;
use orlog_program::{CompiledDefinition, Diagnostic};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Identifier of all events of a booking.
pub(crate) struct BookingId(String);

impl Identifier for BookingId {
    const FIELD: &'static str = "booking";

    fn text(&self) -> String {
        self.0.clone()
    }
}

/// A seat was requested; the start event of a booking.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeatRequested {
    /// Id of the booking.
    pub(crate) booking: String,
    /// Number of the seat.
    pub(crate) seat: u32,
    /// Number of the card.
    pub(crate) card: String,
}

impl Event for SeatRequested {
    const TYPE: &'static str = "SeatWanted";
}

impl Trigger for SeatRequested {
    type Id = BookingId;

    fn id(&self) -> BookingId {
        BookingId(self.booking.clone())
    }
}

/// The seat was reserved for this booking.
#[derive(Serialize, Deserialize)]
pub(crate) struct SeatReserved {
    seat: u32,
}

/// The seat was already reserved.
#[derive(Serialize, Deserialize)]
pub(crate) struct SeatUnavailable {
    reason: String,
}

/// The card was charged.
#[derive(Serialize, Deserialize)]
pub(crate) struct Paid {
    receipt: String,
}

/// Points earned by a payment. A fact that the handler emits in addition to its result.
#[derive(Serialize, Deserialize)]
pub(crate) struct PointsEarned {
    card: String,
}

/// The card was declined.
#[derive(Serialize, Deserialize)]
pub(crate) struct CardRejected {
    reason: String,
}

/// The ticket was sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct TicketSent {}

/// The booking is completed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Booked {}

/// The booking failed.
#[derive(Serialize, Deserialize)]
pub(crate) struct BookingFailed {}

macro_rules! events {
    ($($event:ident),*) => { $(impl Event for $event { const TYPE: &'static str = stringify!($event); })* };
}
events!(SeatReserved, SeatUnavailable, Paid, PointsEarned, CardRejected, TicketSent, Booked, BookingFailed);

/// Reserved seats and their bookings.
pub(crate) type SeatMap = Arc<Mutex<BTreeSet<(u32, String)>>>;

/// Command payload with a seat.
#[derive(Deserialize)]
pub(crate) struct SeatRequest {
    seat: u32,
    booking: String,
}

/// Reserves a seat.
pub(crate) struct Reserve(pub(crate) SeatMap);

#[async_trait]
impl Handler for Reserve {
    const EFFECT: &'static str = "house.reserve";
    type Command = SeatRequest;
    type Ok = SeatReserved;
    type Fail = SeatUnavailable;

    async fn handle(
        &self,
        request: SeatRequest,
        _call: &mut HandlerContext,
    ) -> Result<SeatReserved, HandlerError<SeatUnavailable>> {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seats.iter().any(|(seat, booking)| *seat == request.seat && *booking != request.booking) {
            return Err(HandlerError::Failure(SeatUnavailable {
                reason: format!("seat {} is taken", request.seat),
            }));
        }
        seats.insert((request.seat, request.booking));
        Ok(SeatReserved { seat: request.seat })
    }
}

/// Releases a seat.
pub(crate) struct Release(pub(crate) SeatMap);

#[async_trait]
impl Compensation for Release {
    const EFFECT: &'static str = "house.release";
    type Command = SeatRequest;

    async fn compensate(&self, request: SeatRequest) -> Result<(), ProviderError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(request.seat, request.booking));
        Ok(())
    }
}

/// Command payload with a card.
#[derive(Deserialize)]
pub(crate) struct CardRequest {
    card: String,
}

/// Charges the card.
pub(crate) struct Charge;

#[async_trait]
impl Handler for Charge {
    const EFFECT: &'static str = "bank.charge";
    type Command = CardRequest;
    type Ok = Paid;
    type Fail = CardRejected;

    async fn handle(
        &self,
        order: CardRequest,
        call: &mut HandlerContext,
    ) -> Result<Paid, HandlerError<CardRejected>> {
        if order.card.starts_with('0') {
            return Err(HandlerError::Failure(CardRejected { reason: "the card is expired".to_owned() }));
        }
        call.emit(PointsEarned { card: order.card.clone() })?;
        Ok(Paid { receipt: format!("receipt for {}", order.card) })
    }
}

/// Refunds the payment.
pub(crate) struct Refund;

#[async_trait]
impl Compensation for Refund {
    const EFFECT: &'static str = "bank.refund";
    type Command = CardRequest;

    async fn compensate(&self, order: CardRequest) -> Result<(), ProviderError> {
        println!("refund to {}", order.card);
        Ok(())
    }
}

/// Sends the ticket.
pub(crate) struct Send;

#[async_trait]
impl Handler for Send {
    const EFFECT: &'static str = "mail.ticket";
    type Command = SeatRequest;
    type Ok = TicketSent;
    type Fail = NoFailure;

    async fn handle(
        &self,
        _request: SeatRequest,
        _call: &mut HandlerContext,
    ) -> Result<TicketSent, HandlerError<NoFailure>> {
        Ok(TicketSent {})
    }
}

/// Creates all handlers with a shared seat map.
pub(crate) fn handlers(seats: &SeatMap) -> Handlers {
    let reserve = Reserve(Arc::clone(seats));
    Handlers::new()
        .handler(reserve)
        .compensation(Release(Arc::clone(seats)))
        .handler(Charge)
        .compensation(Refund)
        .handler(Send)
}

/// Builds the booking saga.
pub(crate) fn saga() -> Result<Arc<CompiledDefinition>, Vec<Diagnostic>> {
    let request = || json!({ "seat": "=vars.seat", "booking": "=key.correlation" });
    Saga::<SeatRequested>::new("booking")
        .with_builder(|saga| saga.var("seat", json!("=event.seat")).var("card", json!("=event.card")))
        .step::<Reserve>("reserve", request())
        .compensate::<Release>(request())
        .step::<Charge>("charge", json!({ "card": "=vars.card" }))
        .compensate::<Refund>(json!({ "card": "=vars.card" }))
        .step::<Send>("send", request())
        .completed::<Booked>(json!({}))
        .failed::<BookingFailed>(json!({ "reason": "=failure.message" }))
        .build()
}
