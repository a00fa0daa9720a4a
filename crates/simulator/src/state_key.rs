//! Keys of the states of a proof: equal keys are states that later inputs cannot distinguish.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Key of a state: a hash, and hashes of records that later inputs can only remove, in ascending
/// order.
///
/// A state covers another one with the same core and a part of its optional records: it receives
/// the same inputs in the same way, and more. A result that nothing waits for can arrive at any
/// time, thus also never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateKey {
    pub(crate) core: u128,
    pub(crate) optional: Box<[u64]>,
}

/// Hasher of a key.
#[derive(Default)]
pub(crate) struct KeyHasher {
    core: WideHasher,
    optional: Vec<u64>,
    /// Whether no difference is omitted that a reduction omits.
    is_full: bool,
}

impl KeyHasher {
    /// Creates a hasher for a search without reductions.
    pub(crate) fn full() -> Self {
        Self {
            is_full: true,
            ..Self::default()
        }
    }

    /// Adds a value that only a search without reductions distinguishes.
    pub(crate) fn add_omitted(&mut self, value: impl Hash) {
        if self.is_full {
            self.add(value);
        }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: impl Hash) {
        value.hash(&mut self.core);
    }

    /// Adds a record that later inputs can only remove.
    pub(crate) fn add_optional(&mut self, record: impl Hash) {
        if self.is_full {
            return self.add(record);
        }

        let mut hasher = DefaultHasher::new();
        record.hash(&mut hasher);
        self.optional.push(hasher.finish());
    }

    /// Returns whether the search has no reductions.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the key.
    pub(crate) fn finish(mut self) -> StateKey {
        // The subset test of the graph requires order; records are added in the order of the path.
        self.optional.sort_unstable();
        StateKey {
            core: self.core.wide(),
            optional: self.optional.into(),
        }
    }
}

/// Hasher of 128 bits: two hashes of the same data with different prefixes.
struct WideHasher(DefaultHasher, DefaultHasher);

impl Default for WideHasher {
    fn default() -> Self {
        let mut second = DefaultHasher::new();
        // With 64 bits, two of many million states could have one hash, and one of them would not
        // be visited.
        second.write_u8(1);
        Self(DefaultHasher::new(), second)
    }
}

impl WideHasher {
    fn wide(&self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}

impl Hasher for WideHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
