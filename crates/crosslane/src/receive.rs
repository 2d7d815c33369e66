//! `crosslane receive`: stores the files of `crosslane send` in a folder.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::Scope;

use crosslane_core::transfer::multipath::frame;

use nix::poll::{PollFd, PollFlags};
use serde_json::json;
use socket2::{SockAddr, Socket};

use crate::agent::ready;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::output;
use crate::transfer::connection::{self, POLL_INTERVAL};
use crate::transfer::folder::{Folder, Kept, Notice, Parts};
use crate::transfer::multipath::keys::ReceiverKeys;
use crate::transfer::multipath::receiving::{self, Joined, Sender};
use crate::transfer::receiving::Incomplete;
use crate::transfer::{PORT, TransferError};
use crate::transfer_keys::{self, Clear};
use crate::tunnel::security::{PrivateKey, PublicKey};

mod places;

use places::{Places, Rejected, Reports};

/// Failed greetings that are reported in 10 s; they differ, and each may name a remedy.
const MAX_FAILED_GREETINGS: u32 = 10;
/// Messages about objects in 10 s, of all senders.
const MAX_OBJECT_MESSAGES: u32 = 100;
/// Longest wait for the reader of the results, and for one that did not read the result before.
const READER_WAIT_MS: [u16; 2] = [1000, 10];

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Folder for the files. A file replaces an existing one of its name; incomplete files end in `.part`.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Address and port to listen on. `0.0.0.0:7411` or `[::]:7411` listens on all addresses of this machine.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    /// File of this receiver's private key (`crosslane keygen --out FILE`); requires --sender-key.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Public key of a sender that may store files here. May be repeated.
    #[arg(long, value_name = "KEY")]
    sender_key: Vec<PublicKey>,
    /// `none`: without keys. Any host that can connect may store files, and any host on the way may read them.
    #[arg(long, value_name = "none", conflicts_with_all = ["key", "sender_key"])]
    encryption: Option<Clear>,
    /// End after the first sender, and reject others meanwhile; success if all its files are stored.
    #[arg(long)]
    once: bool,
    /// Print the results as JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// Receives until SIGINT or SIGTERM.
///
/// # Errors
/// The folder is not writable, or the address cannot be listened on.
pub fn run(options: &Options) -> Result<ExitCode> {
    check_folder(&options.into)?;
    let keys = keys(options)?;
    let message = |cause: TransferError| Error::message(cause.to_string(), 1);
    let listener = connection::listen(options.listen).map_err(message)?;
    let failed = |cause| Error::failure(format!("listening on {}", options.listen), cause);
    listener.set_nonblocking(true).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?.as_socket().unwrap_or(options.listen);
    let stop = interrupt::listen()?;
    output::message(format_args!("listening on {at}"));
    ready::notify(ready::READY);
    let server = Server {
        options,
        keys: keys.as_ref(),
        clock: Clock::start(),
        stop: &stop,
        places: Places::new(),
        rejections: Reports::new(1).into(),
        failed_greetings: Reports::new(MAX_FAILED_GREETINGS).into(),
        object_messages: Reports::new(MAX_OBJECT_MESSAGES).into(),
        is_unread: AtomicBool::new(false),
        parts: Parts::new(&options.into),
        transfers: Mutex::default(),
        has_ended: AtomicBool::new(false),
        failures: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| server.serve(scope, &listener)).map_err(failed)?;
    let failures = server.failures.load(Ordering::Relaxed);
    Ok(if options.once && failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The keys; `None`: in the clear.
fn keys(options: &Options) -> Result<Option<ReceiverKeys>> {
    match (&options.key, options.sender_key.as_slice(), options.encryption) {
        (None, [], Some(Clear::None)) => Ok(None),
        (Some(_), [], _) => Err(transfer_keys::missing("--sender-key", "the public key of a sender")),
        (None, ..) => Err(transfer_keys::missing("--key", "this receiver's private key")),
        (Some(file), senders, _) => {
            let own = PrivateKey::read(file)?;
            Ok(Some(ReceiverKeys { own, senders: senders.iter().copied().collect() }))
        }
    }
}

fn check_folder(folder: &Path) -> Result<()> {
    let attempt = format!("opening the folder {}", folder.display());
    let writeable = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
    let remedy = "give --into a folder that exists and can be written into";
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(Error::usage(attempt, "it is not a folder", remedy)),
        Ok(_) => nix::unistd::access(folder, writeable).map_err(|cause| Error::usage(attempt, cause, remedy)),
        Err(cause) => Err(Error::usage(attempt, cause, remedy)),
    }
}

struct Server<'a> {
    options: &'a Options,
    keys: Option<&'a ReceiverKeys>,
    clock: Clock,
    stop: &'a AtomicBool,
    places: Places,
    rejections: Mutex<Reports>,
    failed_greetings: Mutex<Reports>,
    object_messages: Mutex<Reports>,
    /// The reader of the results did not read the last one.
    is_unread: AtomicBool,
    parts: Parts,
    /// The transfers in progress: where further connections of each go.
    transfers: Mutex<BTreeMap<Sender, mpsc::Sender<Joined>>>,
    /// The only transfer has ended.
    has_ended: AtomicBool,
    /// Number of objects not stored and of connections that broke.
    failures: AtomicUsize,
}

impl Server<'_> {
    fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, listener: &Socket) -> io::Result<()> {
        let mut failing = false;
        while !(self.stop.load(Ordering::Relaxed) || self.has_ended.load(Ordering::Relaxed)) {
            let (socket, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    let _ = connection::wait(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], POLL_INTERVAL);
                    continue;
                }
                // The sender closed the connection before it was accepted.
                Err(cause) if matches!(cause.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
                Err(cause) => {
                    if !std::mem::replace(&mut failing, true) {
                        output::message(format_args!("while accepting a sender: {cause}; connected senders continue"));
                    }
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            failing = false;
            let address = from.as_socket().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.ip());
            let started = match self.places.take(address) {
                Ok(place) => std::thread::Builder::new().spawn_scoped(scope, move || {
                    let _place = place;
                    self.greet(socket, &from);
                }),
                Err(why) => match self.reject(&from, &why) {
                    Some(rejected) => std::thread::Builder::new().spawn_scoped(scope, move || {
                        let _rejected = rejected;
                        let mut begin = Vec::new();
                        frame::welcome(&mut begin, 0);
                        connection::reject(&socket, &connection::refusal(begin, &why));
                    }),
                    None => continue,
                },
            };
            // Without a thread, the connection is closed.
            if let Err(cause) = started {
                output::message(format_args!("while serving a sender: {cause}; connected senders continue"));
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    fn reject(&self, from: &SockAddr, why: &str) -> Option<Rejected<'_>> {
        self.report_limited(&self.rejections, format!("{} is rejected: {why}", name(from)));
        self.places.reject()
    }

    /// Any host can cause such a message.
    fn report_limited(&self, reports: &Mutex<Reports>, sentence: String) {
        let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.admit(self.clock.now(), sentence).into_iter().for_each(output::message);
    }

    /// Begins the transfer of a connection, or passes it to the one that it belongs to.
    fn greet(&self, socket: Socket, from: &SockAddr) {
        let from = name(from);
        // Without keep-alive, a vanished sender would keep its place.
        drop(connection::keep_alive(&socket));
        let (sender, joined) = match receiving::greet(socket, self.keys, self.clock, self.stop) {
            Ok(greeted) => greeted,
            Err(_) if self.stop.load(Ordering::Relaxed) => return,
            Err(fault) => return self.report_limited(&self.failed_greetings, format!("from {from}: {fault}")),
        };
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let joined = match transfers.get(&sender) {
            Some(transfer) => match transfer.send(joined) {
                Ok(()) => return,
                Err(mpsc::SendError(joined)) => joined,
            },
            None => joined,
        };
        let is_taken = !transfers.is_empty() || self.has_ended.load(Ordering::Relaxed);
        if self.options.once && is_taken {
            drop(transfers);
            return joined.reject("it serves one sender only; start it without --once");
        }
        let (more, join) = mpsc::channel();
        transfers.insert(sender, more);
        drop(transfers);
        self.receive(joined, &join, &from);
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner).remove(&sender);
        self.has_ended.store(self.options.once, Ordering::Relaxed);
    }

    fn receive(&self, first: Joined, join: &mpsc::Receiver<Joined>, from: &str) {
        let mut folder = Folder::new(&self.parts, |notice| match notice {
            Notice::Resumed(name, text) => {
                let sentence = format!("while receiving {} from {from}: {text}", shown(&name));
                self.report_limited(&self.object_messages, sentence);
            }
            Notice::Ended(kept) => self.report(from, &kept),
        });
        if let Err(fault) = receiving::receive(first, join, &mut folder, self.clock, self.stop) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            output::message(format_args!("from {from}: {fault}"));
        }
    }

    fn report(&self, from: &str, kept: &Kept) {
        let file = kept.file.as_ref().map(|file| file.display().to_string().replace(char::is_control, "?"));
        let name = shown(&kept.name);
        let why = kept.incomplete.map(|incomplete| reason(incomplete, &kept.text));
        if why.is_some() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let line = match &why {
            _ if self.options.json => {
                let outcome = if why.is_none() { "stored" } else { "partial" };
                json!({ "from": from, "name": kept.name, "size_bytes": kept.size_bytes, "bytes": kept.bytes,
                        "outcome": outcome, "reason": why, "file": file })
                .to_string()
            }
            None => format!("{name}  {} bytes  from {from}  stored", kept.bytes),
            Some(why) => {
                let remainder =
                    file.map_or_else(|| "nothing was kept".into(), |file| format!("the received part is in {file}"));
                let sentence = format!("while receiving {name} from {from}: {why}; {remainder}");
                return self.report_limited(&self.object_messages, sentence);
            }
        };
        let wait_ms = READER_WAIT_MS[usize::from(self.is_unread.load(Ordering::Relaxed))];
        let printed = output::print_within(wait_ms, "printing the result", &(line + "\n"));
        self.is_unread.store(matches!(printed, Ok(false)), Ordering::Relaxed);
        let fault = match printed {
            Ok(true) => return,
            Ok(false) => "while printing the result: its reader does not read".to_owned(),
            Err(fault) => fault.to_string(),
        };
        output::message(format_args!("{fault}; the receiver continues"));
    }
}

/// A name without control characters.
fn shown(name: &str) -> String {
    name.replace(char::is_control, "?")
}

fn name(from: &SockAddr) -> String {
    from.as_socket().map_or_else(|| "an unknown address".to_owned(), |address| address.to_string())
}

fn reason(incomplete: Incomplete, text: &str) -> String {
    match incomplete {
        Incomplete::Abandoned(why) => format!("the sender abandoned it: {}", why.words()),
        Incomplete::Differs => "the received bytes differ from those sent".into(),
        Incomplete::Ended => "the connection ended before it was complete".into(),
        Incomplete::Refused => text.to_owned(),
    }
}
