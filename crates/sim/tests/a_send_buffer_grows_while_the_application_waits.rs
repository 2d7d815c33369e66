//! Linux lets the send buffer follow the window only while the application waits for space in it (SOCK_NOSPACE,
//! `tcp_check_space`). One whose messages fit keeps the initial 46 kB (of MPTCP, and a page fragment), however large the window becomes.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_sim::transport::Protocol;

/// Bytes that the socket holds two seconds after the path has become silent.
fn held(protocol: Protocol, source: Source) -> u64 {
    let setup = Setup { protocol, ..Setup::new(&[TestPath::new(20.0, 20)], source) };
    let mut pair = Pair::new(setup, &[(5000, Action::Carry { path: 0, on: false })]);
    pair.run_until_ms(7000);
    pair.client.outstanding()
}

#[test]
fn a_send_buffer_grows_while_the_application_waits() {
    for protocol in [Protocol::Tcp, Protocol::Mptcp] {
        let fits = held(protocol, Source::Messages { bytes: 20_000, every_ms: 100 });
        let waits = held(protocol, Source::Bulk);
        println!("{protocol:?}: {fits} and {waits} bytes");
        assert!((20_000..70_000).contains(&fits), "{protocol:?}: {fits} bytes");
        assert!(waits > 200_000, "{protocol:?}: {waits} bytes");
    }
}
