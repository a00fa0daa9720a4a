//! Reload of a running node.

use orlog_program::Diagnostic;

use super::App;
use crate::config::NextConfig;
use crate::definitions::change::DeployError;
use crate::definitions::deploy::DeployPolicy;
use crate::definitions::{DefinitionErrors, DeploymentPlan};
use crate::webhooks::Webhooks;

impl App {
    /// Reads changed certificates and the configuration, then deploys the definitions directory
    /// ([`crate::definitions::deploy::Deployments::reload`]). On an error, only certificates change.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn reload(&self, by: String, policy: DeployPolicy) -> Result<DeploymentPlan, DeployError> {
        self.services.keys.reload().await;
        let Some(source) = &self.config_source else {
            return self.services.deployments.reload(by, policy, None).await;
        };
        let _alone = source.lock().await;
        let NextConfig { config, requires_restart } = source.read().map_err(DefinitionErrors)?;
        let webhooks = Webhooks::new(&config).map_err(|error| {
            DefinitionErrors(vec![Diagnostic::of_file("the configuration", format!("{error:#}"))])
        })?;
        let mut plan = self.services.deployments.reload(by, policy, Some(config.upstreams())).await?;
        self.webhooks.replace(webhooks);
        source.applied(config);
        let warning = |key| format!("{key} has changed in the configuration; restart the node to apply it");
        plan.warnings.extend(requires_restart.into_iter().map(warning));
        Ok(plan)
    }
}
