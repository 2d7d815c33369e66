//! The agent's end.

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

/// Who reaches the socket's file: the agent's user and the group that may tell
/// demands.
const FILE_MODE: u32 = 0o660;

/// Listens, and knows what every sender has open.
pub struct Server {
    listener: UnixListener,
    _file: File,
    clock: Clock,
    unit_costs: Vec<f64>,
    group: Option<u32>,
    senders: BTreeMap<u64, Sender>,
    next: u64,
    book: DemandTable,
}

/// What came in.
#[derive(Debug, Default)]
pub struct Heard {
    /// An object came or went.
    pub changed: bool,
    /// What could not be used, a sentence each.
    pub faults: Vec<String>,
}

/// The [next news](Server::poll); never, without a server. Safe to cancel.
pub async fn news(server: Option<&mut Server>) -> Heard {
    match server {
        Some(server) => poll_fn(|context| server.poll(context)).await,
        None => pending().await,
    }
}

impl Server {
    /// Listens under a name as `service.demands` has it; `unit_costs` are in the
    /// order of the paths, `group` may tell demands beside root and this user.
    /// Must be called within a runtime with I/O.
    ///
    /// # Errors
    /// Names the place and what can be done.
    pub fn open(name: &str, clock: Clock, unit_costs: Vec<f64>, group: Option<u32>) -> Result<Server> {
        let (listener, file) = listen(name, group).map_err(|cause| {
            Error::failure(format!("listening for demands on {name}"), cause)
                .with_remedy("end who listens there, or set service.demands to a free name in a folder that is there")
        })?;
        let (senders, book) = (BTreeMap::new(), DemandTable::default());
        Ok(Server { listener, _file: file, clock, unit_costs, group, senders, next: 0, book })
    }

    /// Takes what senders told, and who came and went.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Heard> {
        let mut heard = Heard::default();
        let mut quiet = !self.accept(context, &mut heard);
        let senders: Vec<u64> = self.senders.keys().copied().collect();
        for sender in senders {
            match self.senders.get_mut(&sender).map(|of| of.read(context)) {
                Some(Poll::Ready(Some(lines))) => self.take(sender, &lines, &mut heard),
                Some(Poll::Ready(None)) => self.dismiss(sender, &mut heard),
                Some(Poll::Pending) | None => continue,
            }
            quiet = false;
        }
        if quiet { Poll::Pending } else { Poll::Ready(heard) }
    }

    /// What all senders have open.
    pub fn demand(&mut self) -> Demand {
        self.book.demand(&self.unit_costs)
    }

    /// Passes on whether an object can be had in time.
    pub fn admit(&mut self, admission: &Admission) {
        let Some((sender, number)) = self.book.owner(admission.number) else { return };
        let predicted_ns = admission.best.map(|best| self.clock.origin_ns().saturating_add(best.as_nanos()));
        let judged = AdmissionReport { number, predicted_ns, can_be_met: admission.can_be_met() };
        if let Some(sender) = self.senders.get_mut(&sender) {
            sender.say(&Reply::Admission(judged));
        }
    }

    /// Tells each sender what is new to it.
    pub fn tell(&mut self, agent: &Agent) {
        if self.senders.is_empty() {
            return;
        }
        let backlog = agent.backlog_bytes();
        let states = agent.paths().map(|(name, _, state)| (name.to_string(), state.name().to_string())).collect();
        let states = Reply::States(states);
        for (id, sender) in &mut self.senders {
            let share = self.book.share(*id, backlog).map(Reply::BacklogBytes);
            sender.tell(share, &states);
        }
    }

    /// True if somebody came.
    fn accept(&mut self, context: &mut Context<'_>, heard: &mut Heard) -> bool {
        let mut came = false;
        for _ in 0..MAX_SENDERS {
            let Poll::Ready(Ok((stream, _))) = self.listener.poll_accept(context) else { break };
            came = true;
            let trusted = trust::check(&stream, self.group);
            let mut sender = Sender::new(stream);
            if let Err(UnknownUser(user)) = trusted {
                let user = user.map_or("this user".into(), |user| format!("user {user}"));
                let cause = format!("{user} is neither root, nor the agent's, nor of service.demands_group");
                heard.faults.push(sender.refuse(cause, "run the sender as one of them"));
            } else if self.senders.len() < MAX_SENDERS {
                self.senders.insert(self.next, sender);
                self.next += 1;
            } else {
                heard.faults.push(sender.refuse(format!("{MAX_SENDERS} senders are connected"), "end one of them"));
            }
        }
        came
    }

    fn take(&mut self, sender: u64, lines: &[Vec<u8>], heard: &mut Heard) {
        for line in lines {
            match read_demand(line, self.clock.origin_ns()) {
                Ok(objects) => heard.changed |= self.book.tell(sender, objects),
                Err(cause) => {
                    let remedy = "write one line of JSON as docs/formats.md has it";
                    let said = self.senders.get_mut(&sender).map(|of| of.refuse(cause, remedy));
                    heard.faults.extend(said);
                    return self.dismiss(sender, heard);
                }
            }
        }
    }

    fn dismiss(&mut self, sender: u64, heard: &mut Heard) {
        self.senders.remove(&sender);
        heard.changed |= self.book.leave(sender);
    }
}

/// A sender, and what it has been told.
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

    /// The lines that came in; `None` if it is gone.
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

    /// Says what differs from what it was told. While it does not read, nothing
    /// new is said, so that it finds the newest when it does.
    fn tell(&mut self, share: Option<Reply>, states: &Reply) {
        self.flush();
        if !self.outbox.is_empty() {
            return;
        }
        if share.is_some() && share != self.backlog {
            share.iter().for_each(|share| self.say(share));
            self.backlog = share;
        }
        if self.states.as_ref() != Some(states) {
            self.say(states);
            self.states = Some(states.clone());
        }
    }

    /// One that reads nothing and brings up objects on and on misses replies.
    fn say(&mut self, reply: &Reply) {
        if self.outbox.len() < MAX_LINE_BYTES {
            self.outbox.extend(line(reply));
        }
        self.flush();
    }

    /// Says why it is not listened to, and returns the sentence.
    fn refuse(&mut self, cause: impl Display, remedy: &str) -> String {
        let sentence = format!("while telling a demand: {cause}; {remedy}");
        self.say(&Reply::Error(sentence.clone()));
        sentence
    }

    /// A sender that is gone shows when it is read.
    fn flush(&mut self) {
        if flush(&self.stream, &mut self.outbox).is_err() {
            self.outbox.clear();
        }
    }
}

/// The socket's file; gone when the server is.
struct File(Option<PathBuf>);

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            drop(fs::remove_file(file));
        }
    }
}

/// Whether an agent could listen under this name; what is made for that goes again.
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
        // Before it listens, nobody gets in by another mode.
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
    }
    socket.listen(MAX_SENDERS as i32)?;
    let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
    Ok((listener, file))
}

/// Removes the file of a socket at which nobody answers.
fn remove_stale(name: &str, address: &SockAddr) -> io::Result<()> {
    let taken = |cause| Err(io::Error::new(io::ErrorKind::AddrInUse, cause));
    if name.starts_with('@') {
        return taken("an agent listens there");
    }
    if !fs::symlink_metadata(name)?.file_type().is_socket() {
        return taken("this is a file and no socket");
    }
    match Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?.connect(address) {
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(name),
        _ => taken("an agent listens there"),
    }
}
