//! `crosslane receive`: takes what `crosslane send` sends into a folder.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use socket2::{SockAddr, Socket};

use crate::agent::ready;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::output;
use crate::transfer::folder::{Folder, Kept};
use crate::transfer::receiving::{self, Left};
use crate::transfer::{PORT, TransferError, connection};

mod places;

use places::{Places, Rejected};

/// Longest wait before the order to stop is looked at again.
const NAP: Duration = Duration::from_millis(50);

/// What the command takes.
#[derive(clap::Args)]
pub struct Options {
    /// Folder for the files. One that is there is replaced by one of its name; what is not complete ends in `.part`.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Address and port to listen on. Whoever reaches it may store files: nothing is encrypted, and nobody is asked
    /// who he is. `0.0.0.0:7411` or `[::]:7411` are all addresses of this machine.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    /// End after the first sender; success if all that he offered is stored.
    #[arg(long)]
    once: bool,
    /// Print the results as JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// Receives until SIGINT or SIGTERM.
///
/// # Errors
/// The folder cannot be written into, or the address not be listened on.
pub fn run(options: &Options) -> Result<ExitCode> {
    check_folder(&options.into)?;
    let told = |cause: TransferError| Error::message(cause.to_string(), 1);
    let listener = connection::listen(options.listen).map_err(told)?;
    let failed = |cause| Error::failure(format!("listening on {}", options.listen), cause);
    listener.set_nonblocking(true).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?.as_socket().unwrap_or(options.listen);
    let stop = interrupt::listen()?;
    eprintln!("crosslane: listening on {at}");
    ready::notify_ready();
    let hall =
        Inbox { options, clock: Clock::start(), stop: &stop, places: Places::new(), lacking: AtomicUsize::new(0) };
    std::thread::scope(|scope| hall.serve(scope, &listener)).map_err(failed)?;
    let lacking = hall.lacking.load(Ordering::Relaxed);
    Ok(if options.once && lacking > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn check_folder(folder: &Path) -> Result<()> {
    let attempt = format!("opening the folder {}", folder.display());
    let writeable = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
    let remedy = "give --into a folder that exists and can be written into";
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(Error::usage(attempt, "it is no folder", remedy)),
        Ok(_) => nix::unistd::access(folder, writeable).map_err(|cause| Error::usage(attempt, cause, remedy)),
        Err(cause) => Err(Error::usage(attempt, cause, remedy)),
    }
}

/// Where senders come and go.
struct Inbox<'a> {
    options: &'a Options,
    clock: Clock,
    stop: &'a AtomicBool,
    places: Places,
    /// Objects not stored, and connections that broke.
    lacking: AtomicUsize,
}

impl Inbox<'_> {
    fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, listener: &Socket) -> io::Result<()> {
        let mut failing = false;
        while !self.stop.load(Ordering::Relaxed) {
            let (socket, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    let timeout = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
                    let _ = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], timeout);
                    continue;
                }
                // Who left before he was let in.
                Err(cause) if matches!(cause.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
                Err(cause) => {
                    if !std::mem::replace(&mut failing, true) {
                        eprintln!("crosslane: while accepting a sender: {cause}; those who are here go on");
                    }
                    std::thread::sleep(NAP);
                    continue;
                }
            };
            failing = false;
            if self.options.once {
                self.receive(&socket, &from);
                return Ok(());
            }
            let address = from.as_socket().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.ip());
            let begun = match self.places.take(address) {
                Ok(place) => std::thread::Builder::new().spawn_scoped(scope, move || {
                    let _place = place;
                    self.receive(&socket, &from);
                }),
                Err(why) => match self.turn_away(&from, &why) {
                    Some(seat) => std::thread::Builder::new().spawn_scoped(scope, move || {
                        let _seat = seat;
                        connection::turn_away(&socket, &why);
                    }),
                    None => continue,
                },
            };
            // Without a thread for it, the sender finds its connection closed.
            if let Err(cause) = begun {
                eprintln!("crosslane: while serving a sender: {cause}; those who are here go on");
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    fn turn_away(&self, from: &SockAddr, why: &str) -> Option<Rejected<'_>> {
        let (seat, is_time) = self.places.turn_away(self.clock.now());
        if is_time {
            eprintln!("crosslane: {} is turned away: {why}", name(from));
        }
        seat
    }

    fn receive(&self, socket: &Socket, from: &SockAddr) {
        let from = name(from);
        // Without it a sender that is gone without a word holds his place.
        drop(connection::keep_alive(socket));
        let mut folder = Folder::new(&self.options.into, |kept| self.tell(&from, &kept));
        if let Err(fault) = receiving::receive(socket, &mut folder, self.clock, self.stop) {
            self.lacking.fetch_add(1, Ordering::Relaxed);
            eprintln!("crosslane: from {from}: {fault}");
        }
    }

    fn tell(&self, from: &str, kept: &Kept) {
        let file = kept.file.as_ref().map(|file| file.display().to_string().replace(char::is_control, "?"));
        let name = kept.name.replace(char::is_control, "?");
        let why = kept.left.map(|left| reason(left, &kept.text));
        if why.is_some() {
            self.lacking.fetch_add(1, Ordering::Relaxed);
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
                let lies =
                    file.map_or_else(|| "nothing of it is kept".into(), |file| format!("what came lies in {file}"));
                eprintln!("crosslane: while receiving {name} from {from}: {why}; {lies}");
                return;
            }
        };
        // A reader that is gone costs no file.
        drop(output::print("printing the result", line + "\n"));
    }
}

fn name(from: &SockAddr) -> String {
    from.as_socket().map_or_else(|| "a stranger".to_owned(), |address| address.to_string())
}

fn reason(left: Left, text: &str) -> String {
    match left {
        Left::Abandoned(why) => format!("the sender gave it up, for {}", why.words()),
        Left::Differs => "what came differs from what was sent".into(),
        Left::Ended => "the connection ended before it was whole".into(),
        Left::Refused => text.to_owned(),
    }
}
