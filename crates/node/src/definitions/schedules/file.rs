//! Files `*.schedule.yaml`: one schedule each, with the positions of all errors.

use std::path::Path;

use orlog_model::{DeployedSchedule, TenantId};
use orlog_program::document::{Document, Entry};
use orlog_program::{Diagnostic, Program};
use orlog_sagas::schedule::{ScheduleError, ScheduleSpec, check_name};
use serde_json::{Map, Value};

/// Suffix of schedule files.
pub const SUFFIX: &str = ".schedule.yaml";

/// Fields of a file.
const FIELDS: [&str; 13] = [
    "schedule", "tenant", "saga", "event", "data", "cron", "every", "anchor", "at", "zone",
    "overlap", "catch_up", "jitter",
];

/// Schedule of a file.
#[derive(Debug)]
pub struct ScheduleFile {
    /// Tenant.
    pub(crate) tenant: TenantId,
    /// Name of the schedule.
    pub name: String,
    /// Specification.
    pub(crate) spec: ScheduleSpec,
    /// File, for messages.
    pub file: String,
    text: String,
    document: Document,
}

impl ScheduleFile {
    /// Parses the text of a file. `file` is used in diagnostics.
    ///
    /// # Errors
    /// All errors, with their positions.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Self, Vec<Diagnostic>> {
        let document = Document::read(text, file).map_err(|error| vec![error])?;
        let root = document.root();
        let Some(entries) = root.map() else {
            return Err(vec![root.type_error("a map of fields")]);
        };

        let mut spec = Map::new();
        let mut problems = Vec::new();
        let mut name = None;
        let mut tenant = TenantId::default();
        for entry in &entries {
            let Entry {
                name: field, item, ..
            } = entry;
            match (*field, item.text()) {
                ("schedule", Some(text)) => match check_name(text) {
                    Ok(valid) => name = Some(valid.to_string()),
                    Err(error) => problems.push(item.diagnostic(error)),
                },
                ("tenant", Some(text)) => match TenantId::new(text) {
                    Ok(valid) => tenant = valid,
                    Err(error) => problems.push(item.diagnostic(error.to_string())),
                },
                ("data", _) => drop(spec.insert("data".to_owned(), item.json())),
                // Checked here, because an error of the deserializer has no position in the file.
                ("overlap", Some("skip" | "queue" | "allow" | "cancel")) => {
                    spec.insert("overlap".to_owned(), item.json());
                }
                ("overlap", _) => {
                    problems.push(item.type_error("one of skip, queue, allow, cancel"));
                }
                (field, Some(text)) if FIELDS.contains(&field) => {
                    spec.insert(field.to_owned(), Value::from(text));
                }
                (field, None) if FIELDS.contains(&field) => {
                    problems.push(item.type_error("a text"));
                }
                _ => problems.push(entry.unknown_field(&FIELDS)),
            }
        }

        for (field, is_missing) in [
            ("schedule", name.is_none()),
            ("saga", !spec.contains_key("saga")),
        ] {
            // A field with an invalid value is reported already.
            if is_missing && entries.iter().all(|entry| entry.name != field) {
                problems.push(root.diagnostic(format!("the field `{field}` is missing")));
            }
        }

        let Some(name) = name.filter(|_| problems.is_empty()) else {
            return Err(problems);
        };

        let spec: ScheduleSpec = serde_json::from_value(Value::Object(spec))
            .map_err(|error| vec![root.diagnostic(error.to_string())])?;
        let file = file.to_owned();
        let text = text.to_owned();
        let this = Self {
            tenant,
            name,
            spec,
            file,
            text,
            document,
        };

        match this.spec.check() {
            Ok(()) => Ok(this),
            Err(errors) => Err(errors.iter().map(|error| this.diagnostic(error)).collect()),
        }
    }

    /// Assigns the schedule to the tenant of a context.
    ///
    /// # Errors
    /// The position of the field `tenant`, if it names another tenant.
    pub(crate) fn assign_to(&mut self, context: &TenantId) -> Result<(), Diagnostic> {
        if self.tenant != TenantId::default() && self.tenant != *context {
            let message = format!(
                "a schedule of the context {context} belongs to its tenant; remove the field"
            );
            return Err(self.diagnostic(&ScheduleError {
                field: "tenant".to_owned(),
                message,
            }));
        }

        self.tenant = context.clone();
        Ok(())
    }

    /// Checks that the saga and its start event exist.
    ///
    /// # Errors
    /// The position of the field.
    pub fn check_saga<'a>(
        &self,
        programs: impl Iterator<Item = &'a dyn Program> + Clone,
    ) -> Result<(), Diagnostic> {
        super::check_saga(&self.spec, programs).map_err(|error| self.diagnostic(&error))
    }

    /// Returns the record of the deployment of this file.
    pub(crate) fn deployed(&self) -> DeployedSchedule {
        let file = Path::new(&self.file)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let file = file.unwrap_or_default();
        let source = self.text.clone();

        DeployedSchedule {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            file,
            source,
            removed: false,
        }
    }

    fn diagnostic(&self, error: &ScheduleError) -> Diagnostic {
        let root = self.document.root();
        let field = error.field.split(['.', '[']).next().unwrap_or_default();
        let entry = root
            .map()
            .into_iter()
            .flatten()
            .find(|entry| entry.name == field);

        entry.map_or_else(
            || root.diagnostic(error.to_string()),
            |entry| entry.item.diagnostic(error.message.clone()),
        )
    }
}

/// Returns whether a file with this name is a schedule.
#[must_use]
pub fn is_schedule(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rejected(text: &str, expected: &[&str]) {
        let problems = ScheduleFile::parse(text, "a.schedule.yaml").unwrap_err();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn errors_of_a_file_have_positions() {
        rejected(
            "schedule: nightly\nsaga: bill\ncron: 61 * * * *\nzone: Europe/Berlim\n",
            &["a.schedule.yaml:3:7: cron: cron \"61 * * * *\": minute 61 is out of range (0-59)"],
        );
        rejected(
            "schedule: nightly\nsaga: bill\ncron: 1 * * * *\nzone: Europe/Berlim\n",
            &[
                "a.schedule.yaml:4:7: zone: zone \"Europe/Berlim\" is unknown; did you mean \
                 `Europe/Berlin`?",
            ],
        );
        rejected(
            "schedul: nightly\nsaga: bill\nevery: 1h\noverlap: never\n",
            &[
                "a.schedule.yaml:1:1: schedul: unknown field `schedul`; did you mean `schedule`?",
                "a.schedule.yaml:4:10: overlap: this must be one of skip, queue, allow, cancel, it \
                 is a text",
                "a.schedule.yaml:1:1: the field `schedule` is missing",
            ],
        );
    }

    #[test]
    fn file_has_tenant_name_and_specification() {
        let text = "schedule: nightly\ntenant: acme\nsaga: bill\ncron: 0 2 * * *\nzone: \
            Europe/Berlin\noverlap: queue\n";
        let file = ScheduleFile::parse(text, "dir/a.schedule.yaml").unwrap();
        assert_eq!(
            (
                file.tenant.as_str(),
                file.name.as_str(),
                file.spec.saga.as_str()
            ),
            ("acme", "nightly", "bill")
        );
        assert_eq!(file.deployed().file, "a.schedule.yaml");
    }
}
