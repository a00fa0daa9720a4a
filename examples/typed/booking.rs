//! Booking workflow: the trigger, the handlers and their events.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog::workflow::{
    BuildError, Compensation, Context, Contract, Event, Handler, HandlerError, Identifier,
    NoFailure, TaskError, Trigger, Workflow,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Identifier of a booking, `b-` and a number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BookingId(pub(crate) u32);

impl Identifier for BookingId {
    const FIELD: &'static str = "booking";

    fn text(&self) -> String {
        format!("b-{}", self.0)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text
            .strip_prefix("b-")
            .and_then(|number| number.parse().ok());
        number
            .map(Self)
            .ok_or_else(|| "an identifier is `b-` and a number".to_owned())
    }
}

/// A seat was requested; the start event of a booking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeatRequested {
    /// Id of the booking.
    pub(crate) booking: String,
    /// Number of the seat.
    pub(crate) seat: u32,
    /// Number of the card.
    pub(crate) card: String,
}

impl Trigger for SeatRequested {
    type Id = BookingId;

    fn id(&self) -> BookingId {
        BookingId::from_text(&self.booking).unwrap_or(BookingId(0))
    }
}

/// The seat was reserved for a card.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SeatReserved {
    seat: u32,
    card: String,
}

/// The seat was already reserved.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SeatUnavailable {
    reason: String,
}

/// The card was charged for a seat.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Paid {
    seat: u32,
    receipt: String,
}

/// The card was declined.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CardRejected {
    reason: String,
}

/// Points earned by a payment. A fact that the handler emits in addition to its result.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PointsEarned {
    card: String,
}

/// The ticket was sent.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TicketSent {
    seat: u32,
}

macro_rules! events {
    ($($event:ident),*) => { $(impl Event for $event { const TYPE: &'static str = stringify!($event); })* };
}
events!(
    SeatRequested,
    SeatReserved,
    SeatUnavailable,
    Paid,
    CardRejected,
    PointsEarned,
    TicketSent
);

/// Reserved seats and their bookings.
pub(crate) type SeatMap = Arc<Mutex<BTreeSet<(u32, u32)>>>;

/// Reserves a seat.
pub(crate) struct Reserve(pub(crate) SeatMap);

impl Contract for Reserve {
    const EFFECT: &'static str = "house.reserve";
    type Command = SeatRequested;
    type Ok = SeatReserved;
    type Fail = SeatUnavailable;
}

impl Handler for Reserve {
    async fn handle(
        &self,
        context: &Context,
        request: SeatRequested,
    ) -> Result<SeatReserved, HandlerError<SeatUnavailable>> {
        let BookingId(booking) = context.identifier()?;
        let mut seats = self.0.lock();
        if seats
            .iter()
            .any(|(seat, other)| *seat == request.seat && *other != booking)
        {
            let reason = format!("seat {} is taken", request.seat);
            return Err(HandlerError::Failure(SeatUnavailable { reason }));
        }
        seats.insert((request.seat, booking));
        Ok(SeatReserved {
            seat: request.seat,
            card: request.card,
        })
    }
}

/// Releases a seat.
pub(crate) struct Release(pub(crate) SeatMap);

impl Compensation<SeatRequested, SeatReserved> for Release {
    async fn run(
        &self,
        context: &Context,
        _: SeatRequested,
        reserved: SeatReserved,
    ) -> Result<(), TaskError> {
        let BookingId(booking) = context.identifier()?;
        self.0.lock().remove(&(reserved.seat, booking));
        Ok(())
    }
}

/// Charges the card.
pub(crate) struct Charge;

impl Contract for Charge {
    const EFFECT: &'static str = "bank.charge";
    type Command = SeatReserved;
    type Ok = Paid;
    type Fail = CardRejected;
}

impl Handler for Charge {
    async fn handle(
        &self,
        context: &Context,
        order: SeatReserved,
    ) -> Result<Paid, HandlerError<CardRejected>> {
        if order.card.starts_with('0') {
            return Err(HandlerError::Failure(CardRejected {
                reason: "the card is expired".to_owned(),
            }));
        }
        context.emit(&PointsEarned {
            card: order.card.clone(),
        })?;
        Ok(Paid {
            seat: order.seat,
            receipt: format!("receipt for {}", order.card),
        })
    }
}

/// Sends the ticket. The mail server of the house performs it, not this program.
pub(crate) struct Send;

impl Contract for Send {
    const EFFECT: &'static str = "mail.ticket";
    type Command = Paid;
    type Ok = TicketSent;
    type Fail = NoFailure;
}

/// Refunds the payment.
async fn refund(_: &Context, _: SeatReserved, paid: Paid) -> Result<(), TaskError> {
    println!("refund of {}", paid.receipt);
    Ok(())
}

/// Builds the booking workflow.
pub(crate) fn workflow(seats: &SeatMap) -> Result<Workflow<SeatRequested, TicketSent>, BuildError> {
    Workflow::builder("booking")
        .handle("reserve", Reserve(Arc::clone(seats)))
        .undo(Release(Arc::clone(seats)))
        .handle("charge", Charge)
        .undo(refund)
        .handled_elsewhere::<Send>("send")
        .build()
}
