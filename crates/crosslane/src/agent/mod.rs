//! `crosslane agent`: feeds the engine with what the kernel and the radios
//! tell, and carries out what it says.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::agent::{Agent, Input, Output, Setup};
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::Event;
use crosslane_core::path::PathSpec;
use crosslane_core::strategy::{Strategy, ThresholdParams};
use tokio::signal::unix::{SignalKind, signal};

use crate::clock::{Clock, monotonic_ns};
use crate::control::demand::server::{self, Heard, Server};
use crate::control::tunnel::server::{self as steer, ControlRequest};
use crate::error::{Error, Result};
use crate::netlink::diag::Connection;
use crate::netlink::links::{self, Notice};
use crate::netlink::{EventError, PathManager, Stream, path_manager};
use crate::observe::vanetza::{self, MAX_DATAGRAM, Senders};

mod commands;
pub mod config;
mod counters;
pub mod embedded;
mod interfaces;
mod journal;
pub mod later;
pub mod machine;
mod parts;
pub mod ready;
mod transport;
mod tunnel_actuator;

use commands::{Mptcp, event, seen};
use config::Config;
use counters::InterfaceCounters;
use interfaces::Interfaces;
use journal::Journal;
use later::Missing;
use parts::{Datagrams, GLANCE, receive};
use transport::Lookout;
use tunnel_actuator::{Carried, Resolving};

/// Outputs of the engine carried out in a row before other news is heard.
const OUTPUTS_IN_A_ROW: usize = 32;
/// News in a row before the runtime is asked for signals.
const NEWS_IN_A_ROW: u32 = 16;

/// Runs the agent until it is told to end (SIGINT, SIGTERM).
///
/// # Errors
/// What is wrong with the configuration (exit code 2), or the kernel cannot do
/// what every agent needs. All else that is missing is waited for.
pub fn run(file: &Path) -> Result<()> {
    let config = config::read(file)?;
    if let Some(fault) = machine::refusals(&config).into_iter().next() {
        return Err(fault);
    }
    runtime()?.block_on(async {
        let waiting = |cause| Error::failure("waiting for signals", cause);
        let mut terminate = signal(SignalKind::terminate()).map_err(waiting)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(waiting)?;
        let driver = Driver::new(config, true)?;
        ready::tell();
        driver
            .run(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            })
            .await
    })
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
    tunnel: Option<Carried>,
    steer: Option<steer::Server>,
    notices: Stream<Notice>,
    interfaces: Interfaces,
    datagrams: Option<Datagrams>,
    senders: Senders,
    demands: Option<Server>,
    /// What is tried again.
    missing: Missing,
    resolving: Option<Resolving>,
    /// Who managed new connections when it was looked at last.
    path_manager: Option<PathManager>,
    /// Whether the user hears of it on standard error.
    talks: bool,
    lookout: Lookout,
    counters: InterfaceCounters,
}

/// What woke the driver.
enum News {
    Event(Result<Event, EventError>),
    Notice(Result<Notice, EventError>),
    Datagram(usize, SocketAddr),
    Resolved(Result<SocketAddr>),
    Glance,
    Again,
    Demands(Heard),
    ControlRequest(ControlRequest),
    Transport,
    Counters,
    Wakeup,
    Watchdog,
    End,
}

impl Driver {
    fn new(config: Config, talks: bool) -> Result<Driver> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        let clock = Clock::since(monotonic_ns());
        let journal = Journal::open(&config, clock);
        let specs: Vec<PathSpec> = config.paths.iter().map(|path| path.get_ref().spec()).collect();
        let mut engine = Agent::new(Setup {
            paths: specs,
            ranks: config.ranks(),
            mode: config.service.mode,
            overlap: Duration::from_millis(u64::from(*config.service.overlap_ms.get_ref())),
            // Only a gateway has none, and no path to use one on.
            strategy: config.strategy.unwrap_or(Strategy::Threshold(ThresholdParams::default())),
        });
        let inside = config.tunnel.iter().flat_map(|tunnel| &tunnel.get_ref().address);
        engine.leave_alone(inside.map(|prefix| prefix.get_ref().address).collect());
        let (present, notices) = links::monitor().map_err(|cause| starting(&cause))?;
        let mut driver = Driver {
            clock,
            engine,
            journal,
            mptcp: Mptcp::open(&config)?,
            tunnel: None,
            steer: None,
            notices: notices.into_stream().map_err(|cause| starting(&cause))?,
            interfaces: Interfaces::new(&config),
            datagrams: None,
            senders: config.senders(),
            demands: None,
            missing: Missing::default(),
            resolving: None,
            path_manager: None,
            talks,
            counters: InterfaceCounters::open(&config),
            lookout: Lookout::new(Duration::from_millis(u64::from(*config.observe.transport_period_ms.get_ref()))),
            config: Arc::new(config),
        };
        driver.set_up_all();
        for notice in present {
            driver.notice(&notice);
        }
        driver.resync();
        driver.note_lacks();
        Ok(driver)
    }

    /// Runs until `end`.
    async fn run(mut self, end: impl Future<Output = ()>) -> Result<()> {
        let mut end = std::pin::pin!(end);
        let mut buffer = vec![0; MAX_DATAGRAM];
        let mut watchdog = ready::watchdog();
        let mut glances = tokio::time::interval(GLANCE);
        glances.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut is_busy = self.act();
        for turn in 0_u32.. {
            // Signals come by the runtime, which gets no turn while there is always news.
            if is_busy || turn % NEWS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
            let now = self.clock.now();
            let again = self.missing.next_wakeup().map(|at| at.since(now));
            let wait = self.engine.next_wakeup().map(|at| at.since(now));
            let look = self.lookout.next().since(now);
            let count = self.lookout.count_at().map(|at| at.since(now));
            let observed = self.tunnel.is_some() || self.engine.manager().subflows().next().is_some();
            let news = tokio::select! {
                biased;
                () = &mut end => News::End,
                () = ready::due(watchdog.as_mut()) => News::Watchdog,
                event = event(self.mptcp.as_mut()) => News::Event(event),
                notice = self.notices.next() => News::Notice(notice),
                (length, from) = receive(self.datagrams.as_ref(), &mut buffer) => News::Datagram(length, from),
                () = std::future::ready(()), if is_busy => News::Wakeup,
                () = tokio::time::sleep(look), if observed => News::Transport,
                () = tokio::time::sleep(count.unwrap_or(Duration::MAX)), if count.is_some() => News::Counters,
                _ = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => News::Wakeup,
                answer = tunnel_actuator::resolved(self.resolving.as_mut()) => News::Resolved(answer),
                _ = tokio::time::sleep(again.unwrap_or(Duration::MAX)), if again.is_some() => News::Again,
                _ = glances.tick() => News::Glance,
                // Last, so that a sender without end keeps nothing else from being heard.
                heard = server::news(self.demands.as_mut()) => News::Demands(heard),
                ask = steer::next(self.steer.as_mut()) => News::ControlRequest(ask),
            };
            match news {
                News::End => break,
                News::Event(event) => self.event(event)?,
                News::Notice(Ok(notice)) => self.notice(&notice),
                News::Notice(Err(error)) => self.missed_notices(error)?,
                News::Datagram(length, from) => self.datagram(&buffer[..length], from),
                News::Resolved(answer) => self.resolved(answer),
                News::Again => self.try_again(),
                News::Glance => self.glance(),
                News::Demands(heard) => self.demands(&heard),
                News::ControlRequest(ask) => self.answer(ask),
                News::Transport => {
                    self.observe_transport();
                    self.meet();
                }
                News::Counters => self.observe_counters(),
                News::Watchdog if self.tunnel.as_ref().is_none_or(Carried::is_alive) => ready::tell_alive(),
                News::Watchdog | News::Wakeup => {}
            }
            if let Some(fault) = self.tunnel.as_mut().and_then(Carried::fault) {
                self.journal.fault(&fault);
                return Err(fault);
            }
            is_busy = self.act();
        }
        if let Some(tunnel) = &self.tunnel {
            self.journal.tunnel_sums(&tunnel.status(), tunnel.counts());
        }
        self.tunnel.take().into_iter().for_each(Carried::finish);
        self.journal.finish(self.engine.manager().left_out());
        Ok(())
    }

    fn event(&mut self, event: Result<Event, EventError>) -> Result<()> {
        match event {
            Ok(event) => {
                self.lookout.stir(self.clock.now());
                self.handle(Input::Mptcp(event));
            }
            Err(EventError::Overrun) => self.resync(),
            Err(EventError::Malformed(fault)) => self.journal.fault(&fault),
            Err(EventError::Io(cause)) => return Err(Error::failure("listening to the kernel's path manager", cause)),
        }
        Ok(())
    }

    fn missed_notices(&mut self, error: EventError) -> Result<()> {
        self.journal.fault(&error);
        match error {
            EventError::Io(cause) => Err(Error::failure("listening to the kernel's links", cause)),
            EventError::Malformed(_) => Ok(()),
            EventError::Overrun => {
                let present = links::snapshot().map_err(|cause| Error::failure("reading the links anew", cause))?;
                let inputs = self.interfaces.resync(&present);
                self.links(inputs);
                Ok(())
            }
        }
    }

    fn notice(&mut self, notice: &Notice) {
        let inputs = self.interfaces.notice(notice);
        self.links(inputs);
    }

    fn links(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            if let (Input::Address { path, .. }, Some(tunnel)) = (&input, &mut self.tunnel)
                && let Err(fault) = tunnel.set_path(*path, self.interfaces.configured(*path))
            {
                self.journal.fault(&fault);
            }
            self.handle(input);
        }
    }

    fn datagram(&mut self, bytes: &[u8], from: SocketAddr) {
        if !self.believes(from) {
            return;
        }
        match vanetza::read(bytes, &self.senders) {
            Ok(sample) => self.handle(sample.into()),
            Err(rejected) => self.journal.rejected(&rejected),
        }
    }

    /// What is acknowledged waits for the next look at the transport.
    fn demands(&mut self, heard: &Heard) {
        heard.faults.iter().for_each(|fault| self.journal.fault(fault));
        if heard.changed {
            self.meet();
        }
    }

    fn answer(&mut self, ask: ControlRequest) {
        let Some(tunnel) = &self.tunnel else { return };
        let used = ask.mode().map(|mode| Ok((mode, tunnel.use_mode(mode)?))).transpose();
        if let Ok(Some((mode, was))) = used
            && mode != was
        {
            self.journal.tunnel_mode(mode, was);
        }
        ask.answer(used.map(|_| tunnel.status()));
    }

    fn meet(&mut self) {
        if let Some(demand) = self.demands.as_mut().map(Server::demand) {
            self.handle(Input::Demand(demand));
        }
    }

    /// Tells the engine which connections there are: after a start, and when
    /// the kernel had more to tell than we could take.
    fn resync(&mut self) {
        match self.mptcp.as_mut().map_or(Ok(Vec::new()), |mptcp| mptcp.diag.connections()) {
            Ok(connections) => {
                self.former_addresses(&connections);
                self.handle(Input::Resync(connections.iter().map(seen).collect()));
            }
            Err(fault) => self.journal.fault(&fault),
        }
    }

    /// Tells the engine which addresses subflows are left from that went before
    /// this agent began: nobody else would close them.
    fn former_addresses(&mut self, connections: &[Connection]) {
        match links::snapshot() {
            Ok(present) => {
                let left = connections.iter().flat_map(|connection| &connection.subflows);
                let left = left.map(|info| (info.subflow.local.ip(), info.if_index));
                self.interfaces.former(&present, left).into_iter().for_each(|input| self.handle(input));
            }
            Err(fault) => self.journal.fault(&fault),
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.clock.now();
        self.engine.handle(now, input);
    }

    /// Carries out what the engine says; true if it may have more to say.
    fn act(&mut self) -> bool {
        for _ in 0..OUTPUTS_IN_A_ROW {
            let Some(output) = self.engine.poll(self.clock.now()) else {
                if self.mptcp.as_mut().is_some_and(Mptcp::reset_destroyed) {
                    continue;
                }
                self.journal.settle();
                if let Some(server) = &mut self.demands {
                    server.tell(&self.engine);
                }
                return false;
            };
            self.carry_out(output);
        }
        true
    }

    fn carry_out(&mut self, output: Output) {
        let Output::Command { command, .. } = output else {
            if let (Output::Decision { .. }, Some(tunnel)) = (&output, &self.tunnel) {
                tunnel.want(&self.engine);
            }
            if let (Output::Admission(admission), Some(server)) = (&output, &mut self.demands) {
                server.admit(admission);
            }
            self.journal.output(output, None);
            return;
        };
        let Some(mptcp) = &mut self.mptcp else { return };
        let done = mptcp.carry_out(&command);
        self.journal.output(output, done.as_ref().err());
        if let Err(error) = &done {
            self.handle(Input::Refused(command, path_manager::refusal(error)));
        }
    }
}
