//! A controller as a process in a namespace, with two units and a vehicle in its configuration.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crosslane::controller::status::{Status, query_controller};
use crosslane::netlink::home::Owner;
use crosslane::roadside::link::{Follower, Link};
use crosslane::testbed::{Namespace, Wiring};
use crosslane::tun::Tun;
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::roadside::messages::{Report, Role};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::CROSSLANE;

pub const LISTEN: &str = "127.0.0.1:4761";
pub const HOME: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);
/// Station id of the vehicle.
pub const CAR: u32 = 7;

/// The gateway: a namespace with the backhaul 10.90.0.0/24, and the keys of all.
pub struct Gateway {
    pub namespace: Namespace,
    pub folder: TempDir,
    pub controller: PrivateKey,
    pub units: [PrivateKey; 2],
    pub car: PrivateKey,
    pub configuration: String,
    _backhaul: Tun,
}

impl Gateway {
    pub fn new() -> Gateway {
        let namespace = Namespace::new().unwrap();
        let backhaul = namespace.enter(|| {
            let backhaul = Tun::open("backhaul").unwrap();
            let mut wiring = Wiring::open().unwrap();
            wiring.bring_up("lo", 65_536, 1000).unwrap();
            wiring.bring_up("backhaul", 1500, 100).unwrap();
            let index = wiring.index("backhaul").unwrap();
            wiring.add_address(index, Ipv4Addr::new(10, 90, 0, 1), 24).unwrap();
            backhaul
        });
        let folder = TempDir::new().unwrap();
        let key = || PrivateKey::generate().unwrap();
        let (controller, units, car) = (key(), [key(), key()], key());
        controller.write(&folder.path().join("own.key")).unwrap();
        let mut gateway = Gateway {
            namespace,
            folder,
            controller,
            units,
            car,
            configuration: String::new(),
            _backhaul: backhaul.unwrap(),
        };
        gateway.configuration = format!(
            "listen = \"{LISTEN}\"\nkey = \"{key}\"\n[log]\nevents = \"{events}\"\n{}{}[[vehicle]]\nname = \"car\"\n\
             station = {CAR}\nkey = \"{car}\"\nhost = 7\nhome = \"{HOME}\"\n",
            unit(1, &gateway.units[0]),
            unit(2, &gateway.units[1]),
            key = gateway.folder.path().join("own.key").display(),
            events = gateway.folder.path().join("events.jsonl").display(),
            car = gateway.car.public(),
        );
        gateway.write(&gateway.configuration);
        gateway
    }

    /// Replaces the configuration file.
    pub fn write(&self, configuration: &str) {
        fs::write(self.folder.path().join("controller.toml"), configuration).unwrap();
    }

    /// Starts the controller and waits until it is ready.
    pub fn start(&self) -> Running {
        start(&self.namespace, self.folder.path())
    }

    /// Runs in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.enter(work).unwrap()
    }

    /// The status, if a controller runs.
    pub fn status(&self) -> Option<Status> {
        self.inside(|| query_controller().ok())
    }

    /// Waits until the status is as wanted.
    pub fn await_status(&self, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        for _ in 0..500 {
            if let Some(status) = self.status().filter(&is) {
                return status;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what} never: {:#?}", self.status())
    }

    /// Next hop of the route to the home address.
    pub fn next_hop(&self) -> Option<Ipv4Addr> {
        self.inside(|| {
            let routes = Wiring::open().unwrap().home_routes(Owner::Controller).unwrap();
            routes.into_iter().find(|route| route.to.addr() == HOME)?.hop.map(|hop| hop.via)
        })
    }

    pub fn follower(&self, key: &PrivateKey, role: Role) -> Follower {
        Follower { controller: LISTEN.into(), controller_key: self.controller.public(), key: key.clone(), role }
    }

    /// A connection of unit 1 or 2. Must be called in a runtime within the namespace.
    pub fn unit_link(&self, number: u8) -> Link {
        Link::start(self.follower(&self.units[usize::from(number) - 1], role(number)))
    }

    pub fn events(&self) -> String {
        fs::read_to_string(self.folder.path().join("events.jsonl")).unwrap_or_default()
    }
}

/// Starts the controller with `controller.toml` of a folder, and waits until it is ready.
pub fn start(namespace: &Namespace, folder: &Path) -> Running {
    let ready = folder.join("ready");
    drop(fs::remove_file(&ready));
    let socket = UnixDatagram::bind(&ready).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let stderr = folder.join("stderr");
    let mut command = Command::new(CROSSLANE);
    command.args(["controller", "--config", "controller.toml"]).current_dir(folder);
    command.env("NOTIFY_SOCKET", &ready).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&stderr).unwrap());
    let running = Running { child: namespace.spawn(&mut command).unwrap() };
    let mut buffer = [0; 20];
    let length = socket.recv(&mut buffer);
    let length = length.unwrap_or_else(|_| panic!("not ready: {}", fs::read_to_string(&stderr).unwrap()));
    assert_eq!(&buffer[..length], b"READY=1");
    running
}

/// A unit's part of the configuration.
pub fn unit(number: u8, key: &PrivateKey) -> String {
    let key = key.public();
    format!(
        "[[unit]]\nname = \"rsu{number}\"\nstation = 100{number}\nkey = \"{key}\"\naddress = \"10.80.0.1{number}\"\n\
         prefix = \"10.8{number}.0.0/24\"\nnext_hop = \"10.90.0.1{number}\"\n"
    )
}

/// What a unit says of itself.
pub fn role(number: u8) -> Role {
    Role::Unit { prefix: (Ipv4Addr::new(10, 80 + number, 0, 0), 24), address: next_hop(number) }
}

pub fn next_hop(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 90, 0, 10 + number)
}

/// A unit's report of the vehicle.
pub fn report(has_tunnel: bool, carries: bool) -> Report {
    Report::Vehicle { station: CAR, rssi_dbm: Some(-70.0), position: None, has_tunnel, carries }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A running controller; killed when dropped.
pub struct Running {
    pub child: Child,
}

impl Running {
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Ends it with SIGTERM.
    pub fn end(mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
