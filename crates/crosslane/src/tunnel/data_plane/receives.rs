//! The thread that receives: from the sockets of all paths.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Shared, deliver, flush};
use crate::tunnel::endpoint::egress::Sent;
use crate::tunnel::endpoint::{Intake, Way, lock};
use crate::tunnel::gro::Coalescer;
use crate::tunnel::socket::{PathSocket, ReceiveBuffers};
use crate::tunnel::threads::Pulse;

/// Batches taken from a socket before the others have their turn.
const BATCHES_A_TURN: usize = 4;

/// The thread that receives.
pub(super) struct Receives {
    shared: Arc<Shared>,
    intake: Intake,
    buffers: ReceiveBuffers,
    coalescer: Coalescer,
}

impl Receives {
    pub(super) fn new(shared: Arc<Shared>) -> Receives {
        let coalescer = Coalescer::new(shared.device.offload().udp);
        Receives { shared, intake: Intake::default(), buffers: ReceiveBuffers::default(), coalescer }
    }

    pub(super) fn run(mut self, pulse: &Pulse) {
        while !self.shared.stop.load(Relaxed) {
            pulse.pass(self.shared.clock.now());
            let sockets: Vec<(usize, Arc<PathSocket>)> = {
                let sockets = lock(&self.shared.sockets);
                sockets.iter().enumerate().filter_map(|(place, socket)| Some((place, socket.clone()?))).collect()
            };
            let ready = self.wait(&sockets);
            for (place, socket) in ready {
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
        let Receives { shared, intake, buffers, coalescer } = self;
        for _ in 0..BATCHES_A_TURN {
            match socket.receive(buffers) {
                Ok(_) => {}
                // There is no more, or a host says that nobody listens there.
                Err(_) => return,
            }
            let now = shared.clock.now();
            for datagram in buffers.datagrams() {
                let way = Way { via, to: datagram.from, from: datagram.at };
                if let Some(reply) = shared.end.take_out(intake, now, way, datagram.tos, datagram.bytes) {
                    shared.send(Sent::one(way, &reply));
                }
            }
            let wakeup = shared.end.settle(intake, now, |packet| deliver(coalescer, &shared.device, packet));
            flush(coalescer, &shared.device);
            let asleep_until = shared.wakes_ns.load(Relaxed);
            if wakeup.is_some_and(|at| at.as_nanos() < asleep_until) {
                let _ = shared.sender.write(1);
            }
        }
    }
}
