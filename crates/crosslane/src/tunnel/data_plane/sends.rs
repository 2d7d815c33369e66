//! The thread that sends: from the device, and what time brings.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crosslane_core::time::Instant;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::{AWAKE, Shared, deliver, flush};
use crate::clock;
use crate::tunnel::endpoint::Change;
use crate::tunnel::endpoint::egress::Outbox;
use crate::tunnel::gro::Coalescer;
use crate::tunnel::gso::{FRAME_BYTES, split};
use crate::tunnel::threads::Pulse;

/// Frames taken from the device before what they brought is sent.
const FRAMES_A_TURN: usize = 8;
/// Longest sleep: nothing is due later than that.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// The thread that sends.
pub(super) struct Sends {
    shared: Arc<Shared>,
    outbox: Outbox,
    frame: Vec<u8>,
    /// When each peer's engine is due.
    due: Vec<Option<Instant>>,
    coalescer: Coalescer,
    tell: mpsc::SyncSender<Change>,
    upkeep: Instant,
}

impl Sends {
    pub(super) fn new(shared: Arc<Shared>, tell: mpsc::SyncSender<Change>) -> Sends {
        let due = vec![Some(Instant::ZERO); shared.end.peers()];
        let coalescer = Coalescer::new(shared.device.offload().udp);
        Sends {
            shared,
            outbox: Outbox::default(),
            frame: vec![0; FRAME_BYTES],
            due,
            coalescer,
            tell,
            upkeep: Instant::ZERO,
        }
    }

    pub(super) fn run(mut self, pulse: &Pulse) {
        while !self.shared.stop.load(Relaxed) {
            let woken = self.sleep();
            let now = self.shared.clock.now();
            pulse.pass(now);
            if woken {
                // The receiving thread does not say for whom.
                self.due.fill(Some(now));
            }
            self.take_frames(now);
            if now >= self.upkeep {
                let Sends { shared, .. } = &self;
                shared.end.upkeep(now, clock::unix_ns(), |sent| shared.send(sent));
                self.upkeep = shared.end.upkeep_due(now);
            }
            for peer in 0..self.due.len() {
                if self.due[peer].is_some_and(|due| due <= now) {
                    self.depart(now, peer);
                }
            }
        }
    }

    /// Sleeps until something is due or there is a packet; whether it was woken.
    fn sleep(&mut self) -> bool {
        let now = self.shared.clock.now();
        let due = self.due.iter().flatten().copied().min().unwrap_or(now + LONGEST_SLEEP).min(self.upkeep);
        let due = due.min(now + LONGEST_SLEEP);
        self.shared.wakes_ns.store(due.as_nanos(), Relaxed);
        let mut sources = [
            PollFd::new(self.shared.device.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.sender.as_fd(), PollFlags::POLLIN),
        ];
        let woken = ppoll(&mut sources, Some(TimeSpec::from_duration(due.since(now))), None);
        self.shared.wakes_ns.store(AWAKE, Relaxed);
        if woken.is_ok_and(|count| count > 0) && sources[1].any().unwrap_or(false) {
            let _ = self.shared.sender.read();
            return true;
        }
        false
    }

    fn take_frames(&mut self, now: Instant) {
        let Sends { shared, frame, due, .. } = self;
        for _ in 0..FRAMES_A_TURN {
            let Ok(length) = shared.device.receive(frame) else { return };
            // The kernel makes no frame that cannot be cut.
            let _ = split(&mut frame[..length], |packet| {
                let answer = |told: &[u8]| drop(shared.device.send_packet(told));
                if let Some(peer) = shared.end.take_in(now, packet, answer) {
                    due[peer] = Some(now);
                }
            });
        }
    }

    fn depart(&mut self, now: Instant, peer: usize) {
        let Sends { shared, outbox, coalescer, due, tell, .. } = self;
        due[peer] = shared.end.depart(now, peer, outbox, |sent| shared.send(sent));
        for change in shared.end.changes(peer, outbox) {
            // Nobody listens: then nobody needs to know.
            let _ = tell.try_send(change);
        }
        shared.end.deliveries(peer, |packet| deliver(coalescer, &shared.device, packet));
        flush(coalescer, &shared.device);
    }
}
