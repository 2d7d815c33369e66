//! `crosslane agent`: passes observations of the kernel and the radios to the
//! engine, and carries out the engine's outputs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::actuator::{self, Command};
use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp;
use crosslane_core::path::{PathSpec, Sample, SampleKind};
use crosslane_core::strategy::threshold;
use crosslane_core::time::Instant;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Interval;

use crate::clock::{Clock, monotonic_ns, processor_time};
use crate::control::server::Server;
use crate::error::{Error, Result};
use crate::http::HttpServer;
use crate::memory;
use crate::netlink::links::{self, Notice};
use crate::netlink::{PathManager, Stream, path_manager};
use crate::observe::{self, Observer};
use crate::output;

mod changes;
mod classes;
mod commands;
pub mod config;
mod connection_history;
mod counters;
mod echo;
mod home_address;
mod interfaces;
pub(crate) mod journal;
mod kernel_endpoints;
pub mod later;
pub mod machine;
mod network_faults;
pub mod own_cams;
mod parts;
mod path_routes;
pub mod ready;
mod reports;
mod requests;
mod roadside;
mod signals;
mod sources;
mod transport;
mod trials;
mod tunnel_actuator;
pub mod unit;
mod unit_directory;
pub mod unit_probe;
pub mod unit_tunnel;
pub mod volumes;

use commands::{Mptcp, actuators};
use config::Config;
use counters::InterfaceCounters;
use echo::EchoSockets;
use home_address::HomeAddress;
use interfaces::Interfaces;
use journal::Journal;
use kernel_endpoints::Endpoints;
use later::Missing;
use network_faults::Handshakes;
use own_cams::OwnCams;
use parts::{CHECK_PERIOD, OtherAgent};
use path_routes::PathRoutes;
use roadside::Roadside;
use signals::Signals;
use transport::SubflowPoller;
use tunnel_actuator::{ActiveTunnel, Resolving};
use unit::Unit;
use volumes::Volumes;

/// Outputs of the engine carried out in a row before other triggers are served.
const OUTPUTS_IN_A_ROW: usize = 32;
/// Triggers in a row before the runtime checks for signals.
const TRIGGERS_IN_A_ROW: u32 = 16;
/// How often memory is returned to the kernel, first after the start: the free part of the heap, and code that was used
/// once. What is used again is mapped again within microseconds.
const GIVE_BACK_PERIOD: Duration = Duration::from_secs(10);

/// Runs the agent until SIGINT or SIGTERM.
///
/// # Errors
/// The configuration is wrong (exit code 2), or the kernel lacks what every
/// agent needs. The agent waits for everything else that is missing.
pub fn run(file: &Path) -> Result<()> {
    let config = config::read(file)?;
    if let Some(fault) = machine::refusal(&config) {
        return Err(fault);
    }
    runtime()?.block_on(async {
        let waiting = |cause| Error::failure("waiting for signals", cause);
        let mut terminate = signal(SignalKind::terminate()).map_err(waiting)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(waiting)?;
        let mut driver = Driver::new(config, Some(file.into()))?;
        driver.hangup = Some(signal(SignalKind::hangup()).map_err(waiting)?);
        ready::notify(ready::READY);
        let mut give_back = tokio::time::interval(GIVE_BACK_PERIOD);
        driver
            .run(async {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => break,
                        _ = interrupt.recv() => break,
                        _ = give_back.tick() => {
                            memory::trim_heap();
                            memory::unmap_code();
                        }
                    }
                }
            })
            .await
    })
}

/// The result of a future; pends forever without one.
pub(crate) async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|cause| Error::failure("starting the agent", cause))
}

struct Driver {
    config: Arc<Config>,
    clock: Clock,
    engine: Agent,
    journal: Journal,
    mptcp: Option<Mptcp>,
    tunnel: Option<ActiveTunnel>,
    roadside: Option<Roadside>,
    own_cams: Option<OwnCams>,
    home: Option<HomeAddress>,
    unit: Option<Unit>,
    notices: Stream<Notice>,
    interfaces: Interfaces,
    /// None in another program, or beside another agent.
    path_routes: Option<PathRoutes>,
    observers: Vec<Box<dyn Observer>>,
    control: Server,
    http: Option<HttpServer>,
    signals: Signals,
    /// Parts that are retried.
    missing: Missing,
    resolving: Option<Resolving>,
    /// Path manager of new connections at the last check.
    path_manager: Option<PathManager>,
    other_agent: OtherAgent,
    /// Its configuration file; `None`: it runs in another program. Without one, no note goes to standard error.
    file: Option<PathBuf>,
    /// How the paths are used together.
    mode: Mode,
    /// Signals to read the configuration again.
    hangup: Option<Signal>,
    poller: SubflowPoller,
    counters: InterfaceCounters,
    /// None without `[echo]`.
    echo: Option<EchoSockets>,
    handshakes: Handshakes,
    endpoints: Endpoints,
    /// None if no path has a volume.
    volumes: Option<Volumes>,
    /// None if the strategy has no store.
    trials: Option<trials::TrialStore>,
    /// Processor time of the longest answer to a request.
    longest_answer: Duration,
}

impl Driver {
    fn new(config: Config, file: Option<PathBuf>) -> Result<Driver> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        let clock = Clock::since(monotonic_ns());
        let journal = Journal::open(&config, clock);
        let specs: Vec<PathSpec> = config.paths.iter().map(|path| path.get_ref().spec()).collect();
        // Only a gateway has no strategy, and it has no path to use one on.
        let strategy = config.strategy.clone().unwrap_or_else(|| Arc::new(threshold::Params::default()));
        let of_classes = config.managed_classes().map(|(_, mode)| strategy.allocator(mode)).collect();
        let mut engine = Agent::new(&specs, &config.ranks(), config.service.mode, strategy, actuators(&config, &specs))
            .with_classes(of_classes);
        engine.set_unit_costs(config.prices());
        let config = Arc::new(config);
        let (present, notices) = links::monitor().map_err(|cause| starting(&cause))?;
        let mut driver = Driver {
            clock,
            engine,
            journal,
            mptcp: Mptcp::open(&config)?,
            tunnel: None,
            roadside: Roadside::new(&config, clock),
            own_cams: None,
            home: None,
            unit: Unit::new(&config)?,
            notices: notices.into_stream().map_err(|cause| starting(&cause))?,
            interfaces: Interfaces::new(&config),
            path_routes: None,
            observers: Vec::new(),
            control: Server::new(clock, machine::groups(&config)),
            http: None,
            signals: Signals::default(),
            missing: Missing::default(),
            resolving: None,
            path_manager: None,
            other_agent: OtherAgent::default(),
            trials: file.as_ref().and_then(|file| trials::TrialStore::open(&config, file)),
            file,
            mode: config.service.mode,
            hangup: None,
            counters: InterfaceCounters::open(&config),
            echo: None,
            handshakes: Handshakes::open(),
            endpoints: Endpoints::default(),
            volumes: None,
            longest_answer: Duration::ZERO,
            poller: SubflowPoller::new(Duration::from_millis(u64::from(*config.observe.transport_period_ms.get_ref()))),
            config,
        };
        driver.start_roadside();
        driver.start_home();
        driver.start_unit();
        driver.set_up_all();
        driver.listen_as_agent();
        driver.start_own_cams();
        driver.start_echo();
        for notice in present {
            driver.notice(&notice);
        }
        driver.start_volumes();
        driver.start_path_routes()?;
        driver.resync();
        driver.note_lacks();
        Ok(driver)
    }

    /// Runs until `shutdown`.
    async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut watchdog = ready::watchdog();
        let mut checks = tokio::time::interval(CHECK_PERIOD);
        checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut is_busy = self.act();
        for turn in 0_u32.. {
            // Signals arrive by the runtime, which gets no turn while triggers arrive continuously.
            if is_busy || self.poller.is_polling() || turn % TRIGGERS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
            let now = self.clock.now();
            let retry = self.missing.next_wakeup().map(|at| at.since(now));
            let wait = self.next_wakeup().map(|at| at.since(now));
            let poll = self.poller.due(&self.engine).since(now);
            let count = self.poller.count_at().map(|at| at.since(now));
            let observed = self.tunnel.is_some() || self.engine.subflows().next().is_some();
            let is_polling = self.poller.is_polling();
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = or_pending(watchdog.as_mut().map(Interval::tick)) => {
                    if self.tunnel.as_ref().is_none_or(|tunnel| tunnel.data_plane.is_alive()) {
                        ready::notify(ready::ALIVE);
                    }
                }
                event = or_pending(self.mptcp.as_mut().map(|mptcp| mptcp.events.next())) => self.event(event)?,
                notice = self.notices.next() => match notice {
                    Ok(notice) => self.notice(&notice),
                    Err(error) => self.notice_error(error)?,
                },
                () = or_pending(self.path_routes.as_mut().map(PathRoutes::changed)) => self.routes_changed(),
                (source, observation) = observe::next(&mut self.observers) => self.observed(source, observation),
                arrived = or_pending(self.unit.as_mut().map(Unit::next)) => self.on_unit(arrived),
                () = std::future::ready(()), if is_busy => {}
                () = or_pending(count.map(tokio::time::sleep)) => self.observe_counters(),
                () = std::future::ready(()), if is_polling => self.continue_poll(processor_time()),
                () = tokio::time::sleep(poll), if observed => self.observe_transport(),
                () = or_pending(wait.map(tokio::time::sleep)) => {}
                arrived = or_pending(self.roadside.as_mut().map(Roadside::next)) => self.on_roadside(arrived),
                answer = or_pending(self.echo.as_ref().map(EchoSockets::answer)) => self.on_echo_answer(answer),
                answer = or_pending(self.resolving.as_mut().map(Resolving::answer)) => self.resolved(answer),
                () = or_pending(retry.map(tokio::time::sleep)) => self.retry(),
                _ = checks.tick() => self.periodic_check(),
                _ = or_pending(self.hangup.as_mut().map(Signal::recv)) => self.on_hangup(),
                // Last, so that a client that writes continuously starves nothing else.
                update = self.control.next() => self.control(&update),
                Some(view) = or_pending(self.http.as_mut().map(HttpServer::next)) => self.view(view),
            }
            if let Some(fault) = self.tunnel.as_mut().and_then(|tunnel| tunnel.data_plane.fault()) {
                self.journal.fault(&fault);
                return Err(fault);
            }
            self.set_path_routes();
            self.send_own_cams();
            self.check_volumes();
            is_busy = self.act();
        }
        if let Some(tunnel) = &self.tunnel {
            self.journal.tunnel_totals(&tunnel.status(), tunnel.data_plane.counts());
        }
        self.tunnel.take().into_iter().for_each(|tunnel| tunnel.data_plane.finish());
        self.finish_volumes();
        self.finish_path_routes();
        self.finish_home();
        self.finish_unit();
        self.roadside.take().into_iter().for_each(Roadside::finish);
        self.journal.finish(self.engine.left_out());
        Ok(())
    }

    /// When the engines are to be called next.
    fn next_wakeup(&self) -> Option<Instant> {
        let of_units = self.roadside.as_ref().and_then(Roadside::next_wakeup);
        let of_home = self.home.as_ref().map(HomeAddress::next_wakeup);
        let of_unit = self.unit.as_ref().and_then(Unit::next_wakeup);
        let of_cams = self.own_cams.as_ref().and_then(OwnCams::next_wakeup);
        let of_routes = self.routes_wakeup();
        let of_volumes = self.volumes.as_ref().map(Volumes::next_wakeup);
        let of_resets = self.mptcp.as_ref().and_then(Mptcp::next_reset);
        let of_paths = [of_routes, of_volumes, of_resets];
        let wakeups = [self.engine.next_wakeup(), of_units, of_home, of_unit, of_cams].into_iter().chain(of_paths);
        wakeups.flatten().min()
    }

    fn handle(&mut self, input: Input) {
        let now = self.clock.now();
        if let Input::Sample(Sample { path, kind: SampleKind::Transport(transport) }) = &input {
            self.roadside.iter_mut().for_each(|roadside| roadside.note_subflow(now, *path, transport));
        }
        self.engine.handle(now, input);
    }

    /// Carries out the engine's outputs; true if it may have more.
    fn act(&mut self) -> bool {
        for _ in 0..OUTPUTS_IN_A_ROW {
            let now = self.clock.now();
            let Some(output) = self.engine.poll(now) else {
                // After the engine's outputs, which may concern the path that a unit takes over.
                if self.act_on_units() || self.mptcp.as_mut().is_some_and(|mptcp| mptcp.reset_destroyed(now)) {
                    continue;
                }
                self.act_on_home();
                self.act_on_unit();
                self.journal.flush();
                self.control.report(&self.engine);
                return false;
            };
            self.carry_out(output);
        }
        true
    }

    fn carry_out(&mut self, output: Output) {
        let (output, mut error) = (self.with_remedy(output), None);
        match &output {
            Output::Command(Command::Steer(steering)) => {
                // Paths to roadside units follow those of the configuration; the tunnel does not use them.
                let count = self.config.paths.len();
                let order = steering.order.map(|path| (usize::from(path.0) < count).then_some(*path));
                let states = &steering.states[..count.min(steering.states.len())];
                self.tunnel.iter().for_each(|tunnel| tunnel.data_plane.set_wanted(states, &order));
            }
            Output::Command(Command::Mptcp(_, command)) => {
                let Some(mptcp) = &mut self.mptcp else { return };
                error = mptcp.carry_out(self.clock.now(), command).err();
                if let Some(error) = &error {
                    self.handle(actuator::Event::Refused(*command, path_manager::refusal(error)).into());
                }
            }
            Output::Command(Command::Endpoint(command)) => error = self.carry_out_endpoint(*command),
            Output::Notice(mptcp::Notice::Network { text, .. }) if self.file.is_some() => output::message(text),
            Output::Trial(trial) => self.trials.iter_mut().for_each(|store| store.write(self.clock.now(), trial)),
            // Five a second: they are counted, not recorded.
            Output::Echo(path, number) => return self.send_echo(*path, *number),
            Output::Admission(admission) => self.control.admit(admission),
            Output::Belief { path, belief, .. } => {
                let now = self.clock.now();
                self.roadside.iter_mut().for_each(|roadside| roadside.believe(now, *path, *belief));
            }
            _ => {}
        }
        self.journal.output(output, error.as_ref());
    }
}
