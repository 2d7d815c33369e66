//! Arbitrary netlink messages: events of the path manager, interfaces and
//! addresses, sockets, routes, stations of Wi-Fi.

use crosslane::netlink::{TcpInfo, diag, links, path_manager, path_routes, requests, wireless};

/// Reads one message.
pub fn run(bytes: &[u8]) {
    let faults = [
        path_manager::decode(bytes).err(),
        links::decode(bytes).err(),
        diag::decode(bytes).err(),
        path_routes::decode(bytes).err(),
        wireless::decode(bytes).err(),
        wireless::read_station(bytes).err(),
    ];
    for fault in faults.into_iter().flatten() {
        assert!(!fault.to_string().is_empty());
    }
    if let Ok(Some(event)) = requests::decode(bytes) {
        assert!(event.to_string().starts_with("type:"));
    }
    let _ = TcpInfo::parse(bytes);
}
