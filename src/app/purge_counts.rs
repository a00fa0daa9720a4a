//! What was forgotten, counted.

use orlog_actors::Sheet;
use prometheus_client::metrics::counter::Counter;

/// What a pass forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Instances with their histories.
    pub instances: u64,
    /// Tasks with what happened to them.
    pub tasks: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// The same, since the start.
#[derive(Default)]
pub(super) struct Purges {
    instances: Counter,
    tasks: Counter,
    dead_letters: Counter,
}

impl Purges {
    pub(super) fn shown(sheet: &mut impl Sheet) -> Self {
        let purges = Self::default();
        sheet.put("instances_purged_total", purges.instances.clone());
        sheet.put("tasks_purged_total", purges.tasks.clone());
        sheet.put("dead_letters_purged_total", purges.dead_letters.clone());
        purges
    }

    pub(super) fn count(&self, purged: &Purged) {
        self.instances.inc_by(purged.instances);
        self.tasks.inc_by(purged.tasks);
        self.dead_letters.inc_by(purged.dead_letters);
    }
}
