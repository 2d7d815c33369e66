//! The agent's side of the socket.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::task::{Context, Poll, ready};

use crosslane_core::agent::Agent;
use crosslane_core::demand::{Admission, Demand};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::table::DemandTable;
use super::trust::{self, UnknownUser};
use super::{
    AdmissionReport, Inbox, MAX_LINE_BYTES, MAX_SENDERS, READ_BYTES, Reply, address, flush, line, read_demand,
};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Mode of the socket's file: access for the agent's user and the group that may
/// send demand.
const FILE_MODE: u32 = 0o660;

/// Listens, and stores each sender's open objects.
pub struct Server {
    listener: UnixListener,
    _file: File,
    clock: Clock,
    unit_costs: Vec<f64>,
    group: Option<u32>,
    senders: BTreeMap<u64, Sender>,
    next: u64,
    table: DemandTable,
}

/// Result of reading from the senders.
#[derive(Debug, Default)]
pub struct DemandUpdate {
    /// An object was added or removed.
    pub changed: bool,
    /// Errors in what was received, a sentence each.
    pub faults: Vec<String>,
}

/// The [next update](Server::poll); pends forever without a server. Safe to cancel.
pub async fn next_update(server: Option<&mut Server>) -> DemandUpdate {
    match server {
        Some(server) => poll_fn(|context| server.poll(context)).await,
        None => pending().await,
    }
}

impl Server {
    /// Listens at a name as in `service.demands`; `unit_costs` are in the
    /// order of the paths, `group` may send demand besides root and this user.
    /// Must be called within a runtime with I/O.
    ///
    /// # Errors
    /// One error message with the name and the remedy.
    pub fn open(name: &str, clock: Clock, unit_costs: Vec<f64>, group: Option<u32>) -> Result<Server> {
        let (listener, file) = listen(name, group).map_err(|cause| {
            Error::failure(format!("listening for demands on {name}"), cause).with_remedy(
                "end the process that listens there, or set service.demands to a free name in an existing folder",
            )
        })?;
        let (senders, table) = (BTreeMap::new(), DemandTable::default());
        Ok(Server { listener, _file: file, clock, unit_costs, group, senders, next: 0, table })
    }

    /// Reads the senders' demand, and accepts and removes senders.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<DemandUpdate> {
        let mut update = DemandUpdate::default();
        let mut quiet = !self.accept(context, &mut update);
        let senders: Vec<u64> = self.senders.keys().copied().collect();
        for sender in senders {
            match self.senders.get_mut(&sender).map(|of| of.read(context)) {
                Some(Poll::Ready(Some(lines))) => self.receive(sender, &lines, &mut update),
                Some(Poll::Ready(None)) => self.remove(sender, &mut update),
                Some(Poll::Pending) | None => continue,
            }
            quiet = false;
        }
        if quiet { Poll::Pending } else { Poll::Ready(update) }
    }

    /// The open objects of all senders.
    pub fn demand(&mut self) -> Demand {
        self.table.demand(&self.unit_costs)
    }

    /// Passes on whether an object can be delivered in time.
    pub fn admit(&mut self, admission: &Admission) {
        let Some((sender, number)) = self.table.owner(admission.number) else { return };
        let predicted_ns = admission.best.map(|best| self.clock.origin_ns().saturating_add(best.as_nanos()));
        let report = AdmissionReport { number, predicted_ns, can_be_met: admission.can_be_met() };
        if let Some(sender) = self.senders.get_mut(&sender) {
            sender.send(&Reply::Admission(report));
        }
    }

    /// Sends each sender what has changed for it.
    pub fn report(&mut self, agent: &Agent) {
        if self.senders.is_empty() {
            return;
        }
        let backlog = agent.backlog_bytes();
        let states = agent.paths().map(|(name, _, state)| (name.to_string(), state.name().to_string())).collect();
        let states = Reply::States(states);
        for (id, sender) in &mut self.senders {
            let share = self.table.share(*id, backlog).map(Reply::BacklogBytes);
            sender.report(share, &states);
        }
    }

    /// True if a connection was accepted.
    fn accept(&mut self, context: &mut Context<'_>, update: &mut DemandUpdate) -> bool {
        let mut accepted = false;
        for _ in 0..MAX_SENDERS {
            let Poll::Ready(Ok((stream, _))) = self.listener.poll_accept(context) else { break };
            accepted = true;
            let trusted = trust::check(&stream, self.group);
            let mut sender = Sender::new(stream);
            if let Err(UnknownUser(user)) = trusted {
                let user = user.map_or("this user".into(), |user| format!("user {user}"));
                let cause = format!("{user} is neither root, nor the agent's, nor of service.demands_group");
                update.faults.push(sender.reject(cause, "run the sender as one of them"));
            } else if self.senders.len() < MAX_SENDERS {
                self.senders.insert(self.next, sender);
                self.next += 1;
            } else {
                update.faults.push(sender.reject(format!("{MAX_SENDERS} senders are connected"), "end one of them"));
            }
        }
        accepted
    }

    fn receive(&mut self, sender: u64, lines: &[Vec<u8>], update: &mut DemandUpdate) {
        for line in lines {
            match read_demand(line, self.clock.origin_ns()) {
                Ok(objects) => update.changed |= self.table.replace(sender, objects),
                Err(cause) => {
                    let remedy = "write one line of JSON as in docs/reference/control-socket.md";
                    let sentence = self.senders.get_mut(&sender).map(|of| of.reject(cause, remedy));
                    update.faults.extend(sentence);
                    return self.remove(sender, update);
                }
            }
        }
    }

    fn remove(&mut self, sender: u64, update: &mut DemandUpdate) {
        self.senders.remove(&sender);
        update.changed |= self.table.remove(sender);
    }
}

/// A sender, and what was last sent to it.
struct Sender {
    stream: UnixStream,
    inbox: Inbox,
    outbox: Vec<u8>,
    backlog: Option<Reply>,
    states: Option<Reply>,
}

impl Sender {
    fn new(stream: UnixStream) -> Sender {
        Sender { stream, inbox: Inbox::default(), outbox: Vec::new(), backlog: None, states: None }
    }

    /// The lines received; `None` if the sender is gone.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Vec<u8>>>> {
        loop {
            if ready!(self.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(None);
            }
            let mut buffer = [0; READ_BYTES];
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return Poll::Ready(None),
                Ok(length) => return Poll::Ready(Some(self.inbox.lines(&buffer[..length]))),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(None),
            }
        }
    }

    /// Sends what has changed. While the sender does not read, nothing is added, so
    /// that it finds the newest state when it does.
    fn report(&mut self, share: Option<Reply>, states: &Reply) {
        self.flush();
        if !self.outbox.is_empty() {
            return;
        }
        if share.is_some() && share != self.backlog {
            share.iter().for_each(|share| self.send(share));
            self.backlog = share;
        }
        if self.states.as_ref() != Some(states) {
            self.send(states);
            self.states = Some(states.clone());
        }
    }

    /// A sender that reads nothing and adds objects continuously misses replies.
    fn send(&mut self, reply: &Reply) {
        if self.outbox.len() < MAX_LINE_BYTES {
            self.outbox.extend(line(reply));
        }
        self.flush();
    }

    /// Sends the reason of a rejection, and returns it.
    fn reject(&mut self, cause: impl Display, remedy: &str) -> String {
        let sentence = format!("while sending a demand: {cause}; {remedy}");
        self.send(&Reply::Error(sentence.clone()));
        sentence
    }

    /// Errors are ignored: the next read shows whether the sender is gone.
    fn flush(&mut self) {
        if flush(&self.stream, &mut self.outbox).is_err() {
            self.outbox.clear();
        }
    }
}

/// The socket's file; removed when this is dropped.
struct File(Option<PathBuf>);

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            drop(fs::remove_file(file));
        }
    }
}

/// Checks that an agent could listen at this name; what is created for that is removed.
///
/// # Errors
/// The system's.
pub fn try_name(name: &str) -> io::Result<()> {
    bind(name).map(drop)
}

fn bind(name: &str) -> io::Result<(Socket, File)> {
    let address = address(name)?;
    let bind = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.bind(&address)?;
        Ok(socket)
    };
    let socket = bind().or_else(|cause: io::Error| {
        if cause.kind() != io::ErrorKind::AddrInUse {
            return Err(cause);
        }
        remove_stale(name, &address)?;
        bind()
    })?;
    Ok((socket, File((!name.starts_with('@')).then(|| name.into()))))
}

fn listen(name: &str, group: Option<u32>) -> io::Result<(UnixListener, File)> {
    let (socket, file) = bind(name)?;
    if let Some(path) = &file.0 {
        // No connection is possible before the socket listens, so none uses another mode.
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
    }
    socket.listen(MAX_SENDERS as i32)?;
    let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
    Ok((listener, file))
}

/// Removes the file of a socket without a listener.
fn remove_stale(name: &str, address: &SockAddr) -> io::Result<()> {
    let taken = |cause| Err(io::Error::new(io::ErrorKind::AddrInUse, cause));
    if name.starts_with('@') {
        return taken("an agent listens there");
    }
    if !fs::symlink_metadata(name)?.file_type().is_socket() {
        return taken("this is a file, not a socket");
    }
    match Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?.connect(address) {
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(name),
        _ => taken("an agent listens there"),
    }
}
