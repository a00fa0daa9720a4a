//! `orlog dev`: runs a development node and prints the next steps.

mod session;
mod stand_in;
mod stand_in_rules;
mod watch;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use orlog_node::app::{App, AppOverrides};
use orlog_node::auth;
use orlog_node::config::{AuthMode, Config};
use orlog_node::definitions::sample;

use super::client::DEFAULT_URL;
use super::config_flags::ConfigFlags;
use super::console::Console;
use super::exit::CommandError;
use super::serve::serve;
use session::Session;
use stand_in::StandIn;
use stand_in_rules::StandInRule;
use watch::WatchedFiles;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Continue without durable data that is missing from the data directory or from a stream
    /// (OR0061)
    #[arg(long)]
    accept_data_loss: bool,
    /// Disable the stand-in: reject definitions whose effects or commands have no configured
    /// upstream
    #[arg(long)]
    strict: bool,
    /// How the stand-in responds to a step, an effect or a command: a failure rate with an optional
    /// code, and a delay, for example charge=fail:20%:declined,2s. Repeatable
    #[arg(
        long = "stand-in",
        value_name = "NAME=BEHAVIOR",
        conflicts_with = "strict"
    )]
    stand_in: Vec<StandInRule>,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let config = args.flags.load()?;
    let stand_in = Arc::new(StandIn::new(args.stand_in));
    let upstreams = if args.strict {
        Vec::new()
    } else {
        stand_in.upstreams(&config)
    };
    // Before the node starts, so that no request is accepted without the token.
    let session = Session::start(&config)?;
    // Before the node reads the files: a change during its start counts.
    let files = WatchedFiles::of(&config, args.flags.config_file());

    let overrides = AppOverrides {
        upstreams,
        accept_data_loss: args.accept_data_loss,
        config_source: Some(args.flags.source(&config)),
        session: session.as_ref().map(|session| session.token().clone()),
        ..AppOverrides::default()
    };

    Box::pin(serve(config, overrides, |app, address| {
        // Only a started node has definitions to compare the names with. An error stops it again.
        stand_in.check_rules(app).map_err(CommandError::usage)?;
        stand_in.attach(app);
        files.watch(app);
        if let Some(session) = &session {
            // After the start, which claims the data directory: a second node must not replace the
            // file of the first one.
            session.write()?;
        }
        greet(app, address, session.as_ref(), args.strict, console)
    }))
    .await
}

fn greet(
    app: &App,
    address: SocketAddr,
    session: Option<&Session>,
    strict: bool,
    console: &Console,
) -> Result<(), CommandError> {
    let scheme = if app.config.http.tls.is_enabled() {
        "https"
    } else {
        "http"
    };
    let url = format!("{scheme}://{address}");
    let token_file = session
        .map(|session| session.file().to_owned())
        .or_else(|| {
            (app.config.auth.mode == AuthMode::Token).then(|| auth::admin_token_file(&app.config))
        });
    let token_file = token_file.map(|file| file.display().to_string());
    if console.is_json() {
        let info = serde_json::to_value(app.info(&[])).unwrap_or_default();
        return console
            .json(&serde_json::json!({ "url": url, "token_file": token_file, "info": info }));
    }

    let Config {
        data_dir: data,
        store,
        ..
    } = &*app.config;
    let of_url = url_option(&url);

    let active = app.definitions.active();
    let sagas = active.iter().map(|definition| {
        let reference = definition.program.definition_ref();
        format!("{} v{}", reference.saga, reference.version)
    });
    let sagas = sagas.collect::<Vec<_>>().join(", ");
    let sagas = if sagas.is_empty() {
        "none; set a directory with *.saga.yaml or *.saga.wasm files with --definitions-dir"
    } else {
        &sagas
    };

    let executed = if strict {
        BTreeSet::new()
    } else {
        StandIn::executed(app)
    };
    let stand_in = if executed.is_empty() {
        String::new()
    } else {
        format!(
            "\n  stand-in   {}",
            executed.into_iter().collect::<Vec<_>>().join(", ")
        )
    };

    let body = sample::event(&active);
    // A link has the token of a development node only, never that of an administrator.
    let link = session.map_or_else(|| url.clone(), |session| session.link(&url));
    let export = token_file
        .as_ref()
        .map(|file| format!("\n  export ORLOG_TOKEN_FILE={file}"));
    let header = token_file.map(|file| format!(" -H \"authorization: Bearer $(cat {file})\""));
    let export = export.unwrap_or_default();
    let header = header.unwrap_or_default();

    console.line(&format!(
        "orlog {version} is ready
  UI         {link} (in a browser)
  API        {url} (/info, /metrics, /openapi.json)
  data       {data} (durability: {durability})
  sagas      {sagas}
  upstreams  {upstreams}{stand_in}

Publish an event, then list the instances:{export}
  curl -sS {url}/v1/events{header} -H 'content-type: application/cloudevents+json' -d '{body}'
  orlog saga list{of_url}
  orlog dlq list{of_url}
Ctrl-C drains and stops the node; no data is lost.",
        version = env!("CARGO_PKG_VERSION"),
        data = data.display(),
        durability = store.durability.as_str(),
        upstreams = if strict {
            "configured ones only"
        } else {
            "the stand-in executes work without a configured upstream (disable: --strict)"
        },
    ))
}

/// Returns the option of a command for a node at this URL: none for the default one, which has no
/// TLS.
fn url_option(url: &str) -> String {
    if url == DEFAULT_URL {
        String::new()
    } else {
        format!(" --url {url}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_need_the_url_of_a_node_with_tls_or_another_address() {
        assert_eq!(url_option("http://127.0.0.1:7070"), "");
        for url in ["https://127.0.0.1:7070", "http://10.0.0.7:7070"] {
            assert_eq!(url_option(url), format!(" --url {url}"));
        }
    }
}
