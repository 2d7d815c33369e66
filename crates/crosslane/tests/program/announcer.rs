//! A controller for one vehicle, which announces units.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crosslane::roadside::channel::{INITIATION_BYTES, respond};
use crosslane::testbed::Namespace;
use crosslane::tunnel::security::{PrivateKey, PublicKey};
use crosslane_core::roadside::messages::{Announcement, MAX_REPORT_BYTES, Report, Role, UnitEntry, VERSION};

/// Ends when dropped, with its connections.
pub struct Announcer {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// A controller at this address that serves the owner of `vehicle`.
    pub fn start(
        namespace: &Namespace,
        address: &str,
        (key, vehicle): (PrivateKey, PublicKey),
        units: Vec<UnitEntry>,
    ) -> Announcer {
        let listener = namespace.enter(|| TcpListener::bind(address).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let serve_all = move || {
            while !ended.load(Relaxed) {
                match listener.accept() {
                    // A vehicle that hangs up connects again.
                    Ok((stream, _)) => drop(serve(stream, &key, vehicle, &units, &ended)),
                    Err(_) => sleep(Duration::from_millis(20)),
                }
            }
        };
        Announcer { is_ended, thread: Some(thread::spawn(serve_all)) }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.is_ended.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(
    mut stream: TcpStream,
    key: &PrivateKey,
    vehicle: PublicKey,
    units: &[UnitEntry],
    is_ended: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut initiation = [0; INITIATION_BYTES];
    stream.read_exact(&mut initiation)?;
    let (peer, answer, mut sealer, mut opener) = respond(key, &initiation, MAX_REPORT_BYTES).unwrap();
    assert_eq!(peer, vehicle);
    stream.write_all(&answer)?;
    let hello = loop {
        let mut bytes = [0; 100];
        let length = stream.read(&mut bytes)?;
        opener.push(&bytes[..length]);
        if let Some(message) = opener.next().unwrap() {
            break Report::decode(message).unwrap();
        }
    };
    assert_eq!(hello, Report::Hello { version: VERSION, role: Role::Vehicle });
    let mut announcement = Announcement::Units(units.to_vec());
    while !is_ended.load(Relaxed) {
        let (mut plain, mut frames) = (Vec::new(), Vec::new());
        announcement.encode(&mut plain);
        sealer.seal(&plain, &mut frames).unwrap();
        stream.write_all(&frames)?;
        announcement = Announcement::Keepalive;
        sleep(Duration::from_millis(100));
    }
    Ok(())
}
