//! The agent's side of the socket. The agent's loop polls it and waits for no client.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use crosslane_core::agent::Agent;
use crosslane_core::demand::{Admission, Object};
use crosslane_core::tunnel::Mode;
use serde::Serialize;
use tokio::net::UnixStream;

use super::demand_table::DemandTable;
use super::listener::{Listener, listen};
use super::protocol::{
    AGENTS, AdmissionReport, AgentRequest, Inbox, MAX_CLIENTS, MAX_LINE_BYTES, READ_BYTES, RESERVED_CLIENTS, Reply,
    Request, flush, line, read_request, tunnel_name,
};
use super::report::Report;
use super::status::Tunnels;
pub use super::trust::Groups;
use super::trust::{Trust, trust};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// The attempt named by every rejection.
const ATTEMPT: &str = "requesting from the agent";
/// A client is dropped at this check at which it has read nothing of an answer since the last one.
const MAX_UNREAD_CHECKS: u8 = 5;

/// Listens, and stores each client's open objects.
pub struct Server {
    listeners: Vec<Listener>,
    /// Also after the tunnel has been started again.
    listens_for_tunnel: bool,
    clock: Clock,
    groups: Groups,
    accepts_demands: bool,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// The client that was answered last: the others are before it now.
    last: u64,
    table: DemandTable,
}

/// Result of reading from the clients.
#[derive(Debug, Default)]
pub struct Update {
    /// An object was added or removed.
    pub demand_changed: bool,
    /// A request to [answer](Server::answer): what a client requests at once is answered once.
    pub requests: Vec<TunnelRequest>,
    /// A request about the agent to [answer](Server::answer_agent).
    pub questions: Vec<Question>,
    /// Errors in what was received, a sentence each.
    pub faults: Vec<String>,
}

/// A client requests the tunnel's status.
#[derive(Debug)]
pub struct TunnelRequest {
    client: u64,
    /// The mode to set before.
    pub mode: Option<Mode>,
}

/// A client has a request about the agent.
#[derive(Debug)]
pub struct Question {
    client: u64,
    /// The request.
    pub request: AgentRequest,
}

impl Server {
    /// A server that does not listen yet.
    pub fn new(clock: Clock, groups: Groups) -> Server {
        let (listeners, clients, table) = (Vec::new(), BTreeMap::new(), DemandTable::default());
        Server {
            listeners,
            listens_for_tunnel: false,
            clock,
            groups,
            accepts_demands: false,
            clients,
            next: 0,
            last: 0,
            table,
        }
    }

    /// Listens for requests about this agent, at a name of the network namespace with its process id.
    ///
    /// # Errors
    /// Another process listens there.
    pub fn listen_as_agent(&mut self) -> Result<()> {
        let name = format!("{AGENTS}{}", std::process::id());
        self.listen(&name, "end the process that listens at this name; the agent works without `crosslane status`")
    }

    /// Replaces the groups for the clients to come.
    pub fn set_groups(&mut self, groups: Groups) {
        self.groups = groups;
    }

    /// Listens for demand at a name as in `service.demands`. Must be called within a runtime with I/O, as the next.
    ///
    /// # Errors
    /// One error message with the name and the remedy.
    pub fn listen_for_demands(&mut self, name: &str) -> Result<()> {
        let remedy = "end the process that listens there, or set service.demands to a free name in an existing folder";
        self.listen(name, remedy)?;
        self.accepts_demands = true;
        Ok(())
    }

    /// Listens for requests to the tunnel with this interface, or to the tunnels to roadside units.
    ///
    /// # Errors
    /// Another process listens there.
    pub fn listen_for_tunnel(&mut self, interface: &str) -> Result<()> {
        if !self.listens_for_tunnel {
            let remedy =
                "end the process that listens at this name; the tunnel works without `crosslane tunnel` meanwhile";
            self.listen(&tunnel_name(interface), remedy)?;
            self.listens_for_tunnel = true;
        }
        Ok(())
    }

    fn listen(&mut self, name: &str, remedy: &str) -> Result<()> {
        let failed = |cause| Error::failure(format!("listening on {name}"), cause).with_remedy(remedy);
        self.listeners.push(listen(name, self.groups.senders).map_err(failed)?);
        Ok(())
    }

    /// The next update. Safe to cancel.
    pub async fn next(&mut self) -> Update {
        poll_fn(|context| self.poll(context)).await
    }

    /// Reads the clients' lines, and accepts and removes clients. Of several clients with a request one is read, so that
    /// many of them hold up nothing longer than one: the next call begins with the next client.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        let mut update = Update::default();
        let mut quiet = true;
        let (before, after): (Vec<u64>, Vec<u64>) = self.clients.keys().partition(|client| **client <= self.last);
        for client in after.into_iter().chain(before) {
            match self.clients.get_mut(&client).map(|of| of.poll(context)) {
                Some(Poll::Ready(Some(lines))) => self.receive(client, &lines, &mut update),
                Some(Poll::Ready(None)) => self.remove(client, &mut update),
                Some(Poll::Pending) | None => continue,
            }
            quiet = false;
            if !update.requests.is_empty() || !update.questions.is_empty() {
                self.last = client;
                break;
            }
        }
        // Afterwards, since those that have gone leave room.
        quiet &= !self.accept(context, &mut update);
        if quiet { Poll::Pending } else { Poll::Ready(update) }
    }

    /// Drops the clients that do not read their answers, so that they take no place from others. To be called once a
    /// second.
    pub fn drop_slow(&mut self) -> Update {
        let mut update = Update::default();
        let clients = self.clients.iter_mut();
        let slow: Vec<u64> = clients.filter_map(|(id, client)| client.is_too_slow().then_some(*id)).collect();
        for client in slow {
            update.faults.push(format!("while {ATTEMPT}: the client does not read its answer; read each answer"));
            self.remove(client, &mut update);
        }
        update
    }

    /// The open objects of all clients; none if no demand is accepted.
    pub fn demand(&mut self) -> Option<Vec<Object>> {
        self.accepts_demands.then(|| self.table.demand())
    }

    /// Passes on whether an object can be delivered in time.
    pub fn admit(&mut self, admission: &Admission) {
        let Some((client, number)) = self.table.owner(admission.number) else { return };
        let predicted_ns = admission.best.map(|best| self.clock.origin_ns().saturating_add(best.as_nanos()));
        let report = AdmissionReport { number, predicted_ns, can_be_met: admission.can_be_met() };
        if let Some(client) = self.clients.get_mut(&client) {
            client.send(&Reply::Admission(report));
        }
    }

    /// Sends each client what has changed for it, if demand is accepted.
    pub fn report(&mut self, agent: &Agent) {
        if self.clients.is_empty() || !self.accepts_demands {
            return;
        }
        let backlog = agent.backlog_bytes();
        let states = agent.paths().map(|(name, _, state)| (name.to_string(), state.name().to_string())).collect();
        let states = Reply::States(states);
        for (id, client) in &mut self.clients {
            let share = self.table.share(*id, backlog).map(Reply::BacklogBytes);
            client.report(share, &states);
        }
    }

    /// Sends the status, or why the request is rejected. The client may have gone.
    pub fn answer(&mut self, request: &TunnelRequest, status: Result<Tunnels>) {
        self.send(request.client, status);
    }

    /// Sends the report, or why the request is rejected. The client may have gone.
    pub fn answer_agent(&mut self, question: &Question, report: Result<Report>) {
        self.send(question.client, report);
    }

    fn send(&mut self, client: u64, reply: Result<impl Serialize>) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        match reply {
            Ok(reply) => client.send(&reply),
            Err(rejection) => client.send(&Reply::Error(rejection.to_string())),
        }
        client.unread.get_or_insert_default();
    }

    /// True if a connection was accepted.
    fn accept(&mut self, context: &mut Context<'_>, update: &mut Update) -> bool {
        let mut accepted = false;
        for _ in 0..MAX_CLIENTS {
            // After an error the loop polls again within a second.
            let next = |listener: &Listener| match listener.poll_accept(context) {
                Poll::Ready(Ok(stream)) => Some(stream),
                _ => None,
            };
            let Some(stream) = self.listeners.iter().find_map(next) else { break };
            accepted = true;
            update.faults.extend(self.admit_client(stream).err());
        }
        accepted
    }

    /// Adds a client.
    ///
    /// # Errors
    /// Why it was rejected, as it was sent.
    fn admit_client(&mut self, stream: UnixStream) -> Result<(), String> {
        let trust = trust(&stream, self.groups);
        let places = if trust == Ok(Trust::Owner) { MAX_CLIENTS + RESERVED_CLIENTS } else { MAX_CLIENTS };
        let (inbox, outbox) = (Inbox::default(), Vec::new());
        let (backlog, states, unread) = (None, None, None);
        let mut client = Client { stream, trust: Trust::Viewer, inbox, outbox, backlog, states, unread };
        client.trust = trust.map_err(|user| {
            let cause =
                format!("{user} is neither root, nor the agent's, nor of service.demands_group or service.view_group");
            client.reject(cause, "run this program as one of them, as with `sudo`")
        })?;
        if self.clients.len() >= places {
            return Err(client.reject(format!("{places} clients are connected"), "end one of them"));
        }
        self.clients.insert(self.next, client);
        self.next += 1;
        Ok(())
    }

    fn receive(&mut self, client: u64, lines: &[Vec<u8>], update: &mut Update) {
        for line in lines {
            let Some(of) = self.clients.get_mut(&client) else { return };
            let rejection = match read_request(line, self.clock.origin_ns()) {
                Ok(Request::Demand(_)) if !self.accepts_demands => {
                    ("it accepts no demand".into(), "set service.demands in its configuration")
                }
                Ok(Request::Demand(_)) if of.trust == Trust::Viewer => {
                    let cause = "only root, the agent's own user and service.demands_group may announce demands";
                    (cause.into(), "run this program as one of them")
                }
                Ok(Request::Demand(objects)) => {
                    update.demand_changed |= self.table.replace(client, objects);
                    continue;
                }
                Ok(request) if request.is_change() && of.trust != Trust::Owner => {
                    ("only root and the agent's own user may change it".into(), "run this command as one of them")
                }
                Ok(Request::Agent(_)) if update.questions.iter().any(|question| question.client == client) => {
                    ("a request before the answer to the last one".into(), "await each answer")
                }
                Ok(Request::Agent(request)) => {
                    update.questions.push(Question { client, request });
                    continue;
                }
                Ok(Request::Tunnel(mode)) => {
                    match update.requests.iter_mut().find(|request| request.client == client) {
                        Some(request) => request.mode = mode.or(request.mode),
                        None => update.requests.push(TunnelRequest { client, mode }),
                    }
                    continue;
                }
                Err(cause) => (cause, "write one line of JSON as in docs/reference/control-socket.md"),
            };
            update.faults.push(of.reject(rejection.0, rejection.1));
            return self.remove(client, update);
        }
    }

    fn remove(&mut self, client: u64, update: &mut Update) {
        self.clients.remove(&client);
        update.demand_changed |= self.table.remove(client);
    }
}

/// A client, and what was last sent to it.
struct Client {
    stream: UnixStream,
    trust: Trust,
    inbox: Inbox,
    outbox: Vec<u8>,
    backlog: Option<Reply>,
    states: Option<Reply>,
    /// Of an answer that may wait: bytes at the last check, and the number of checks since the client read some.
    unread: Option<(usize, u8)>,
}

impl Client {
    /// Sends what waits, and returns the lines received; `None` if the client is gone.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Vec<u8>>>> {
        while !self.outbox.is_empty() && self.stream.poll_write_ready(context).is_ready() {
            match self.stream.try_write(&self.outbox) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.outbox.clear(),
            }
        }
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

    /// Sends what has changed. While the client does not read, nothing is added, so
    /// that it finds the newest state when it does.
    fn report(&mut self, share: Option<Reply>, states: &Reply) {
        flush(&self.stream, &mut self.outbox);
        if !self.outbox.is_empty() {
            return;
        }
        if let Some(share) = share.filter(|share| self.backlog.as_ref() != Some(share)) {
            self.send(&share);
            self.backlog = Some(share);
        }
        if self.states.as_ref() != Some(states) {
            self.send(states);
            self.states = Some(states.clone());
        }
    }

    /// Whether an answer waits, and the client has read nothing for several checks. What is sent unrequested, to a
    /// sender that announces demands, may wait as long as it likes.
    fn is_too_slow(&mut self) -> bool {
        let waiting = self.outbox.len();
        self.unread = self.unread.filter(|_| waiting > 0);
        let Some((before, checks)) = &mut self.unread else { return false };
        *checks = if *before == waiting { *checks + 1 } else { 1 };
        *before = waiting;
        *checks >= MAX_UNREAD_CHECKS
    }

    /// A client that reads nothing and requests continuously misses replies.
    fn send(&mut self, reply: &impl Serialize) {
        if self.outbox.len() < MAX_LINE_BYTES {
            self.outbox.extend(line(reply));
        }
        flush(&self.stream, &mut self.outbox);
    }

    /// Sends the reason of a rejection, and returns it.
    fn reject(&mut self, cause: impl Display, remedy: &str) -> String {
        let sentence = format!("while {ATTEMPT}: {cause}; {remedy}");
        self.send(&Reply::Error(sentence.clone()));
        sentence
    }
}
