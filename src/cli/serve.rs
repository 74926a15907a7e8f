//! `hamyon serve`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum_server::Handle;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::demo;
use crate::app::App;
use crate::clock::Clock;
use crate::config::{self, DatabaseArgs, ServeArgs};
use crate::db::Server;
use crate::http::connections::{self, Connections};
use crate::ids::ClientName;
use crate::jobs::Scheduler;
use crate::token::{self, Scope};
use crate::{http, telemetry};

/// How long connections may still take for what is on its way when we are told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long work that moves money may take after that. It has a time of its own: a client that doesn't read its
/// answer must not use it up.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the connections to the database may take to say goodbye, once nothing uses them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub async fn run(database: &DatabaseArgs, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    // Settings first: a wrong one stops the start before anything is touched.
    let mut args = args.clone();
    if args.demo {
        demo::fill_in_settings(&mut args)?;
    }
    let settings = args.app_settings()?;
    let first_token = args.first_token()?;
    // Bound before the database is started, so that a port in use is found at once.
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("HAMYON_LISTEN: can't listen on {}", args.listen))?;
    // Heard from the first moment on. A start that was cut off halfway could leave the private server behind, so
    // it comes to its end, and what was heard meanwhile ends it again.
    let mut stop = StopSignal::listen()?;
    let server = database.server_or_new().await?;
    if tokio::time::timeout(Duration::ZERO, stop.received()).await.is_ok() {
        config::leave(server, Ok(())).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = serve(&server, database, &args, settings, first_token, listener, &mut stop).await;
    config::leave(server, outcome).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    server: &Server,
    database: &DatabaseArgs,
    args: &ServeArgs,
    settings: crate::app::AppSettings,
    first_token: Option<secrecy::SecretString>,
    listener: TcpListener,
    stop: &mut StopSignal,
) -> anyhow::Result<()> {
    server.migrate().await?;
    let db = server.connect(database.pool()).await?;
    let clock = Clock::System;
    demo::check_marked(&db, args.demo).await?;
    if args.demo {
        demo::check_reach(&db, args.listen, clock.now()).await?;
    }
    if let Some(token) = &first_token {
        let mut conn = db.pool().acquire().await?;
        token::store(&mut conn, token, &ClientName::parse("first")?, &Scope::ALL, None, clock.now()).await?;
    }
    if !args.demo && settings.payme.keys.live.is_none() {
        tracing::warn!("HAMYON_PAYME_KEY is not set: every call of Payme will be refused");
    }
    let app = Arc::new(App::build(db.clone(), clock, settings, Some(telemetry::record_metrics()?))?);
    app.telegram.begin().await?;
    let filled = if args.demo { Some(demo::fill(&app).await?) } else { None };
    let scheduler = if args.jobs == "on" { Some(Scheduler::start(app.clone()).await?) } else { None };
    let address = listener.local_addr().context("the listener has no address")?;
    println!("Hamyon listens on http://{address}");
    if let Some(filled) = &filled {
        filled.print_where_to_look(address, args, server.psql_url().as_deref());
    }
    tracing::info!(%address, "listening on {address}");

    let connections = Connections::new(listener, args.connections_max(database)?);
    let handle = Handle::new();
    let mut serving = tokio::spawn(connections::serve(connections, http::router(app.clone()), handle.clone()));
    let lost = tokio::select! {
        () = stop.received() => None,
        fault = server.lost() => Some(fault),
    };
    match &lost {
        None => tracing::info!("stopping: new requests are refused, those on their way end"),
        Some(fault) => tracing::error!("stopping: {}", fault.chain()),
    }
    handle.graceful_shutdown(None);
    let jobs = tokio::spawn(async move {
        if let Some(scheduler) = scheduler {
            scheduler.stop().await;
        }
    });
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, &mut serving).await;
    if drained.is_err() {
        // A client that neither sends nor reads nor hangs up can't keep us.
        tracing::warn!(
            connections = handle.connection_count(),
            "{} connections did not end within {} s and were cut",
            handle.connection_count(),
            DRAIN_TIMEOUT.as_secs()
        );
        handle.shutdown();
    }
    app.tasks.close();
    let worked = tokio::time::timeout(WORK_TIMEOUT, async {
        app.tasks.wait().await;
        jobs.await
    })
    .await;
    // A database that doesn't answer can't keep us: it ends the sessions when we are gone.
    if tokio::time::timeout(CLOSE_TIMEOUT, db.close()).await.is_err() {
        tracing::warn!("the connections to the database did not close within {} s", CLOSE_TIMEOUT.as_secs());
    }
    if let Some(fault) = lost {
        return Err(fault.into());
    }
    match worked {
        Ok(jobs) => jobs.context("stopping the jobs panicked")?,
        Err(_) => bail!("work was still running after {} s", WORK_TIMEOUT.as_secs()),
    }
    match drained {
        Ok(ended) => ended.context("the server panicked")?.context("the server failed"),
        Err(_) => Ok(()),
    }
}

/// Ctrl-C or SIGTERM.
struct StopSignal {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl StopSignal {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("SIGINT can't be heard")?,
            terminate: signal(SignalKind::terminate()).context("SIGTERM can't be heard")?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
