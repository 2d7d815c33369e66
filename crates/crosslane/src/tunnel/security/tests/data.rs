//! Encrypted, decrypted, modified and replayed data.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

#[test]
fn data_is_carried_in_both_directions_over_all_paths() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    for path in 0..PATHS as u8 {
        for counter in 0..3 {
            let there = carry(&ours, &gateway, BEGIN, path, b"there").unwrap();
            assert_eq!(there, Opened { path, counter });
            assert_eq!(carry(&theirs, &vehicle, BEGIN, path, &[7; 1400]).unwrap(), Opened { path, counter });
        }
    }
    assert_eq!(carry(&ours, &gateway, BEGIN, 0, b""), Ok(Opened { path: 0, counter: 3 }));
}

#[test]
fn replayed_data_is_dropped() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    let mut plain = Vec::new();
    for path in [0, 7, 15] {
        let [mut first, mut second] = [const { Vec::new() }; 2];
        ours.seal(path, b"first", &mut first).unwrap();
        ours.seal(path, b"second", &mut second).unwrap();
        assert!(theirs.open(&second, &mut plain).is_ok() && theirs.open(&first, &mut plain).is_ok());
        for datagram in [&first, &second] {
            assert_eq!(theirs.open(datagram, &mut plain), Err(RejectReason::Replayed));
            assert!(plain.is_empty());
        }
        // Its own message is rejected too.
        assert!(ours.open(&first, &mut plain).is_err());
    }
}

#[test]
fn every_bit_of_a_data_message_is_protected() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    let (mut datagram, mut plain) = (Vec::new(), Vec::new());
    ours.seal(2, b"payload", &mut datagram).unwrap();
    assert_eq!(datagram.len(), 7 + DATA_OVERHEAD_BYTES);
    for bit in 0..8 * datagram.len() {
        let mut flipped = datagram.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(theirs.open(&flipped, &mut plain).is_err(), "bit {bit}");
    }
    for length in 0..datagram.len() {
        assert!(theirs.open(&datagram[..length], &mut plain).is_err(), "{length} bytes");
    }
    assert!(theirs.open(&datagram, &mut plain).is_ok() && plain == b"payload");
}

#[test]
fn sealing_appends_to_a_buffer_and_an_error_leaves_it_unchanged() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    let mut buffer = b"before".to_vec();
    ours.seal(0, b"after", &mut buffer).unwrap();
    assert_eq!(ours.seal(16, b"x", &mut buffer), Err(RejectReason::NoSuchPath));
    assert_eq!(ours.seal(0, &[0; 65_484], &mut buffer), Err(RejectReason::TooLong));
    assert_eq!(buffer.len(), 6 + 5 + DATA_OVERHEAD_BYTES);
    let mut plain = vec![1; 3000];
    assert!(theirs.open(&buffer[6..], &mut plain).is_ok() && plain == b"after");
    let mut longest = Vec::new();
    ours.seal(0, &vec![3; 65_507 - DATA_OVERHEAD_BYTES], &mut longest).unwrap();
    assert!(theirs.open(&longest, &mut plain).is_ok());
}

#[test]
fn concurrent_threads_never_use_a_counter_twice() {
    const EACH: usize = 100_000;
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    let begin = Barrier::new(2);
    let seal_all = || {
        begin.wait();
        let seal_one = |_| {
            let mut datagram = Vec::new();
            ours.seal(1, b"", &mut datagram).unwrap();
            datagram
        };
        (0..EACH).map(seal_one).collect::<Vec<_>>()
    };
    let sealed: Vec<Vec<u8>> = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(seal_all));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let counters: BTreeSet<&[u8]> = sealed.iter().map(|datagram| &datagram[4..8]).collect();
    assert_eq!(counters.len(), 2 * EACH);
    assert!(theirs.open(&sealed[0], &mut Vec::new()).is_ok());
}

#[test]
fn only_one_of_two_concurrent_threads_opens_the_same_message() {
    let (mut vehicle, mut gateway) = endpoints();
    let (ours, theirs) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
    // Long messages, so that both threads run concurrently.
    let seal_one = |_| {
        let mut datagram = Vec::new();
        ours.seal(1, &[5; 60_000], &mut datagram).unwrap();
        datagram
    };
    let datagrams: Vec<Vec<u8>> = (0..500).map(seal_one).collect();
    let arrived = AtomicUsize::new(0);
    let opened: usize = thread::scope(|scope| {
        let open_all = || {
            let mut plain = Vec::new();
            let mut open_with_the_other = |(n, datagram): (usize, &Vec<u8>)| {
                arrived.fetch_add(1, Ordering::SeqCst);
                while arrived.load(Ordering::SeqCst) < 2 * (n + 1) {
                    thread::yield_now();
                }
                theirs.open(datagram, &mut plain).is_ok()
            };
            datagrams.iter().enumerate().filter(|&each| open_with_the_other(each)).count()
        };
        let threads = [(); 2].map(|()| scope.spawn(open_all));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(opened, datagrams.len());
}

proptest! {
    #[test]
    fn a_sealed_message_opens(path in 0..16u8, plain in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (mut vehicle, mut gateway) = endpoints();
        let (ours, _) = shake(&mut vehicle, &mut gateway, BEGIN, 0);
        prop_assert_eq!(carry(&ours, &gateway, BEGIN, path, &plain), Ok(Opened { path, counter: 0 }));
    }
}
