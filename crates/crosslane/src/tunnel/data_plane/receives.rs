//! The receiving thread: reads the sockets of all paths.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crosslane_core::packet::gro::Coalescer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Shared, deliver, flush};
use crate::tunnel::endpoint::egress::Transmit;
use crate::tunnel::endpoint::{PathAddress, ReceiveState, lock};
use crate::tunnel::socket::{PathSocket, ReceiveBuffers};
use crate::tunnel::threads::Pulse;

/// Batches read from a socket before the others are served.
const BATCHES_A_TURN: usize = 4;

/// The receiving thread.
pub(super) struct ReceiveThread {
    shared: Arc<Shared>,
    state: ReceiveState,
    buffers: ReceiveBuffers,
    coalescer: Coalescer,
}

impl ReceiveThread {
    pub(super) fn new(shared: Arc<Shared>) -> ReceiveThread {
        let coalescer = Coalescer::new(shared.device.offload().udp);
        ReceiveThread { shared, state: ReceiveState::default(), buffers: ReceiveBuffers::default(), coalescer }
    }

    pub(super) fn run(mut self, pulse: &Pulse) {
        while !self.shared.stop.load(Relaxed) {
            pulse.pass(self.shared.clock.now());
            let sockets: Vec<(usize, Arc<PathSocket>)> = {
                let sockets = lock(&self.shared.sockets);
                sockets.iter().enumerate().filter_map(|(place, socket)| Some((place, socket.clone()?))).collect()
            };
            for (place, socket) in self.wait(&sockets) {
                self.take(place, &socket);
            }
        }
    }

    fn wait(&self, sockets: &[(usize, Arc<PathSocket>)]) -> Vec<(usize, Arc<PathSocket>)> {
        let mut sources: Vec<PollFd<'_>> = Vec::with_capacity(sockets.len() + 1);
        sources.push(PollFd::new(self.shared.receiver.as_fd(), PollFlags::POLLIN));
        sources.extend(sockets.iter().map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        if poll(&mut sources, PollTimeout::from(500u16)).is_err() {
            return Vec::new();
        }
        if sources[0].any().unwrap_or(false) {
            let _ = self.shared.receiver.read();
        }
        let ready = sources[1..].iter().zip(sockets).filter(|(source, _)| source.any().unwrap_or(false));
        ready.map(|(_, (place, socket))| (*place, socket.clone())).collect()
    }

    fn take(&mut self, via: usize, socket: &PathSocket) {
        let ReceiveThread { shared, state, buffers, coalescer } = self;
        for _ in 0..BATCHES_A_TURN {
            // The socket is empty, or an ICMP error reports a closed port.
            let Ok(_) = socket.receive(buffers) else { return };
            let now = shared.clock.now();
            for datagram in buffers.datagrams() {
                let address = PathAddress { via, to: datagram.from, from: datagram.at };
                if let Some(reply) = shared.endpoint.on_datagram(state, now, address, datagram.tos, datagram.bytes) {
                    shared.send(Transmit::one(address, &reply));
                }
            }
            let wakeup = shared.endpoint.flush(state, now, |packet| deliver(coalescer, &shared.device, packet));
            flush(coalescer, &shared.device);
            let asleep_until = shared.wakes_ns.load(Relaxed);
            if wakeup.is_some_and(|at| at.as_nanos() < asleep_until) {
                let _ = shared.sender.write(1);
            }
        }
    }
}
