use std::thread::sleep;
use std::time::Duration;

use super::*;

fn pair(at: &str) -> (PathSocket, PathSocket) {
    let bind = || PathSocket::bind(at.parse().unwrap(), None).unwrap();
    (bind(), bind())
}

/// Receives until `count` datagrams have arrived.
fn received(socket: &PathSocket, count: usize) -> Vec<(SocketAddr, u8, Vec<u8>)> {
    let mut buffers = ReceiveBuffers::default();
    let mut got = Vec::new();
    for _ in 0..200 {
        match socket.receive(&mut buffers) {
            Ok(_) => got.extend(buffers.datagrams().map(|d| (d.from, d.tos, d.bytes.to_vec()))),
            Err(cause) => assert_eq!(cause.kind(), io::ErrorKind::WouldBlock),
        }
        if got.len() >= count {
            break;
        }
        sleep(Duration::from_millis(5));
    }
    got
}

#[test]
fn datagrams_sent_in_one_call_arrive_as_segmented_with_dscp_and_ecn() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let (from, to) = pair(at);
        let buffer: Vec<u8> = (0..40 * 1200 + 77).map(|at| (at / 100) as u8).collect();
        for segmentation in [true, false] {
            from.has_gso.store(segmentation, Ordering::Relaxed);
            assert_eq!(from.send((None, to.local()), 0xba, 1200, &buffer).unwrap(), 41);
            let got = received(&to, 41);
            let expected: Vec<_> = buffer.chunks(1200).map(|part| (from.local(), 0xba, part.to_vec())).collect();
            assert_eq!(got, expected, "{at}");
        }
    }
}

#[test]
fn many_single_datagrams_arrive_in_order() {
    let (from, to) = pair("127.0.0.1:0");
    for number in 0..50_u8 {
        from.send((None, to.local()), number & 3, 2000, &[number; 900]).unwrap();
    }
    let got = received(&to, 50);
    let expected: Vec<_> = (0..50).map(|number| (from.local(), number & 3, vec![number; 900])).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_dual_stack_socket_carries_both_families() {
    let gateway = PathSocket::bind("[::]:0".parse().unwrap(), None).unwrap();
    for (at, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let vehicle = PathSocket::bind(at.parse().unwrap(), None).unwrap();
        let to = SocketAddr::new(to.parse().unwrap(), gateway.local().port());
        vehicle.send((None, to), 0x29, 100, &[1; 300]).unwrap();
        let got = received(&gateway, 3);
        assert_eq!((got.len(), got[0].0, got[0].1), (3, vehicle.local(), 0x29));
        gateway.send((None, got[0].0), 0x2a, 100, &[2; 300]).unwrap();
        let back = received(&vehicle, 3);
        assert_eq!((back.len(), back[0].1), (3, 0x2a));
    }
}

#[test]
fn a_socket_bound_to_no_address_replies_from_the_address_that_received() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let gateway = PathSocket::bind(listen.parse().unwrap(), None).unwrap();
        let vehicle = PathSocket::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let queried = SocketAddr::new("127.0.0.7".parse().unwrap(), gateway.local().port());
        vehicle.send((None, queried), 0, 100, &[1; 100]).unwrap();
        let mut buffers = ReceiveBuffers::default();
        for _ in 0..200 {
            if gateway.receive(&mut buffers).is_ok() {
                break;
            }
            sleep(Duration::from_millis(5));
        }
        let (from, at) = buffers.datagrams().map(|d| (d.from, d.at)).next().unwrap();
        assert_eq!((from, at), (vehicle.local(), Some(queried.ip())));
        gateway.send((at, from), 0, 100, &[2; 100]).unwrap();
        assert_eq!(received(&vehicle, 1)[0].0, queried, "{listen}");
    }
}

#[test]
fn a_datagram_that_is_too_long_is_rejected() {
    let (from, to) = pair("127.0.0.1:0");
    // The longest that UDP can carry, and a byte more than that.
    assert_eq!(from.send((None, to.local()), 0, SEND_BYTES_MAX, &[0; SEND_BYTES_MAX]).unwrap(), 1);
    for (segment, bytes) in [(0, 10), (10, 0), (1, 65), (SEND_BYTES_MAX + 1, SEND_BYTES_MAX + 1)] {
        let error = from.send((None, to.local()), 0, segment, &vec![0; bytes]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn buffers_are_large_and_an_unknown_address_or_interface_is_reported() {
    let (socket, _) = pair("127.0.0.1:0");
    let got = [socket.socket.send_buffer_size().unwrap(), socket.socket.recv_buffer_size().unwrap()];
    assert!(got.iter().all(|bytes| *bytes > 100_000), "{got:?}");
    assert_eq!(socket.interface(), None);
    let error = PathSocket::bind("192.0.2.1:0".parse().unwrap(), None).unwrap_err().to_string();
    assert!(error.starts_with("while binding a UDP socket to 192.0.2.1:0: Cannot assign"), "{error}");
    assert!(error.ends_with("; give an address of this machine"), "{error}");
    let error = PathSocket::bind("127.0.0.1:0".parse().unwrap(), Some("nowhere0")).unwrap_err().to_string();
    assert!(error.ends_with("; give an interface of this machine"), "{error}");
    let error = PathSocket::bind(socket.local(), None).unwrap_err().to_string();
    assert!(error.ends_with("; choose another port"), "{error}");
}

#[test]
fn nothing_to_receive_does_not_block() {
    let (socket, _) = pair("127.0.0.1:0");
    let mut buffers = ReceiveBuffers::default();
    assert_eq!(socket.receive(&mut buffers).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(buffers.datagrams().count(), 0);
}
