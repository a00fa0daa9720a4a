//! Reload of a running node.

use std::sync::Arc;

use orlog_program::Diagnostic;

use super::App;
use crate::auth::ConfiguredKeys;
use crate::component_config;
use crate::config::NextConfig;
use crate::definitions::change::DeployError;
use crate::definitions::deploy::{DeployPolicy, ReloadedConfig};
use crate::definitions::{DefinitionErrors, DeploymentPlan};
use crate::webhooks::Webhooks;

impl App {
    /// Reads changed certificates and the configuration, then deploys the definitions directory
    /// ([`crate::definitions::deploy::Deployments::reload`]). On an error, only certificates
    /// change. Upstreams, webhooks, peers and the keys of actors and peers change together, also if
    /// the caller disconnects.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn reload(
        &self,
        by: String,
        policy: DeployPolicy,
    ) -> Result<DeploymentPlan, DeployError> {
        // First, and also without a readable configuration: an expired certificate must be
        // replaceable while another file is invalid.
        self.services.keys.reload().await;

        let Some(source) = &self.config_source else {
            return self.services.deployments.reload(by, policy, None).await;
        };

        let source_guard = source.lock().await;
        let NextConfig { config, warnings } = source.read().map_err(DefinitionErrors)?;
        let invalid = |error: anyhow::Error| {
            DefinitionErrors(vec![Diagnostic::of_file(
                "the configuration",
                format!("{error:#}"),
            )])
        };
        let webhooks = Webhooks::new(&config).map_err(invalid)?;
        let signer_keys = ConfiguredKeys::new(&config).map_err(invalid)?;
        let upstreams = config.upstreams();
        let active = Arc::clone(&self.webhooks);

        let source = Arc::clone(source);
        let active_keys = Arc::clone(self.authenticator.signed().configured());
        let peers = Arc::clone(&self.peers);
        let tenants = Arc::clone(&self.tenants);
        let tenant_redrive = Arc::clone(&self.services.tenant_redrive);
        let runtime = Arc::clone(&self.runtime);
        let deployments = Arc::clone(&self.services.deployments);
        let limits = component_config::runtime(&config).limits;

        // Everything is checked before the deployment starts, because `activate` cannot fail.
        limits.check().map_err(|error| invalid(error.into()))?;

        // Called by the deployment task, which continues if the caller disconnects; the guard of
        // the source moves with it, so that no other reload reads a configuration in between.
        let activate = move || {
            // An unchanged list admits no further tenant, so that no dead letter can be redriven.
            if tenants.replace(config.tenants.clone()) {
                tenant_redrive.tenants_changed();
            }
            deployments.replace_context_limits(component_config::context_limits(&config));

            if let Err(error) = runtime.reload_limits(&limits) {
                // They were checked before.
                tracing::error!(%error, "limits not reloaded");
            }

            active.replace(webhooks);
            peers.replace(config.peers.clone());
            active_keys.replace(signer_keys);
            source.applied(config);
            drop(source_guard);
        };

        let next = ReloadedConfig {
            upstreams,
            activate: Box::new(activate),
        };
        let mut plan = self
            .services
            .deployments
            .reload(by, policy, Some(next))
            .await?;

        plan.warnings.extend(warnings);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use orlog_testkit::wait::WAIT_TIMEOUT;

    use super::super::AppOverrides;
    use super::*;
    use crate::config::{Config, ConfigSource, Layers};

    fn config(dir: &tempfile::TempDir, text: &str) -> Config {
        let path = dir.path().join("orlog.toml");
        let data_dir = dir.path().join("data");
        std::fs::write(&path, format!("data_dir = {data_dir:?}\n{text}")).unwrap();
        Layers::none().file(&path).unwrap().load().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reload_completes_if_the_caller_disconnects() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "a shared secret").unwrap();
        let next = format!(
            "[webhooks.shop]\nscheme = \"token\"\nsecrets = [\"file:{}\"]\nsignature = \
             {{ header = \"x-shop-token\" }}\n\
             id = \"= body.id\"\ntype = \"OrderPlaced\"\n[upstreams.pay]\nbase_url = \
                 \"http://127.0.0.1:9\"\n\
             [upstreams.pay.effects.\"pay.charge\"]\npath = \"/charges\"\n",
            dir.path().join("secret").display()
        );
        let (before, next) = (config(&dir, ""), config(&dir, &next));
        let source = ConfigSource::new(Arc::new(move || Ok(next.clone())), before.clone());
        let overrides = AppOverrides {
            config_source: Some(source),
            ..AppOverrides::default()
        };
        let app = App::start_with(before, overrides).await.unwrap();
        let source = app.config_source.as_ref().unwrap();
        let deploying = app.locks.deploying.lock().await;
        let mut reload = Box::pin(app.reload("ann".to_owned(), DeployPolicy::default()));
        // The lock of the source is taken in the poll that starts the deployment.
        while source.lock().now_or_never().is_some() {
            assert!(
                futures::poll!(reload.as_mut()).is_pending(),
                "the deployment waits"
            );
            tokio::task::yield_now().await;
        }
        drop(reload);
        drop(deploying);
        drop(
            tokio::time::timeout(WAIT_TIMEOUT, source.lock())
                .await
                .expect("the reload ends"),
        );
        let upstreams = app.catalog.executors();
        assert!(
            upstreams
                .iter()
                .any(|executor| executor.upstream().name == "pay")
        );
        assert!(
            format!("{:?}", app.webhooks).contains("shop"),
            "the webhooks change with the upstreams"
        );
        app.stop().await.unwrap();
    }
}
