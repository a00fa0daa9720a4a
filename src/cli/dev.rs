//! `orlog dev`: a node for development that says what to do next.

mod sample;
mod stub_upstreams;

use std::net::SocketAddr;

use crate::app::{App, Seams};
use crate::config::Config;

use super::config_flags::Flags;
use super::console::Console;
use super::exit::Failure;
use super::serve::serve;

/// A configuration, and whether something stands in for what is missing.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Perform effects and accept commands that nobody is configured for: each is logged and succeeds with {}
    #[arg(long)]
    stand_in: bool,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let config = args.flags.load()?;
    let upstreams = if args.stand_in { stub_upstreams::upstreams(&config) } else { Vec::new() };
    let seams = Seams { upstreams, ..Seams::default() };
    serve(config, seams, |app, address| greet(app, address, console)).await
}

fn greet(app: &App, address: SocketAddr, console: &Console) -> Result<(), Failure> {
    let url = format!("http://{address}");
    if console.is_json() {
        let info = serde_json::to_value(app.info()).unwrap_or_default();
        return console.json(&serde_json::json!({ "url": url, "info": info }));
    }
    let Config { data, store, .. } = &app.config;
    let of_url = if address.port() == 7070 { String::new() } else { format!(" --url {url}") };
    let in_force = app.definitions.in_force();
    let sagas = in_force.iter().map(|definition| {
        let reference = definition.program.reference();
        format!("{} v{}", reference.saga, reference.version)
    });
    let sagas = sagas.collect::<Vec<_>>().join(", ");
    let sagas = if sagas.is_empty() {
        "none; give a folder of *.saga.yaml or *.saga.wasm with --definitions"
    } else {
        &sagas
    };
    let body = sample::event(&in_force);
    console.line(&format!(
        "orlog {version} is ready
  page    {url} (in a browser)
  API     {url} (/info, /metrics, /openapi.json)
  data    {data} (durability: {durability})
  sagas   {sagas}

Publish an event, then look:
  curl -sS {url}/v1/events -H 'content-type: application/cloudevents+json' -d '{body}'
  orlog saga list{of_url}
  orlog dlq list{of_url}
Ctrl-C drains and ends it; nothing is lost.",
        version = env!("CARGO_PKG_VERSION"),
        data = data.display(),
        durability = store.durability.as_str(),
    ))
}
