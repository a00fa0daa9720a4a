//! Active definitions: read from files, validated against the providers, and activated or rejected
//! together.
//!
//! A [`Deployment`] record in the store names the active definitions. The node deploys its
//! definitions directory at startup, if the directory changed since its last deployment, and on
//! `/admin/reload`. `orlog deploy` deploys files from any machine.
//!
//! Definitions are shared by all tenants, or belong to a context, which has its own deployment. A
//! new instance uses the definition of the context of its tenant, otherwise the shared one.
//!
//! The source of a formerly active definition stays in the store while instances are pinned to it;
//! they continue with it. A retired definition starts no new instances.

mod active;
pub mod availability;
pub mod change;
pub mod closed;
pub mod deploy;
pub mod duplicates;
pub mod files;
pub mod gc;
pub(crate) mod initial;
pub mod migrate;
pub(crate) mod numbers;
mod plan;
pub mod references;
mod retired;
pub mod sample;
pub mod schedules;
mod target;
mod unreadable;
mod warnings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_actors::OwnedProgram;
use orlog_effect::Catalog;
use orlog_model::{DefinitionRef, DeployedSchedule, Deployment, SagaName, TenantId, Timestamp};
use orlog_program::{Diagnostic, Program};
use orlog_store::PinCounts;
use parking_lot::RwLock;

use active::ActiveDefinitions;
use availability::Providers;
use retired::{RetiredProgram, RetiredPrograms};

use crate::definitions::schedules::file::is_schedule;

pub use active::OwnedDefinitions;
pub use files::LoadedDefinition;
pub use files::{SUFFIXES, SourceFile, digest, is_definition, list_files, load_file, read_dir};
pub use files::{compile as compile_source, read_file};
pub use plan::{DefinitionChange, DefinitionSummary, DeploymentPlan};

/// All diagnostics of the definitions, one per line.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct DefinitionErrors(pub Vec<Diagnostic>);

impl DefinitionErrors {
    fn lines(&self) -> String {
        let lines = self.0.iter().map(|problem| format!("\n  {problem}"));
        format!(
            "definitions rejected, no changes made:{}",
            lines.collect::<String>()
        )
    }
}

/// Definitions of a process.
pub struct DefinitionSet {
    dir: Option<PathBuf>,
    built_in: Vec<LoadedDefinition>,
    /// Older versions of programs written in Rust, for their instances.
    older: Vec<Arc<dyn Program>>,
    current: RwLock<Arc<ActiveDefinitions>>,
    retired: RetiredPrograms,
}

/// Validated definitions of one owner that can be activated.
#[derive(Clone)]
pub struct ValidatedDefinitions {
    /// Context that owns them; `None`: they are shared.
    pub context: Option<TenantId>,
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
    /// Context that owns the definitions; `None`: they are shared.
    pub context: Option<&'a TenantId>,
    /// Available effects and commands.
    pub catalog: &'a Catalog,
    /// Loaded programs of all owners.
    pub loaded: &'a [OwnedProgram],
    /// Number of instances pinned to each definition.
    pub pins: &'a PinCounts,
}

impl DefinitionSet {
    /// Creates the set of a definitions directory and of programs written in Rust; of several
    /// versions, the highest starts instances. No definition is active yet.
    #[must_use]
    pub fn new(dir: Option<PathBuf>, programs: Vec<Arc<dyn Program>>) -> Self {
        let mut newest = BTreeMap::new();
        for reference in programs.iter().map(|program| program.definition_ref()) {
            let version = newest
                .entry(reference.saga.clone())
                .or_insert(reference.version);
            *version = reference.version.max(*version);
        }

        // Older versions start no instances, but continue those that are pinned to them.
        let (active, mut older): (Vec<_>, Vec<_>) = programs.into_iter().partition(|program| {
            let DefinitionRef { saga, version, .. } = program.definition_ref();
            newest.get(saga) == Some(version)
        });

        older.sort_by_key(|program| program.definition_ref().version);
        let older = older.into_iter().map(RetiredProgram::of).collect();
        let active = active.into_iter().map(|program| LoadedDefinition {
            program,
            compiled: None,
            source: None,
            file: None,
            context: None,
        });

        let (current, retired) = Default::default();
        Self {
            dir,
            built_in: active.collect(),
            older,
            current,
            retired,
        }
    }

    /// Returns the programs written in Rust, also those of older versions.
    pub(crate) fn native(&self) -> impl Iterator<Item = &Arc<dyn Program>> {
        self.built_in
            .iter()
            .map(|definition| &definition.program)
            .chain(&self.older)
    }

    /// Returns the definitions directory, if configured.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the active shared definitions, sorted by name.
    #[must_use]
    pub fn active(&self) -> Arc<[LoadedDefinition]> {
        self.of(None).definitions
    }

    /// Returns the current deployment of the shared definitions; `None` if nothing was deployed
    /// yet.
    #[must_use]
    pub fn deployment(&self) -> Option<Arc<Deployment>> {
        self.of(None).deployment
    }

    /// Returns the active definitions of an owner; `None`: the shared ones.
    #[must_use]
    pub fn of(&self, context: Option<&TenantId>) -> OwnedDefinitions {
        self.current().of(context)
    }

    /// Returns the active definitions of each owner, the shared ones first.
    #[must_use]
    pub fn owners(&self) -> Vec<(Option<TenantId>, OwnedDefinitions)> {
        self.current()
            .owners()
            .map(|(context, owned)| (context.cloned(), owned.clone()))
            .collect()
    }

    /// Returns the definitions that new instances of a tenant use, sorted by name.
    #[must_use]
    pub fn usable(&self, tenant: &TenantId) -> Vec<LoadedDefinition> {
        let current = self.current();
        current.usable_with(&current.of(Some(tenant)).definitions)
    }

    /// Returns the context of a tenant if it has an active definition of this saga; `None`: the
    /// tenant uses the shared one.
    #[must_use]
    pub fn owner(&self, tenant: &TenantId, saga: &SagaName) -> Option<TenantId> {
        let own = self.of(Some(tenant)).definitions;
        own.iter()
            .any(|definition| definition.saga() == saga)
            .then(|| tenant.clone())
    }

    fn current(&self) -> Arc<ActiveDefinitions> {
        Arc::clone(&self.current.read())
    }

    /// Compiles files of definitions and schedules of an owner and validates them, shared ones
    /// together with the built-in programs, those of a context together with the shared ones that
    /// it does not replace. The digest of the result is `None`. Blocks.
    ///
    /// # Errors
    /// All diagnostics of all files.
    pub fn validate(
        &self,
        context: Option<&TenantId>,
        files: &[SourceFile],
        catalog: &Catalog,
    ) -> Result<ValidatedDefinitions, Vec<Diagnostic>> {
        let mut problems = Vec::new();

        // Built-in programs belong to the shared definitions, so a context is not validated with
        // them twice.
        let mut definitions = if context.is_none() {
            self.built_in.clone()
        } else {
            Vec::new()
        };

        let (schedule_files, files): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| is_schedule(&file.name()));
        for file in files {
            match files::compile(file) {
                Ok(definition) => {
                    definitions.push(LoadedDefinition {
                        context: context.cloned(),
                        ..definition
                    });
                }
                Err(found) => problems.extend(found),
            }
        }

        definitions.sort_by(|a, b| a.saga().cmp(b.saga()));
        problems.extend(missing_providers(
            &definitions,
            &Providers { catalog, context },
        ));
        problems.extend(duplicates::sagas(&definitions));

        // A schedule of a context may start a shared saga.
        let usable = self.usable_with(context, &definitions);
        let programs = usable.iter().map(LoadedDefinition::as_program);
        let schedules = schedule_files.into_iter().filter_map(|file| {
            files::load_schedule(file, context, programs.clone())
                .map_err(|found| problems.extend(found))
                .ok()
        });
        let mut schedules: Vec<_> = schedules.collect();

        schedules.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        problems.extend(duplicates::schedules(&schedules));

        if problems.is_empty() {
            Ok(ValidatedDefinitions {
                context: context.cloned(),
                definitions,
                schedules,
                digest: None,
            })
        } else {
            Err(problems)
        }
    }

    /// Returns the definitions that new instances use with these definitions of an owner: the
    /// shared ones, or those of a context and the shared ones that it does not replace.
    pub(crate) fn usable_with(
        &self,
        context: Option<&TenantId>,
        definitions: &[LoadedDefinition],
    ) -> Vec<LoadedDefinition> {
        match context {
            None => definitions.to_vec(),
            Some(_) => self.current().usable_with(definitions),
        }
    }

    /// Returns the sources of the active definitions of an owner whose saga none of these files
    /// defines.
    #[must_use]
    pub fn others(&self, context: Option<&TenantId>, files: &[SourceFile]) -> Vec<SourceFile> {
        let compiled = files
            .iter()
            .filter(|file| is_definition(&file.name()))
            .map(files::compile);
        // A file that does not compile is reported by `validate`.
        let new: Vec<_> = compiled.flatten().map(|new| new.saga().clone()).collect();
        let active = self.of(context).definitions;
        let others = active.iter().filter(|old| !new.contains(old.saga()));

        others
            .filter_map(|other| {
                Some(SourceFile {
                    path: other.file.clone()?,
                    bytes: Arc::clone(other.source.as_ref()?),
                })
            })
            .collect()
    }

    /// Validates the active shared definitions against other upstreams.
    ///
    /// # Errors
    /// Required effects and commands that no upstream provides.
    pub fn validate_active(
        &self,
        catalog: &Catalog,
    ) -> Result<Vec<LoadedDefinition>, Vec<Diagnostic>> {
        let definitions = self.active().to_vec();
        let problems = missing_providers(
            &definitions,
            &Providers {
                catalog,
                context: None,
            },
        );

        if problems.is_empty() {
            Ok(definitions)
        } else {
            Err(problems)
        }
    }

    /// Returns the changes and warnings of an activation of validated definitions.
    #[must_use]
    pub fn plan(&self, new: &[LoadedDefinition], usage: &UsageContext<'_>) -> DeploymentPlan {
        let mut plan = DeploymentPlan::of(self.of(usage.context).deployment.as_deref(), new);
        plan.context = usage.context.map(ToString::to_string);
        let usable = self.usable_with(usage.context, new);
        plan.warnings = warnings::all(&plan, &Self::context(new, &usable, usage));
        plan
    }

    /// Returns a warning for each effect, command or saga that live instances of older definitions
    /// of the owner require and that is not available.
    #[must_use]
    pub fn unmet_needs(&self, usage: &UsageContext<'_>) -> Vec<String> {
        let active = self.of(usage.context).definitions;
        let usable = self.usable_with(usage.context, &active);
        warnings::unmet_needs(&Self::context(&active, &usable, usage))
    }

    /// Returns a warning for each effect and command that a definition of a context requests and no
    /// upstream of this catalog executes for it.
    #[must_use]
    pub fn unmet_by(&self, catalog: &Catalog) -> Vec<String> {
        let warning = |context: TenantId, owned: OwnedDefinitions| {
            let missing = missing_providers(
                &owned.definitions,
                &Providers {
                    catalog,
                    context: Some(&context),
                },
            );
            missing
                .into_iter()
                .map(move |problem| format!("context {context}: {problem}"))
        };

        let contexts = self
            .owners()
            .into_iter()
            .filter_map(|(context, owned)| Some((context?, owned)));
        contexts
            .flat_map(|(context, owned)| warning(context, owned))
            .collect()
    }

    fn context<'a>(
        new: &'a [LoadedDefinition],
        usable: &'a [LoadedDefinition],
        usage: &UsageContext<'a>,
    ) -> warnings::WarningContext<'a> {
        let UsageContext {
            context,
            catalog,
            loaded,
            pins,
        } = *usage;
        warnings::WarningContext {
            new,
            usable,
            providers: Providers { catalog, context },
            loaded,
            pins,
        }
    }

    /// Creates the record of a deployment that follows `current` of the same owner. Store it before
    /// the activation. Retired definitions stay in it while `is_kept` returns true.
    #[must_use]
    pub fn record(
        current: Option<&Deployment>,
        checked: &ValidatedDefinitions,
        at: Timestamp,
        by: &str,
        is_stored: impl Fn(&[u8; 16]) -> bool,
    ) -> Deployment {
        // Files that a user deploys keep the digest of the directory: unchanged, it must not
        // replace them at the next start.
        let dir = checked
            .digest
            .or(current.and_then(|current| current.definitions_digest));
        let metadata = plan::DeploymentMetadata {
            at,
            deployed_by: by,
            definitions_digest: dir,
        };
        let mut record = plan::record(current, &checked.definitions, &metadata, is_stored);

        if checked.context.is_some() {
            plan::add_events(&mut record, &checked.definitions);
        }

        let schedules = plan::schedules(current, &checked.schedules);
        Deployment {
            schedules,
            context: checked.context.clone(),
            ..record
        }
    }

    /// Returns all programs: those of the active and of the stored definitions, and the built-in
    /// sagas. Retired programs come first, older versions before newer ones, and shared programs
    /// before those of contexts.
    #[must_use]
    pub fn programs(&self, stored: &[(DefinitionRef, Vec<u8>)]) -> Vec<OwnedProgram> {
        let current = self.current();
        let is_native = |reference: &DefinitionRef| {
            self.native()
                .any(|native| native.definition_ref() == reference)
        };
        let mut old: Vec<_> = stored
            .iter()
            // The stored record of a program in Rust contains no code; the binary does.
            .filter(|(reference, _)| !is_native(reference))
            .collect();

        old.sort_by_key(|(reference, _)| reference.version);
        let old = old.into_iter().filter_map(|(reference, source)| {
            let owners = current.retired_by(&reference.hash);
            (!owners.is_empty()).then_some((reference, source, owners))
        });
        let mut old = self.retired.load(old);

        // The sort is stable: older versions stay before newer ones.
        old.sort_by_key(|owned| owned.context.is_some());
        let owners = current.owners();
        let active = owners.flat_map(|(context, owned)| {
            let programs = owned
                .definitions
                .iter()
                .map(|definition| Arc::clone(&definition.program));
            programs.map(move |program| OwnedProgram {
                context: context.cloned(),
                program,
            })
        });

        let older = self.older.iter().cloned().map(OwnedProgram::from);
        old.into_iter()
            .chain(older)
            .chain(active)
            .chain(orlog_sagas::programs().into_iter().map(OwnedProgram::from))
            .collect()
    }

    /// Activates the definitions of an owner; their record must already be stored.
    pub fn activate(
        &self,
        context: Option<&TenantId>,
        definitions: Vec<LoadedDefinition>,
        deployment: Option<Deployment>,
    ) {
        let owned = OwnedDefinitions {
            definitions: definitions.into(),
            deployment: deployment.map(Arc::new),
        };
        // Readers keep the set that they have, so that no decision mixes two of them.
        let mut current = self.current.write();
        Arc::make_mut(&mut current).replace(context, owned);
    }
}

fn missing_providers(
    definitions: &[LoadedDefinition],
    providers: &Providers<'_>,
) -> Vec<Diagnostic> {
    definitions
        .iter()
        .flat_map(|definition| availability::missing_providers(definition, providers))
        .collect()
}

impl fmt::Debug for DefinitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionSet")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}
