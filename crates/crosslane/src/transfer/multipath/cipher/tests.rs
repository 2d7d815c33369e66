use proptest::prelude::*;
use socket2::{Domain, Socket, Type};

use super::super::keys::{Handshake, NOISE_1_BYTES, SenderKeys, respond};
use super::*;
use crate::tunnel::security::PrivateKey;

const PREFACE_BYTES: usize = 8;

fn keys() -> (PrivateKey, SenderKeys) {
    let receiver = PrivateKey::generate().unwrap();
    let keys = SenderKeys { own: PrivateKey::generate().unwrap(), receiver: receiver.public() };
    (receiver, keys)
}

/// The sender's side of a handshake whose answer is this.
fn finish(mut handshake: Handshake, answer: &[u8]) -> Result<Cipher, String> {
    let (near, far) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
    near.set_nonblocking(true).unwrap();
    assert_eq!(far.send(answer).unwrap(), answer.len());
    match handshake.read(&near, "trying").map_err(|fault| fault.to_string())? {
        true => handshake.finish("trying").map_err(|fault| fault.to_string()),
        false => Err("it waits".into()),
    }
}

fn pair() -> (Cipher, Cipher) {
    let (receiver, keys) = keys();
    let (handshake, wire) = Handshake::begin(&keys).unwrap();
    let (sender, answer, cipher) = respond(&receiver, wire[PREFACE_BYTES..].try_into().unwrap()).unwrap();
    assert_eq!(sender, keys.own.public());
    (finish(handshake, &answer).unwrap(), cipher)
}

fn sealed(cipher: &mut Cipher, plain: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    cipher.seal(plain, &mut records).unwrap();
    records
}

fn open(cipher: &mut Cipher, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; MAX_PART_BYTES + 100]);
    while !bytes.is_empty() {
        let room = cipher.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        cipher.fill(count);
        loop {
            match cipher.open(&mut buffer)? {
                0 => break,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_stream_arrives_whole_however_it_is_cut(
        parts in prop::collection::vec(0..100_000_usize, 1..8),
        cut in 1..300_000_usize,
    ) {
        let (mut sender, mut receiver) = pair();
        let parts: Vec<Vec<u8>> = parts.into_iter().map(|length| (0..length).map(|place| place as u8).collect()).collect();
        let stream: Vec<u8> = parts.iter().flat_map(|part| sealed(&mut sender, part)).collect();
        let arrived: Vec<u8> = stream.chunks(cut).flat_map(|bytes| open(&mut receiver, bytes).unwrap()).collect();
        prop_assert!(arrived == parts.concat());
    }

    #[test]
    fn no_bytes_cause_a_panic(noise in prop::collection::vec(any::<u8>(), NOISE_1_BYTES), records in prop::collection::vec(any::<u8>(), 0..600)) {
        let (receiver, _) = keys();
        prop_assert!(respond(&receiver, noise.as_slice().try_into().unwrap()).is_err());
        let (_, mut cipher) = pair();
        drop(open(&mut cipher, &records));
    }

    /// An answer of any bytes is refused, or waited for.
    #[test]
    fn no_answer_causes_a_panic(known in 0..9_usize, is_encrypted: bool, rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let (_, keys) = keys();
        let preface = if is_encrypted { b"XLANE\0\x01\x04" } else { b"XLANE\0\0\x04" };
        let answer = [&preface[..known.min(8)], &rest].concat();
        prop_assume!(!answer.is_empty());
        prop_assert!(finish(Handshake::begin(&keys).unwrap().0, &answer).is_err());
    }
}

#[test]
fn a_record_that_is_changed_repeated_exchanged_or_lost_does_not_open() {
    let (mut sender, _) = pair();
    let first = sealed(&mut sender, b"one");
    for byte in 0..first.len() {
        let (mut sender, mut receiver) = pair();
        let mut record = sealed(&mut sender, b"one");
        record[byte] ^= 1;
        // A longer record is waited for.
        assert!(open(&mut receiver, &record).map_or(true, |plain| plain.is_empty()), "byte {byte}");
    }
    let mix = |order: &[usize]| {
        let (mut sender, mut receiver) = pair();
        let records: Vec<Vec<u8>> = (0..3).map(|part| sealed(&mut sender, &[part; 100])).collect();
        let stream: Vec<u8> = order.iter().flat_map(|place| records[*place].clone()).collect();
        open(&mut receiver, &stream).map_err(|cause| cause.to_string())
    };
    assert!(mix(&[0, 1, 2]).is_ok());
    for order in [&[0, 0][..], &[1], &[0, 2], &[1, 0], &[0, 1, 0]] {
        assert_eq!(mix(order), Err("a record is forged, damaged or repeated".into()), "{order:?}");
    }
}

#[test]
fn a_record_of_a_wrong_length_is_no_reason_to_wait() {
    for length in [0, 16, MAX_PART_BYTES + 17, 65_535] {
        let (_, mut receiver) = pair();
        let fault = open(&mut receiver, &(length as u16).to_be_bytes()).unwrap_err();
        assert_eq!(fault.to_string(), "a record has a wrong length", "{length}");
    }
}

#[test]
fn every_changed_byte_of_the_handshake_is_noticed() {
    let (receiver, keys) = keys();
    for byte in 0..NOISE_1_BYTES {
        let (_, mut wire) = Handshake::begin(&keys).unwrap();
        wire[PREFACE_BYTES + byte] ^= 1;
        assert!(respond(&receiver, wire[PREFACE_BYTES..].try_into().unwrap()).is_err(), "byte {byte}");
    }
    for byte in 0..PREFACE_BYTES + 48 {
        let (handshake, wire) = Handshake::begin(&keys).unwrap();
        let (_, mut answer, _) = respond(&receiver, wire[PREFACE_BYTES..].try_into().unwrap()).unwrap();
        answer[byte] ^= 1;
        assert!(finish(handshake, &answer).is_err(), "byte {byte}");
    }
}

#[test]
fn an_answer_from_another_key_is_named_with_the_option() {
    let (_, keys) = keys();
    let other = PrivateKey::generate().unwrap();
    let (handshake, _) = Handshake::begin(&keys).unwrap();
    let to_other = SenderKeys { own: keys.own, receiver: other.public() };
    let (_, wire) = Handshake::begin(&to_other).unwrap();
    let (_, answer, _) = respond(&other, wire[PREFACE_BYTES..].try_into().unwrap()).unwrap();
    let fault = finish(handshake, &answer).err().unwrap();
    assert_eq!(
        fault,
        "while trying: the answer is not from the owner of the receiver's key; check --receiver-key, and what else may \
         answer there"
    );
}

/// Each end changes the key after the same record.
#[test]
fn the_stream_goes_on_under_further_keys() {
    let (mut sender, mut receiver) = pair();
    let (mut records, mut buffer) = (Vec::new(), vec![0; MAX_PART_BYTES]);
    for number in 0..REKEY_RECORDS + 5 {
        records.clear();
        sender.seal(&number.to_be_bytes(), &mut records).unwrap();
        receiver.room()[..records.len()].copy_from_slice(&records);
        receiver.fill(records.len());
        assert_eq!(receiver.open(&mut buffer).unwrap(), 4);
        assert_eq!(buffer[..4], number.to_be_bytes());
    }
    assert_eq!((sender.sealed, receiver.opened), (5, 5));
}
