//! Deploying: files are checked whole, their sources are kept, then one record puts them in force.
//!
//! The record of the first shard decides. A crash before it is durable leaves the old definitions in force, a crash after it
//! the new ones; the other shards follow at once or at the next start.

use std::sync::Arc;

use orlog_actors::ControlError;
use orlog_effect::Catalog;
use orlog_model::{Change, Deployment, ProgramRef};
use orlog_store::{Pins, Reader};

use super::App;
use crate::definitions::{self, Checked, Definition, Definitions, Plan, Refused, Sight, SourceFile};

/// How many instances are counted for the warnings of a deployment at most.
const COUNTED: u64 = 5_000_000;

/// What is to be deployed, and by whom.
#[derive(Clone, Debug)]
pub struct Order {
    /// The files of all definitions.
    pub files: Vec<SourceFile>,
    /// Who says so, for the record.
    pub by: String,
    /// Only find out what would happen.
    pub dry_run: bool,
}

/// Definitions were not deployed; those in force stay.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// They are wrong: correct them.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is no folder to read again: send the files.
    #[error(
        "this node has no folder of definitions and none of upstreams; send definitions with `orlog deploy DIR`"
    )]
    NoFolder,
    /// A shard is restarting: try again.
    #[error(transparent)]
    Shard(#[from] ControlError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] orlog_store::Error),
    /// The definition that instances were to go to was dropped meanwhile: deploy it again.
    #[error("{} version {} is not kept any more", .0.saga, .0.version)]
    Dropped(ProgramRef),
    /// The process is ending.
    #[error("the process is ending")]
    Ending,
}

enum Origin {
    /// The folder of definitions and that of the upstreams, or the one of them that there is.
    Folders,
    Files(Vec<SourceFile>),
}

/// Which definitions are to be in force.
enum Next {
    /// These.
    Checked(Checked),
    /// Those that are.
    Standing(Vec<Definition>),
}

struct Prepared {
    plan: Plan,
    definitions: Vec<Definition>,
    /// `None` where everything is as it was.
    deployment: Option<Deployment>,
    /// Sources that the stores do not have.
    sources: Vec<Change>,
    /// The upstreams as their files describe them now.
    upstreams: Option<Arc<Catalog>>,
}

impl App {
    /// Deploys files, or says what deploying them would change. All or nothing; goes on to its end even when whoever asked
    /// goes away.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn deploy(self: &Arc<Self>, order: Order) -> Result<Plan, DeployError> {
        let Order { files, by, dry_run } = order;
        self.deploy_whole(Origin::Files(files), by, dry_run).await
    }

    /// Deploys the folder of definitions as it is now, and puts the upstreams in force that their files describe: all or
    /// nothing. Without a folder of definitions, those in force stay.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn reload(self: &Arc<Self>, by: String) -> Result<Plan, DeployError> {
        self.deploy_whole(Origin::Folders, by, false).await
    }

    async fn deploy_whole(
        self: &Arc<Self>,
        origin: Origin,
        by: String,
        dry_run: bool,
    ) -> Result<Plan, DeployError> {
        let app = Arc::clone(self);
        let whole = tokio::spawn(async move {
            let _alone = app.deploying.lock().await;
            let prepared = Arc::clone(&app).prepare(origin, by).await?;
            if dry_run { Ok(prepared.plan) } else { app.carry_out(prepared).await }
        });
        whole.await.unwrap_or(Err(DeployError::Ending))
    }

    async fn prepare(self: Arc<Self>, origin: Origin, by: String) -> Result<Prepared, DeployError> {
        let prepare = move || {
            let upstreams = match &origin {
                Origin::Folders => Some(self.next_catalog().map_err(Refused)?),
                Origin::Files(_) => None,
            };
            let catalog = upstreams.as_ref().unwrap_or(&self.catalog);
            let next = self.next(origin, catalog)?;
            let loaded = self.programs.all();
            let pins = self.pins(COUNTED)?;
            let sight = Sight { catalog, loaded: &loaded, pins: &pins };
            let mut plan = self.definitions.plan(next.definitions(), &sight);
            plan.upstreams = self.catalog.changes(catalog);
            let deployment = self.record(&next, &by)?;
            plan.number = deployment.as_ref().map_or(plan.number, |deployment| deployment.number);
            let definitions = next.into_definitions();
            let sources = self.missing_sources(&definitions)?;
            Ok(Prepared { plan, definitions, deployment, sources, upstreams })
        };
        tokio::task::spawn_blocking(prepare).await.unwrap_or(Err(DeployError::Ending))
    }

    /// The definitions to be in force. There must be somebody in `catalog` for everything that they ask for.
    fn next(&self, origin: Origin, catalog: &Catalog) -> Result<Next, DeployError> {
        let (files, folder) = match origin {
            Origin::Files(files) => (files, None),
            Origin::Folders => match self.definitions.folder() {
                Some(folder) => {
                    let files = definitions::read_folder(folder).map_err(Refused)?;
                    let digest = definitions::digest(&files);
                    (files, Some(digest))
                }
                None if self.upstreams.have_folder() => {
                    let standing = self.definitions.check_standing(catalog).map_err(Refused)?;
                    return Ok(Next::Standing(standing));
                }
                None => return Err(DeployError::NoFolder),
            },
        };
        let definitions = self.definitions.check(&files, catalog).map_err(Refused)?;
        Ok(Next::Checked(Checked { definitions, folder }))
    }

    /// What is to be stored; `None` where that would be what is stored already.
    fn record(&self, next: &Next, by: &str) -> Result<Option<Deployment>, DeployError> {
        let Next::Checked(checked) = next else { return Ok(None) };
        let is_kept = |hash: &[u8; 16]| self.programs.pinned(hash).is_some();
        // The stored one may be newer: a deployment whose outcome was not heard.
        let stored = self.first_store().map(|store| store.deployment()).transpose()?.flatten();
        let standing = self.definitions.deployment();
        let last = stored.as_ref().or(standing.as_deref());
        let record = Definitions::record(last, checked, (self.clock.now(), by), is_kept);
        Ok(Some(record).filter(|record| !is_the_same(standing.as_deref(), record)))
    }

    fn missing_sources(&self, definitions: &[Definition]) -> Result<Vec<Change>, orlog_store::Error> {
        let mut missing = Vec::new();
        for definition in definitions {
            let Some(source) = &definition.source else { continue };
            let program = definition.program.reference();
            for reader in self.runtime.readers() {
                if reader.definition(&program.hash)?.is_none() {
                    missing.push(Change::PutDefinition { program: program.clone(), source: source.to_vec() });
                    break;
                }
            }
        }
        Ok(missing)
    }

    /// The record comes first, because it may fail. Then the upstreams, before an instance can begin that needs a new one.
    async fn carry_out(self: &Arc<Self>, prepared: Prepared) -> Result<Plan, DeployError> {
        let Prepared { mut plan, definitions, deployment, sources, upstreams } = prepared;
        plan.dry_run = false;
        for source in sources {
            self.runtime.change_everywhere(&source).await?;
        }
        if let Some(deployment) = &deployment {
            self.decide(deployment).await?;
        }
        if let Some(next) = upstreams {
            if !plan.upstreams.is_empty() {
                self.runtime.renew(next).await?;
                if let Some(workers) = &self.workers {
                    workers.renew().await;
                }
                tracing::info!(changed = ?plan.upstreams, "upstreams are reloaded");
            }
            self.catalog.refresh();
        }
        let Some(deployment) = deployment else { return Ok(plan) };
        self.programs.replace(Definitions::programs(&definitions, &self.kept(None)?));
        self.definitions.put_in_force(definitions, Some(deployment));
        let (number, warnings) = (plan.number, plan.warnings.len());
        tracing::info!(number, changes = plan.changes(), warnings, "definitions are deployed");
        self.collect_soon();
        Ok(plan)
    }

    /// Stores the record. What the first shard has is decided, even if another shard is restarting just now.
    async fn decide(&self, deployment: &Deployment) -> Result<(), DeployError> {
        let Err(error) = self.runtime.change_everywhere(&Change::Deploy(Box::new(deployment.clone()))).await
        else {
            return Ok(());
        };
        let decided = self.first_store().map(|store| store.deployment()).transpose()?.flatten();
        if decided.as_ref() != Some(deployment) {
            return Err(error.into());
        }
        tracing::warn!(%error, number = deployment.number, "a shard has not stored the deployment; it does at the next start");
        Ok(())
    }

    /// The store that decides what is in force; `None` while other pods have all shards.
    fn first_store(&self) -> Option<Reader> {
        self.runtime.readers().next()
    }

    /// The definitions that the stores keep, and one more store.
    pub(super) fn kept(
        &self,
        more: Option<&Reader>,
    ) -> Result<Vec<(ProgramRef, Vec<u8>)>, orlog_store::Error> {
        let mut kept = more.map(Reader::definitions).transpose()?.unwrap_or_default();
        for reader in self.runtime.readers() {
            kept.extend(reader.definitions()?);
        }
        kept.sort_by_key(|(reference, _)| reference.hash);
        kept.dedup_by_key(|(reference, _)| reference.hash);
        Ok(kept)
    }

    /// Counts the instances of all shards by the definition they are pinned to, `limit` in each at most. Blocks.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn pins(&self, limit: u64) -> Result<Pins, orlog_store::Error> {
        let mut pins = Pins { complete: true, ..Pins::default() };
        for reader in self.runtime.readers() {
            pins.add(&reader.pins(limit)?);
        }
        Ok(pins)
    }
}

impl Next {
    fn definitions(&self) -> &[Definition] {
        match self {
            Self::Checked(Checked { definitions, .. }) | Self::Standing(definitions) => definitions,
        }
    }

    fn into_definitions(self) -> Vec<Definition> {
        match self {
            Self::Checked(Checked { definitions, .. }) | Self::Standing(definitions) => definitions,
        }
    }
}

/// Whether a record puts nothing else in force than the one before it, from the same files.
pub(super) fn is_the_same(standing: Option<&Deployment>, record: &Deployment) -> bool {
    standing.is_some_and(|old| old.folder == record.folder && old.in_force().eq(record.in_force()))
}
