//! Reading a journal, also while it is written.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{RECORD_HEADER_BYTES, RecordHeader};
use crate::inner::Log;
use crate::read_buffer::{Found, Window};
use crate::segment::Segment;

/// Reads the journal from any thread. Cheap to clone; it keeps no file locked.
#[derive(Debug, Clone)]
pub struct Reader {
    log: Arc<Log>,
}

impl Reader {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self { log }
    }

    /// The first sequence that can be read; the next one to be written if there is none.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.log.first()
    }

    /// The last sequence that was appended, 0 if none ever was. It need not be on the disk yet.
    #[must_use]
    pub fn last_written(&self) -> u64 {
        self.log.written()
    }

    /// The last sequence that the disk has, 0 if none.
    #[must_use]
    pub fn last_synced(&self) -> u64 {
        self.log.synced()
    }

    /// A cursor that stands before the record `sequence`, which may also be one that is yet to come.
    ///
    /// # Errors
    /// [`Error::Truncated`] if that record was dropped.
    pub fn read_from(&self, sequence: u64) -> Result<Cursor> {
        let first = self.log.first();
        if sequence < first {
            return Err(Error::Truncated { wanted: sequence, first });
        }
        Ok(Cursor { log: Arc::clone(&self.log), next: sequence, place: None, window: Window::default() })
    }

    /// Visits the records from `sequence` to the last one written when the call began, in order.
    ///
    /// # Errors
    /// Those of [`Reader::read_from`] and [`Cursor::read`], and the first one that `visit` answers.
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

/// A record, borrowed from the cursor that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub sequence: u64,
    /// What was appended, the parts joined.
    pub payload: &'a [u8],
}

/// A place in the journal that moves on with each record read. At the end it waits to be asked again.
#[derive(Debug)]
pub struct Cursor {
    log: Arc<Log>,
    next: u64,
    place: Option<Place>,
    window: Window,
}

/// Where the record `Cursor::next` begins, or the tail that it will begin at.
#[derive(Debug)]
struct Place {
    segment: Arc<Segment>,
    offset: u64,
}

impl Cursor {
    /// The sequence of the record that the next read answers.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// The next record that was appended, synced or not; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the record was dropped meanwhile, [`Error::Corrupt`] if it was damaged since the journal
    /// was opened, [`Error::Io`] if the file cannot be read. The cursor stays where it is.
    pub fn read(&mut self) -> Result<Option<Record<'_>>> {
        self.read_up_to(u64::MAX)
    }

    /// The next record, unless it lies behind `last` (for instance [`Reader::last_synced`]).
    ///
    /// # Errors
    /// Those of [`Cursor::read`].
    pub fn read_up_to(&mut self, last: u64) -> Result<Option<Record<'_>>> {
        if self.next > last.min(self.log.written()) {
            return Ok(None);
        }
        let header = self.advance()?;
        let place = self.place.as_ref().expect("the cursor has just advanced there");
        let begin = place.offset - header.footprint();
        let bytes = self.window.view(&place.segment.file, begin, header.length, place.offset);
        let bytes = bytes.map_err(Error::io("read", &place.segment.path))?;
        Ok(Some(Record { sequence: header.sequence, payload: &bytes[RECORD_HEADER_BYTES..] }))
    }

    /// Moves past the record `next`, which has been written.
    fn advance(&mut self) -> Result<RecordHeader> {
        if self.place.as_ref().is_none_or(|place| place.offset >= place.segment.tail()) {
            self.locate()?;
        }
        let place = self.place.as_mut().expect("it was located");
        let header = step(&self.log, &mut self.window, place, self.next)?;
        self.next += 1;
        Ok(header)
    }

    /// Finds where the record `next` begins.
    fn locate(&mut self) -> Result<()> {
        let segment = self.log.holding(self.next)?;
        let (mut sequence, offset) = segment.nearest(self.next);
        let mut place = Place { segment, offset };
        self.window = Window::default();
        while sequence < self.next {
            step(&self.log, &mut self.window, &mut place, sequence)?;
            sequence += 1;
        }
        self.place = Some(place);
        Ok(())
    }
}

/// Moves `place` past the record that must stand there.
fn step(log: &Log, window: &mut Window, place: &mut Place, sequence: u64) -> Result<RecordHeader> {
    let Place { segment, offset } = place;
    let found = window.record(&segment.file, segment.seed, *offset, segment.tail());
    let reason = match found.map_err(Error::io("read", &segment.path))? {
        Found::Record(header) if header.sequence == sequence => {
            *offset += header.footprint();
            return Ok(header);
        }
        Found::Record(_) => "the record has another sequence than its place",
        Found::End => "a record is missing",
        Found::Bad(reason) => reason,
    };
    if segment.is_retired() {
        return Err(Error::Truncated { wanted: sequence, first: log.first().max(sequence + 1) });
    }
    Err(Error::corrupt(&segment.path, *offset, reason))
}
