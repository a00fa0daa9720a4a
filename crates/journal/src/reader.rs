//! Readers of a journal, concurrent with the writer.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{RECORD_HEADER_BYTES, RecordHeader};
use crate::inner::JournalInner;
use crate::read_buffer::{ReadBuffer, ScanResult};
use crate::segment::Segment;

/// Reader of the journal, for any thread. Cheap to clone; it locks no file.
#[derive(Debug, Clone)]
pub struct Reader {
    log: Arc<JournalInner>,
}

impl Reader {
    pub(crate) fn new(log: Arc<JournalInner>) -> Self {
        Self { log }
    }

    /// Returns the first readable sequence; the next one to be written if there is none.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.log.first()
    }

    /// Returns the last appended sequence, 0 if there is none. It may not be synced yet.
    #[must_use]
    pub fn last_written(&self) -> u64 {
        self.log.written()
    }

    /// Returns the last synced sequence, 0 if there is none.
    #[must_use]
    pub fn last_synced(&self) -> u64 {
        self.log.synced()
    }

    /// Returns a cursor before the record `sequence`, which may be a future record.
    ///
    /// # Errors
    /// [`Error::Truncated`] if that record was dropped.
    pub fn read_from(&self, sequence: u64) -> Result<Cursor> {
        let first = self.log.first();
        if sequence < first {
            return Err(Error::Truncated {
                requested: sequence,
                first,
            });
        }
        Ok(Cursor {
            log: Arc::clone(&self.log),
            next: sequence,
            position: None,
            window: ReadBuffer::default(),
        })
    }

    /// Visits the records from `sequence` to the last one written at the time of the call, in
    /// order.
    ///
    /// # Errors
    /// The errors of [`Reader::read_from`] and [`Cursor::read`], and the first error of `visit`.
    pub fn for_each<E: From<Error>>(
        &self,
        sequence: u64,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let last = self.last_written();
        let mut cursor = self.read_from(sequence)?;
        while let Some(record) = cursor.read_up_to(last)? {
            visit(record.sequence, record.payload)?;
        }
        Ok(())
    }
}

/// Record, borrowed from the cursor that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Sequence of the record.
    pub sequence: u64,
    /// Payload: the concatenated parts.
    pub payload: &'a [u8],
}

/// Position in the journal that advances with each record. At the end it returns `None` and can be
/// polled again.
#[derive(Debug)]
pub struct Cursor {
    log: Arc<JournalInner>,
    next: u64,
    position: Option<ReadPosition>,
    window: ReadBuffer,
}

/// Position where the record `Cursor::next` starts or will start.
#[derive(Debug)]
struct ReadPosition {
    segment: Arc<Segment>,
    offset: u64,
}

impl Cursor {
    /// Returns the sequence of the record that the next read returns.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns the next appended record, synced or not; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the record was dropped meanwhile, [`Error::Corrupt`] if it was
    /// damaged since the journal was opened, [`Error::Io`] if the file cannot be read. The cursor
    /// does not move.
    pub fn read(&mut self) -> Result<Option<Record<'_>>> {
        self.read_up_to(u64::MAX)
    }

    /// Returns the next record, unless it is after `last` (for example [`Reader::last_synced`]).
    ///
    /// # Errors
    /// The errors of [`Cursor::read`].
    pub fn read_up_to(&mut self, last: u64) -> Result<Option<Record<'_>>> {
        // A sequence is published after its bytes, so the record that is read below is complete.
        if self.next > last.min(self.log.written()) {
            return Ok(None);
        }

        let header = self.advance()?;
        let position = self
            .position
            .as_ref()
            .expect("the cursor has just advanced to this position");

        // The record was verified in the same buffer, so this view reads no file.
        let start = position.offset - header.footprint();
        let bytes = self.window.view(
            &position.segment.file,
            start,
            header.length,
            position.offset,
        );
        let bytes = bytes.map_err(Error::io("read", &position.segment.path))?;

        Ok(Some(Record {
            sequence: header.sequence,
            payload: &bytes[RECORD_HEADER_BYTES..],
        }))
    }

    /// Advances past the record `next`, which has been written.
    fn advance(&mut self) -> Result<RecordHeader> {
        // At the end of its segment the cursor moves to the next one. At the end of the log this
        // line is not reached.
        if self
            .position
            .as_ref()
            .is_none_or(|position| position.offset >= position.segment.tail())
        {
            self.locate()?;
        }

        let position = self.position.as_mut().expect("the position was located");
        let header = step(&self.log, &mut self.window, position, self.next)?;
        self.next += 1;
        Ok(header)
    }

    /// Finds the position where the record `next` starts.
    fn locate(&mut self) -> Result<()> {
        let segment = self.log.segment_of(self.next)?;
        let (mut sequence, offset) = segment.index_lookup(self.next);
        let mut position = ReadPosition { segment, offset };
        // The buffer has bytes of another file.
        self.window = ReadBuffer::default();

        // The index has one entry for about 256 KiB. The records in between are skipped one by one.
        while sequence < self.next {
            step(&self.log, &mut self.window, &mut position, sequence)?;
            sequence += 1;
        }
        self.position = Some(position);
        Ok(())
    }
}

/// Advances `position` past the record `sequence`, which starts there.
fn step(
    log: &JournalInner,
    window: &mut ReadBuffer,
    position: &mut ReadPosition,
    sequence: u64,
) -> Result<RecordHeader> {
    let ReadPosition { segment, offset } = position;
    let found = window.record(&segment.file, segment.seed, *offset, segment.tail());
    let reason = match found.map_err(Error::io("read", &segment.path))? {
        ScanResult::Record(header) if header.sequence == sequence => {
            *offset += header.footprint();
            return Ok(header);
        }
        ScanResult::Record(_) => "the record has an unexpected sequence",
        ScanResult::End => "a record is missing",
        ScanResult::Invalid(reason) => reason,
    };

    // The file of a dropped segment may already contain another one.
    if segment.is_retired() {
        return Err(Error::Truncated {
            requested: sequence,
            // The list of segments may still contain the dropped one, so its successor is at least
            // the next record.
            first: log.first().max(sequence + 1),
        });
    }
    Err(Error::corrupt(&segment.path, *offset, reason))
}
