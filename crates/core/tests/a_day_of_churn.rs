//! A day in which links come and go and connections begin and end: the engine's memory does not grow.
#![allow(missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crosslane_core::actuator::{Actuator, Command, Event};
use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::manager::Manager;
use crosslane_core::mptcp::{self, AddressId, Subflow, Token};
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::strategy::{Strategy, adaptive, threshold};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::wanted::ConnectionClass;

const PATHS: u8 = 3;
const HOURS: u64 = 24;
/// A connection begins each second and ends after so many.
const LIFETIME_S: u64 = 20;

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The engine, and the kernel's subflows.
struct Machine {
    agent: Agent,
    now: Instant,
    subflows: BTreeMap<Token, Vec<Subflow>>,
    random: u64,
}

impl Machine {
    fn new(strategy: &Arc<dyn Strategy>) -> Machine {
        let spec = |place: u8| PathSpec {
            name: format!("path-{place}"),
            rat: if place == 0 { Rat::Ieee80211p } else { Rat::Lte },
            local: Some([10, 0, place, 2].into()),
            if_index: 1 + u32::from(place),
            radio: None,
        };
        let paths: Vec<PathSpec> = (0..PATHS).map(spec).collect();
        let manager: Box<dyn Actuator> = Box::new(Manager::new(paths.clone(), Duration::ZERO));
        let agent = Agent::new(&paths, &[0, 1, 2], Mode::Aggregate, Arc::clone(strategy), vec![manager]);
        let agent = agent.with_classes(vec![strategy.allocator(Mode::Backup)]);
        Machine { agent, now: Instant::ZERO, subflows: BTreeMap::new(), random: 1 }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit
    }

    fn handle(&mut self, input: impl Into<Input>) {
        self.agent.handle(self.now, input.into());
        while let Some(output) = self.agent.poll(self.now) {
            if let Output::Command(Command::Mptcp(_, command)) = output {
                self.obey(command);
            }
        }
    }

    /// As the kernel: at once, and without refusing.
    fn obey(&mut self, command: mptcp::Command) {
        match command {
            mptcp::Command::CreateSubflow { token, local_id, local, remote, backup, .. } => {
                let Some(subflows) = self.subflows.get_mut(&token) else { return };
                let local = SocketAddr::new(local, 30_000 + token.0 as u16 % 30_000);
                let subflow = Subflow { local, remote, local_id, remote_id: AddressId(0), backup };
                subflows.push(subflow);
                let event = mptcp::Event::SubflowEstablished { token, subflow };
                self.agent.handle(self.now, Event::Mptcp(event).into());
            }
            mptcp::Command::DestroySubflow { token, local, remote, .. } => {
                let Some(subflows) = self.subflows.get_mut(&token) else { return };
                let Some(place) = subflows.iter().position(|subflow| subflow.local == local) else { return };
                let subflow = subflows.remove(place);
                assert_eq!(subflow.remote, remote);
                let event = mptcp::Event::SubflowClosed { token, subflow, error: 0 };
                self.agent.handle(self.now, Event::Mptcp(event).into());
            }
            _ => {}
        }
    }

    fn connect(&mut self, number: u32) {
        let local = SocketAddr::from(([10, 0, (number % u32::from(PATHS)) as u8, 2], 30_000 + number as u16 % 30_000));
        let remote = SocketAddr::from(([10, 9, (number >> 8) as u8, number as u8], 443));
        let subflow = Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false };
        let token = Token(number);
        self.subflows.insert(token, vec![subflow]);
        self.handle(Event::Mptcp(mptcp::Event::Established { token, subflow, server_side: false }));
        self.handle(Event::Class(token, ConnectionClass((number % 2) as u8)));
    }

    fn close(&mut self, token: Token) {
        self.subflows.remove(&token);
        self.handle(Event::Mptcp(mptcp::Event::Closed { token }));
    }

    /// A second of the day.
    fn second(&mut self, second: u64) {
        self.now = self.now + Duration::from_secs(1);
        self.connect(1 + second as u32);
        if let Some(old) = (second + 1).checked_sub(LIFETIME_S) {
            self.close(Token(old as u32));
        }
        for path in (0..PATHS).map(PathId) {
            if self.below(5) == 0 {
                let up = self.below(2) == 0;
                self.handle(Sample { path, kind: SampleKind::Link { up } });
            }
            let rssi_dbm = -95.0 + self.below(30) as f32;
            self.handle(Sample { path, kind: SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() }) });
        }
        let flows: Vec<(Token, Subflow)> =
            self.subflows.iter().flat_map(|(&token, all)| all.iter().map(move |subflow| (token, *subflow))).collect();
        for (token, subflow) in flows {
            let SocketAddr::V4(local) = subflow.local else { continue };
            let transport = Transport {
                token: token.0,
                peer: subflow.remote,
                rtt: Duration::from_millis(10 + self.below(200)),
                unacked: self.below(20) as u32,
                delivered: second as u32,
                bytes_acked: second * 1000,
                cwnd: 10,
                ..Transport::IDLE
            };
            self.handle(Sample { path: PathId(local.ip().octets()[2]), kind: SampleKind::Transport(transport) });
        }
    }
}

#[test]
fn memory_does_not_grow_in_a_day_of_churn() {
    let strategies: [(&str, Arc<dyn Strategy>); 2] =
        [("adaptive", Arc::new(adaptive::Params::default())), ("threshold", Arc::new(threshold::Params::default()))];
    for (name, strategy) in strategies {
        let before = IN_USE.load(Relaxed);
        let mut machine = Machine::new(&strategy);
        let mut most = [0; HOURS as usize];
        for second in 0..HOURS * 3600 {
            machine.second(second);
            let hour = &mut most[(second / 3600) as usize];
            *hour = IN_USE.load(Relaxed).saturating_sub(before).max(*hour);
        }
        let (early, late) = (most[1].max(most[2]), most[HOURS as usize - 1]);
        println!("{name}: bytes at most in each hour: {most:?}");
        assert!(late <= early + early / 20, "{most:?}");
    }
}
