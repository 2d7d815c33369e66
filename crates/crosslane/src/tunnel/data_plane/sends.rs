//! The sending thread: reads the device, and runs the timers.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crosslane_core::packet::gro::Coalescer;
use crosslane_core::packet::gso::{FRAME_BYTES, split};
use crosslane_core::time::Instant;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::{AWAKE, Shared, deliver, flush};
use crate::clock;
use crate::tunnel::endpoint::Change;
use crate::tunnel::endpoint::egress::Outbox;
use crate::tunnel::threads::Pulse;

/// Frames read from the device before their packets are sent.
const FRAMES_A_TURN: usize = 8;
/// Maximum sleep.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// The sending thread.
pub(super) struct SendThread {
    shared: Arc<Shared>,
    outbox: Outbox,
    frame: Vec<u8>,
    /// When each peer's engine is due.
    due: Vec<Option<Instant>>,
    coalescer: Coalescer,
    changes: mpsc::SyncSender<Change>,
    maintenance_due: Instant,
}

impl SendThread {
    pub(super) fn new(shared: Arc<Shared>, changes: mpsc::SyncSender<Change>) -> SendThread {
        SendThread {
            outbox: Outbox::default(),
            frame: vec![0; FRAME_BYTES],
            due: vec![Some(Instant::ZERO); shared.endpoint.peers()],
            coalescer: Coalescer::new(shared.device.offload().udp),
            shared,
            changes,
            maintenance_due: Instant::ZERO,
        }
    }

    pub(super) fn run(mut self, pulse: &Pulse) {
        while !self.shared.stop.load(Relaxed) {
            let woken = self.sleep();
            let now = self.shared.clock.now();
            pulse.pass(now);
            if woken {
                // The receiving thread does not report the peer, nor the agent a path or a new peer.
                self.due.clear();
                self.due.resize(self.shared.endpoint.peers(), Some(now));
                self.maintenance_due = now;
            }
            self.take_frames(now);
            if now >= self.maintenance_due {
                let shared = &self.shared;
                shared.endpoint.maintain(now, clock::unix_ns(), |transmit| shared.send(transmit));
                self.maintenance_due = shared.endpoint.maintenance_due(now);
            }
            for peer in 0..self.due.len() {
                if self.due[peer].is_some_and(|due| due <= now) {
                    self.transmit(now, peer);
                }
            }
        }
    }

    /// Sleeps until a timer is due or there is a packet; true if another thread woke it.
    fn sleep(&mut self) -> bool {
        let now = self.shared.clock.now();
        let due = self.due.iter().flatten().copied().min().unwrap_or(now + MAX_SLEEP).min(self.maintenance_due);
        let due = due.min(now + MAX_SLEEP);
        self.shared.wakes_ns.store(due.as_nanos(), Relaxed);
        let mut sources = [
            PollFd::new(self.shared.sender.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.device.as_fd(), PollFlags::POLLIN),
        ];
        let watched = if self.shared.is_removed.load(Relaxed) { 1 } else { 2 };
        let woken = ppoll(&mut sources[..watched], Some(TimeSpec::from_duration(due.since(now))), None);
        self.shared.wakes_ns.store(AWAKE, Relaxed);
        let is_removed = sources[1].revents().is_some_and(|found| found.contains(PollFlags::POLLERR));
        if is_removed {
            self.shared.is_removed.store(true, Relaxed);
        }
        if woken.is_ok_and(|count| count > 0) && sources[0].any().unwrap_or(false) {
            let _ = self.shared.sender.read();
            return true;
        }
        false
    }

    fn take_frames(&mut self, now: Instant) {
        let SendThread { shared, frame, due, .. } = self;
        for _ in 0..FRAMES_A_TURN {
            let Ok(length) = shared.device.receive(frame) else { return };
            // The kernel creates no malformed frame.
            let _ = split(&mut frame[..length], |packet| {
                let reply = |packet: &[u8]| drop(shared.device.send_packet(packet));
                if let Some(peer) = shared.endpoint.ingress(now, packet, reply) {
                    due.resize(due.len().max(peer + 1), None);
                    due[peer] = Some(now);
                }
            });
        }
    }

    fn transmit(&mut self, now: Instant, peer: usize) {
        let SendThread { shared, outbox, coalescer, due, changes, .. } = self;
        due[peer] = shared.endpoint.transmit(now, peer, outbox, |transmit| shared.send(transmit));
        for change in shared.endpoint.changes(peer, outbox) {
            // If the buffer is full, the change is dropped.
            let _ = changes.try_send(change);
        }
        shared.endpoint.deliver(peer, |packet| deliver(coalescer, &shared.device, packet));
        flush(coalescer, &shared.device);
    }
}
