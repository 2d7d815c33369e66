//! Traffic of kind `deadline` over a TCP connection for each path, with synthetic objects that are not stored:
//! what `crosslane send` and `crosslane receive` do with files.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use crosslane_core::path::PathId;
use crosslane_sim::traffic::DeadlineTraffic;
use nix::poll::PollFlags;
use socket2::Socket;

use super::driver::{Driver, EndpointRecord, POLL_INTERVAL, Plan, Run, SEE_LOG, system};
use super::objects::{Periodic, Received};
use crate::error::{Error, Result};
use crate::transfer::connection;
use crate::transfer::multipath::receiving::{self, Joined};
use crate::transfer::multipath::sending::{self, How, Path};

pub struct Transfer {
    pub rules: DeadlineTraffic,
    /// The preferred one first.
    pub paths: Vec<(PathId, Path)>,
}

impl Driver for Transfer {
    fn listen(&self, plan: &Plan, address: SocketAddr) -> Result<Socket> {
        plan.check()?;
        let socket = connection::listen(address).map_err(Error::reported)?;
        socket.set_nonblocking(true).map_err(system("listening for the traffic", SEE_LOG))?;
        Ok(socket)
    }

    fn serve(&self, run: Run, listener: Socket) -> Result<EndpointRecord> {
        let (sender, join) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| accept_all(run, &listener, sender, &is_over));
            let received = receive(run, &join);
            is_over.store(true, Ordering::Relaxed);
            let accepted = accepting.join();
            let received = received?;
            accepted.unwrap_or_else(|_| Err(Error::failure("accepting", "a thread of the run panicked")))?;
            received.into_record()
        })
    }

    fn drive(&self, run: Run, server: SocketAddr, _: Option<IpAddr>) -> Result<EndpointRecord> {
        let (places, paths): (Vec<_>, Vec<_>) = self.paths.iter().cloned().unzip();
        let mut periodic = Periodic::await_first(self.rules, run, places);
        let how = How {
            targets: &[server],
            keys: None,
            beliefs: None,
            congestion: Some(&run.plan.congestion),
            late: self.rules.late,
        };
        sending::send(&paths, &how, &mut periodic, run.clock, run.stop).map_err(Error::reported)?;
        Ok(periodic.into_record())
    }
}

/// Receives over the first connection and those that follow.
fn receive(run: Run, join: &mpsc::Receiver<Joined>) -> Result<Received> {
    let mut objects = Received::default();
    while !run.has_ended() {
        if let Ok(first) = join.recv_timeout(POLL_INTERVAL) {
            receiving::receive(first, join, &mut objects, run.clock, run.stop).map_err(Error::reported)?;
            break;
        }
    }
    Ok(objects)
}

/// Accepts connections, and passes each on after its greeting.
fn accept_all(run: Run, listener: &Socket, sender: mpsc::Sender<Joined>, is_over: &AtomicBool) -> Result<()> {
    std::thread::scope(|scope| {
        while !is_over.load(Ordering::Relaxed) && !run.has_ended() {
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    run.wait(listener, PollFlags::POLLIN)?;
                    continue;
                }
                Err(error) => return Err(system("accepting the vehicle's connections", SEE_LOG)(error)),
            };
            let sender = sender.clone();
            scope.spawn(move || {
                // Without a greeting its sender has replaced it.
                if let Ok((_, joined)) = receiving::greet(socket, None, run.clock, is_over) {
                    drop(sender.send(joined));
                }
            });
        }
        Ok(())
    })
}
