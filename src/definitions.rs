//! Active definitions: read from files, validated against the providers, and activated or rejected
//! together.
//!
//! A [`Deployment`] record in the store names the active definitions. The node deploys its definitions
//! directory at startup, if the directory changed since its last deployment, and on `/admin/reload`.
//! `orlog deploy` deploys files from any machine.
//!
//! The source of a formerly active definition stays in the store while instances are pinned to it; they
//! continue with it. A retired definition starts no new instances.

pub(crate) mod api;
pub(crate) mod availability;
pub mod change;
pub(crate) mod cli;
pub mod deploy;
pub(crate) mod files;
pub mod gc;
pub(crate) mod initial;
pub mod migrate;
mod plan;
pub(crate) mod references;
mod retired;
pub(crate) mod sample;
mod warnings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::Catalog;
use orlog_model::{DefinitionRef, DeployedSchedule, Deployment, Timestamp};
use orlog_program::batch::{self, BatchProgram};
use orlog_program::flow::FlowProgram;
use orlog_program::schedule::ScheduleProgram;
use orlog_program::shadow::{self, ShadowProgram};
use orlog_program::{Diagnostic, Program};
use orlog_store::PinCounts;

use files::problem;
use retired::RetiredProgram;

use crate::schedules::file::is_schedule;

pub use files::LoadedDefinition;
pub use files::{SUFFIXES, SourceFile, digest, is_definition, list_files, load_file, read_dir};
pub(crate) use files::{compile as compile_source, read_file};
pub use plan::{DefinitionChange, DefinitionSummary, DeploymentPlan};

/// All diagnostics of the definitions, one per line.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct DefinitionErrors(pub Vec<Diagnostic>);

impl DefinitionErrors {
    fn lines(&self) -> String {
        let lines = self.0.iter().map(|problem| format!("\n  {problem}"));
        format!("definitions rejected, no changes made:{}", lines.collect::<String>())
    }
}

/// Definitions of a process.
pub struct DefinitionSet {
    dir: Option<PathBuf>,
    built_in: Vec<LoadedDefinition>,
    /// Older versions of programs written in Rust, for their instances.
    older: Vec<Arc<dyn Program>>,
    current: RwLock<ActiveDefinitions>,
}

/// Active definitions and their deployment.
#[derive(Clone, Default)]
struct ActiveDefinitions {
    definitions: Arc<[LoadedDefinition]>,
    deployment: Option<Arc<Deployment>>,
}

/// Validated definitions that can be activated.
#[derive(Clone)]
pub struct ValidatedDefinitions {
    /// All definitions, sorted by name.
    pub definitions: Vec<LoadedDefinition>,
    /// Schedules of files, sorted by tenant and name.
    pub schedules: Vec<DeployedSchedule>,
    /// Digest of the definitions directory, if the definitions come from it.
    pub digest: Option<[u8; 16]>,
}

/// Context of a check of definitions: available providers and pinned instances.
#[derive(Clone, Copy)]
pub struct UsageContext<'a> {
    /// Available effects and commands.
    pub catalog: &'a Catalog,
    /// All loaded programs.
    pub loaded: &'a [Arc<dyn Program>],
    /// Number of instances pinned to each definition.
    pub pins: &'a PinCounts,
}

impl DefinitionSet {
    /// Creates the set of a definitions directory and of programs written in Rust; of several versions, the highest starts
    /// instances. No definition is active yet.
    #[must_use]
    pub fn new(dir: Option<PathBuf>, programs: Vec<Arc<dyn Program>>) -> Self {
        let mut newest = BTreeMap::new();
        for reference in programs.iter().map(|program| program.definition_ref()) {
            let version = newest.entry(reference.saga.clone()).or_insert(reference.version);
            *version = reference.version.max(*version);
        }
        let is_newest = |program: &Arc<dyn Program>| {
            let DefinitionRef { saga, version, .. } = program.definition_ref();
            newest.get(saga) == Some(version)
        };
        let (active, mut older): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_newest);
        older.sort_by_key(|program| program.definition_ref().version);
        let older = older.into_iter().map(RetiredProgram::of).collect();
        let active = active.into_iter().map(|program| LoadedDefinition {
            program,
            compiled: None,
            source: None,
            file: None,
        });
        Self { dir, built_in: active.collect(), older, current: RwLock::default() }
    }

    /// Returns the programs written in Rust, also those of older versions.
    pub(crate) fn native(&self) -> impl Iterator<Item = &Arc<dyn Program>> {
        self.built_in.iter().map(|definition| &definition.program).chain(&self.older)
    }

    /// Returns the definitions directory, if configured.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the active definitions, sorted by name.
    #[must_use]
    pub fn active(&self) -> Arc<[LoadedDefinition]> {
        self.current().definitions
    }

    /// Returns the current deployment; `None` if nothing was deployed yet.
    #[must_use]
    pub fn deployment(&self) -> Option<Arc<Deployment>> {
        self.current().deployment
    }

    fn current(&self) -> ActiveDefinitions {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Compiles files of definitions and schedules and validates them together with the built-in programs. The digest of the result
    /// is `None`. Blocks.
    ///
    /// # Errors
    /// All diagnostics of all files.
    pub fn validate(
        &self,
        files: &[SourceFile],
        catalog: &Catalog,
    ) -> Result<ValidatedDefinitions, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let mut definitions = self.built_in.clone();
        let (schedule_files, files): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| is_schedule(&file.name()));
        for file in files {
            match files::compile(file) {
                Ok(definition) => definitions.push(definition),
                Err(found) => problems.extend(found),
            }
        }
        definitions.sort_by(|a, b| a.program.definition_ref().saga.cmp(&b.program.definition_ref().saga));
        problems.extend(
            definitions.iter().flat_map(|definition| availability::missing_providers(definition, catalog)),
        );
        problems.extend(duplicates(&definitions));
        let programs = definitions.iter().map(|definition| definition.program.as_ref());
        let schedules = schedule_files.into_iter().filter_map(|file| {
            files::load_schedule(file, programs.clone()).map_err(|found| problems.extend(found)).ok()
        });
        let mut schedules: Vec<_> = schedules.collect();
        schedules.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        problems.extend(schedules.windows(2).filter_map(|pair| schedule_twice(&pair[0], &pair[1])));
        if problems.is_empty() {
            Ok(ValidatedDefinitions { definitions, schedules, digest: None })
        } else {
            Err(problems)
        }
    }

    /// Returns the sources of the active definitions whose saga none of these files defines.
    #[must_use]
    pub fn others(&self, files: &[SourceFile]) -> Vec<SourceFile> {
        let compiled = files.iter().filter(|file| is_definition(&file.name())).map(files::compile);
        let new: Vec<_> = compiled.flatten().map(|new| new.program.definition_ref().saga.clone()).collect();
        let active = self.active();
        let others = active.iter().filter(|old| !new.contains(&old.program.definition_ref().saga));
        let source = |other: &LoadedDefinition| {
            Some(SourceFile { path: other.file.clone()?, bytes: Arc::clone(other.source.as_ref()?) })
        };
        others.filter_map(source).collect()
    }

    /// Validates the active definitions against other upstreams.
    ///
    /// # Errors
    /// Required effects and commands that no upstream provides.
    pub fn validate_active(&self, catalog: &Catalog) -> Result<Vec<LoadedDefinition>, Vec<Diagnostic>> {
        let definitions = self.active().to_vec();
        let problems: Vec<_> = definitions
            .iter()
            .flat_map(|definition| availability::missing_providers(definition, catalog))
            .collect();
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }

    /// Returns the changes and warnings of an activation of validated definitions.
    #[must_use]
    pub fn plan(&self, new: &[LoadedDefinition], context: &UsageContext<'_>) -> DeploymentPlan {
        let mut plan = DeploymentPlan::of(self.deployment().as_deref(), new);
        plan.warnings = warnings::all(&plan, &Self::context(new, context));
        plan
    }

    /// Returns a warning for each effect, command or saga that live instances of older definitions require
    /// and that is not available.
    #[must_use]
    pub fn unmet_needs(&self, context: &UsageContext<'_>) -> Vec<String> {
        warnings::unmet_needs(&Self::context(&self.active(), context))
    }

    fn context<'a>(new: &'a [LoadedDefinition], context: &UsageContext<'a>) -> warnings::WarningContext<'a> {
        let UsageContext { catalog, loaded, pins } = *context;
        warnings::WarningContext { new, catalog, loaded, pins }
    }

    /// Creates the record of a deployment that follows `standing`. Store it before the activation.
    /// Retired definitions stay in it while `is_kept` returns true.
    #[must_use]
    pub fn record(
        current: Option<&Deployment>,
        checked: &ValidatedDefinitions,
        (at, by): (Timestamp, &str),
        is_stored: impl Fn(&[u8; 16]) -> bool,
    ) -> Deployment {
        let dir = checked.digest.or(current.and_then(|current| current.definitions_digest));
        let occasion = plan::DeploymentMetadata { at, deployed_by: by, definitions_digest: dir };
        let record = plan::record(current, &checked.definitions, &occasion, is_stored);
        Deployment { schedules: plan::schedules(current, &checked.schedules), ..record }
    }

    /// Returns all programs: those of the given and of the stored definitions, older ones first, and the built-in sagas.
    #[must_use]
    pub fn programs(
        &self,
        active: &[LoadedDefinition],
        stored: &[(DefinitionRef, Vec<u8>)],
    ) -> Vec<Arc<dyn Program>> {
        let loaded = || active.iter().map(|definition| &definition.program).chain(&self.older);
        let is_old =
            |reference: &DefinitionRef| loaded().all(|program| program.definition_ref() != reference);
        let mut old: Vec<_> = stored.iter().filter(|(reference, _)| is_old(reference)).collect();
        old.sort_by_key(|(reference, _)| reference.version);
        let old =
            old.into_iter().filter_map(|(reference, source)| RetiredProgram::compile(reference, source));
        let active = active.iter().map(|definition| Arc::clone(&definition.program));
        // Every node has the built-in sagas, with any deployment.
        let built_in: [Arc<dyn Program>; 6] = [
            Arc::new(ScheduleProgram::default()),
            Arc::new(FlowProgram::default()),
            Arc::new(BatchProgram::default()),
            Arc::new(batch::page_program()),
            Arc::new(ShadowProgram::default()),
            Arc::new(shadow::page_program()),
        ];
        old.chain(self.older.iter().cloned()).chain(active).chain(built_in).collect()
    }

    /// Activates the definitions; their record must already be stored.
    pub fn activate(&self, definitions: Vec<LoadedDefinition>, deployment: Option<Deployment>) {
        let current =
            ActiveDefinitions { definitions: definitions.into(), deployment: deployment.map(Arc::new) };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
    }
}

impl fmt::Debug for DefinitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionSet").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Returns a diagnostic for each saga with several definitions. The definitions are sorted by saga.
fn duplicates(definitions: &[LoadedDefinition]) -> Vec<Diagnostic> {
    definitions.windows(2).filter_map(|pair| twice(&pair[0], &pair[1])).collect()
}

fn schedule_twice(first: &DeployedSchedule, second: &DeployedSchedule) -> Option<Diagnostic> {
    let is_same = (&first.tenant, &first.name) == (&second.tenant, &second.name);
    let message = format!("schedule `{}` is also defined in {}", first.name, first.file);
    is_same.then(|| problem(Path::new(&second.file), message))
}

fn twice(first: &LoadedDefinition, second: &LoadedDefinition) -> Option<Diagnostic> {
    let saga = &first.program.definition_ref().saga;
    let location = |definition: &LoadedDefinition| match &definition.file {
        Some(file) => file.display().to_string(),
        None => "the built-in programs".to_owned(),
    };
    (saga == &second.program.definition_ref().saga).then(|| Diagnostic {
        suggestion: Some("keep only the newest version; older versions stay in the store".to_owned()),
        ..problem(
            Path::new(&location(second)),
            format!("saga `{saga}` is also defined in {}", location(first)),
        )
    })
}
