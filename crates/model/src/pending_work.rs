//! Pending work of an instance: work items without a result.

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{Name, Timestamp, WorkKind};

/// Pending work: a work item without a result.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PendingWork {
    /// Idempotency key.
    pub id: Uuid,
    /// Kind of the work.
    pub kind: WorkKind,
    /// Tag that the program assigned.
    pub tag: Name,
    /// Time of the transition that requested it last. The same work can be requested again under
    /// its id.
    pub requested_at: Timestamp,
    /// Whether its success is applied after the instance has ended, because it must be compensated.
    /// False for a command that an event confirms: its acceptance is no success.
    pub survives_end: bool,
    /// Dead letter of its result, if the result could not be applied. The work stays pending until
    /// the dead letter is redriven.
    #[serde(default)]
    pub dead_letter: Option<Uuid>,
    /// Whether the instance no longer waits for its result. A late success is still applied.
    #[serde(default)]
    pub abandoned: bool,
}

/// Rows are read by position: absent fields at the end are not written.
impl Serialize for PendingWork {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The last fields are absent if they are empty; a present field needs all fields before it.
        let fields = 5 + if self.abandoned {
            2
        } else {
            usize::from(self.dead_letter.is_some())
        };

        let mut work = serializer.serialize_struct("PendingWork", fields)?;
        work.serialize_field("id", &self.id)?;
        work.serialize_field("kind", &self.kind)?;
        work.serialize_field("tag", &self.tag)?;
        work.serialize_field("requested_at", &self.requested_at)?;
        work.serialize_field("survives_end", &self.survives_end)?;

        if fields > 5 {
            work.serialize_field("dead_letter", &self.dead_letter)?;
        }
        if fields > 6 {
            work.serialize_field("abandoned", &self.abandoned)?;
        }

        work.end()
    }
}
