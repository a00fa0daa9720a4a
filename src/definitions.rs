//! The definitions in force: read from files, checked against the hands, put in force together or refused whole.
//!
//! Which are in force is a record in the store, a [`Deployment`]. A folder of definitions is deployed when the node starts
//! and finds it changed since it was deployed last, and on `/admin/reload`; `orlog deploy` brings files from anywhere.
//!
//! A source that was ever in force stays in the store while instances are pinned to it: they go on with it. A definition that
//! is retired takes no new instances.

mod availability;
mod files;
mod plan;
mod retired;
mod warnings;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::Catalog;
use orlog_model::{Deployment, ProgramRef, Timestamp};
use orlog_program::{Problem, Program};
use orlog_store::Pins;

use files::problem;
use retired::Retired;

pub use files::Definition;
pub use files::{SUFFIXES, SourceFile, digest, is_definition, list, read, read_folder};
pub use plan::{Changed, Listed, Plan};

/// Everything that is wrong with the definitions, one problem a line.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Refused(pub Vec<Problem>);

impl Refused {
    fn lines(&self) -> String {
        let lines = self.0.iter().map(|problem| format!("\n  {problem}"));
        format!("the definitions are refused, nothing was changed:{}", lines.collect::<String>())
    }
}

/// The definitions of a process.
pub struct Definitions {
    folder: Option<PathBuf>,
    given: Vec<Definition>,
    standing: RwLock<Standing>,
}

/// What is in force.
#[derive(Clone, Default)]
struct Standing {
    definitions: Arc<[Definition]>,
    deployment: Option<Arc<Deployment>>,
}

/// What was checked and can be put in force.
#[derive(Clone)]
pub struct Checked {
    /// All definitions, in the order of their names.
    pub definitions: Vec<Definition>,
    /// The digest of the definitions folder, where they come from it.
    pub folder: Option<[u8; 16]>,
}

/// Whether there is anybody for what older definitions need, and who needs it.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// Who performs.
    pub catalog: &'a Catalog,
    /// Every program that is loaded.
    pub loaded: &'a [Arc<dyn Program>],
    /// How many instances are pinned to each.
    pub pins: &'a Pins,
}

impl Definitions {
    /// Definitions from a folder, and programs written in Rust. None is in force yet.
    #[must_use]
    pub fn new(folder: Option<PathBuf>, programs: Vec<Arc<dyn Program>>) -> Self {
        let given = programs.into_iter().map(|program| Definition {
            program,
            compiled: None,
            source: None,
            file: None,
        });
        Self { folder, given: given.collect(), standing: RwLock::default() }
    }

    /// Where definitions are read from, where there is such a folder.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The definitions for new instances, in the order of their names.
    #[must_use]
    pub fn in_force(&self) -> Arc<[Definition]> {
        self.standing().definitions
    }

    /// The record of what is in force; `None` where nothing was ever deployed.
    #[must_use]
    pub fn deployment(&self) -> Option<Arc<Deployment>> {
        self.standing().deployment
    }

    fn standing(&self) -> Standing {
        self.standing.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Compiles files and checks them together with what the program itself brings. Blocks.
    ///
    /// # Errors
    /// Everything that is wrong, in all files.
    pub fn check(&self, files: &[SourceFile], catalog: &Catalog) -> Result<Vec<Definition>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut definitions = self.given.clone();
        for file in files {
            match files::compile(file) {
                Ok(definition) => definitions.push(definition),
                Err(found) => problems.extend(found),
            }
        }
        definitions.sort_by(|a, b| a.program.reference().saga.cmp(&b.program.reference().saga));
        problems.extend(definitions.iter().flat_map(|definition| availability::missing(definition, catalog)));
        problems.extend(definitions.windows(2).filter_map(|pair| twice(&pair[0], &pair[1])));
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }

    /// Checks those in force against other upstreams.
    ///
    /// # Errors
    /// What they ask for and nobody would perform.
    pub fn check_standing(&self, catalog: &Catalog) -> Result<Vec<Definition>, Vec<Problem>> {
        let definitions = self.in_force().to_vec();
        let problems: Vec<_> =
            definitions.iter().flat_map(|definition| availability::missing(definition, catalog)).collect();
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }

    /// What putting checked definitions in force would change, with warnings.
    #[must_use]
    pub fn plan(&self, new: &[Definition], sight: &Sight<'_>) -> Plan {
        let mut plan = Plan::of(self.deployment().as_deref(), new);
        plan.warnings = warnings::all(&plan, &Self::sight(new, sight));
        plan
    }

    /// What live instances of older definitions need and nobody offers; one warning each.
    #[must_use]
    pub fn old_needs(&self, sight: &Sight<'_>) -> Vec<String> {
        warnings::old_needs(&Self::sight(&self.in_force(), sight))
    }

    fn sight<'a>(new: &'a [Definition], sight: &Sight<'a>) -> warnings::Sight<'a> {
        let Sight { catalog, loaded, pins } = *sight;
        warnings::Sight { new, catalog, loaded, pins }
    }

    /// The record of a deployment of checked definitions after `standing`, to be stored before they are put in force.
    /// Retired definitions stay in it while `is_kept`.
    #[must_use]
    pub fn record(
        standing: Option<&Deployment>,
        checked: &Checked,
        (at, by): (Timestamp, &str),
        is_kept: impl Fn(&[u8; 16]) -> bool,
    ) -> Deployment {
        let folder = checked.folder.or(standing.and_then(|standing| standing.folder));
        plan::record(standing, &checked.definitions, &plan::Occasion { at, by, folder }, is_kept)
    }

    /// All programs: of the definitions given here and of those kept in the store, older ones first.
    #[must_use]
    pub fn programs(in_force: &[Definition], kept: &[(ProgramRef, Vec<u8>)]) -> Vec<Arc<dyn Program>> {
        let is_old = |reference: &ProgramRef| in_force.iter().all(|d| d.program.reference() != reference);
        let mut old: Vec<_> = kept.iter().filter(|(reference, _)| is_old(reference)).collect();
        old.sort_by_key(|(reference, _)| reference.version);
        let old = old.into_iter().filter_map(|(reference, source)| Retired::compile(reference, source));
        old.chain(in_force.iter().map(|definition| Arc::clone(&definition.program))).collect()
    }

    /// Makes these the definitions in force; their record is in the store already.
    pub fn put_in_force(&self, definitions: Vec<Definition>, deployment: Option<Deployment>) {
        let standing = Standing { definitions: definitions.into(), deployment: deployment.map(Arc::new) };
        *self.standing.write().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn twice(first: &Definition, second: &Definition) -> Option<Problem> {
    let saga = &first.program.reference().saga;
    let place = |definition: &Definition| match &definition.file {
        Some(file) => file.display().to_string(),
        None => "the program itself".to_owned(),
    };
    (saga == &second.program.reference().saga).then(|| Problem {
        suggestion: Some("keep the newest alone; older versions stay in the store".to_owned()),
        ..problem(Path::new(&place(second)), format!("the saga `{saga}` is defined in {} too", place(first)))
    })
}
