use proptest::prelude::*;

use super::*;

type End = (Sealer, Opener);

fn pair(max_bytes: usize) -> (End, End) {
    let (own, controller) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let (initiation, first) = initiate(&own, &controller.public()).unwrap();
    let (peer, answer, sealer, opener) = respond(&controller, &first.try_into().unwrap(), max_bytes).unwrap();
    assert_eq!(peer, own.public());
    (initiation.finish(&answer.try_into().unwrap(), max_bytes).unwrap(), (sealer, opener))
}

fn sealed(sealer: &mut Sealer, message: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    sealer.seal(message, &mut frames).unwrap();
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_arrive_whole_and_in_order_however_the_stream_is_cut(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        part in 1..400_usize,
    ) {
        let ((mut sealer, _), (_, mut opener)) = pair(300);
        let stream: Vec<u8> = messages.iter().flat_map(|message| sealed(&mut sealer, message)).collect();
        let mut arrived = Vec::new();
        for bytes in stream.chunks(part) {
            opener.push(bytes);
            while let Some(message) = opener.next().unwrap() {
                arrived.push(message.to_vec());
            }
        }
        prop_assert_eq!(arrived, messages);
    }

    #[test]
    fn a_changed_bit_never_opens(place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let ((mut sealer, _), (_, mut opener)) = pair(300);
        let mut frame = sealed(&mut sealer, b"some message");
        let place = place.index(frame.len());
        frame[place] ^= 1_u8 << bit;
        opener.push(&frame);
        // A length that became greater waits for what never comes; no other frame opens either.
        prop_assert!(!matches!(opener.next(), Ok(Some(_))));
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let (_, (_, mut opener)) = pair(300);
        opener.push(&bytes);
        while let Ok(Some(_)) = opener.next() {}
        if let Some(frame) = bytes.first_chunk() {
            prop_assert!(respond(&PrivateKey::generate().unwrap(), frame, 300).is_err());
        }
    }
}

#[test]
fn a_long_message_takes_several_frames() {
    let ((mut sealer, _), (_, mut opener)) = pair(messages::MAX_ANNOUNCEMENT_BYTES);
    let message: Vec<u8> = (0..120_003_u32).map(|place| place as u8).collect();
    opener.push(&sealed(&mut sealer, &message));
    assert_eq!(opener.next().unwrap(), Some(&message[..]));
    assert_eq!(opener.next().unwrap(), None);
}

#[test]
fn a_message_longer_than_the_receiver_accepts_ends_the_channel() {
    let ((mut sealer, _), (_, mut opener)) = pair(100);
    opener.push(&sealed(&mut sealer, &[0; 100]));
    assert!(opener.next().unwrap().is_some());
    // Refused by its length alone, before the rest arrives.
    opener.push(&sealed(&mut sealer, &[0; 101])[..2]);
    assert!(matches!(opener.next(), Err(ChannelFault::Length)));
    let ((mut sealer, _), (_, mut opener)) = pair(70_000);
    opener.push(&sealed(&mut sealer, &[0; 70_001]));
    assert!(matches!(opener.next(), Err(ChannelFault::Length)));
}

#[test]
fn a_repeated_frame_does_not_open() {
    let ((mut sealer, _), (_, mut opener)) = pair(100);
    let frame = sealed(&mut sealer, b"once");
    opener.push(&frame);
    assert_eq!(opener.next().unwrap(), Some(&b"once"[..]));
    opener.push(&frame);
    assert!(matches!(opener.next(), Err(ChannelFault::Forged)));
}

#[test]
fn a_repeated_initiation_opens_nothing_that_was_sent_after_it() {
    let (own, controller) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let (initiation, first) = initiate(&own, &controller.public()).unwrap();
    let first = first.try_into().unwrap();
    let (_, answer, ..) = respond(&controller, &first, 100).unwrap();
    let (mut sealer, _) = initiation.finish(&answer.try_into().unwrap(), 100).unwrap();
    let recorded = sealed(&mut sealer, b"recorded");
    let (_, _, _, mut opener) = respond(&controller, &first, 100).unwrap();
    opener.push(&recorded);
    assert!(matches!(opener.next(), Err(ChannelFault::Forged)));
}

#[test]
fn a_controller_with_another_key_is_not_followed() {
    let (own, controller, other) =
        (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let (_, first) = initiate(&own, &controller.public()).unwrap();
    assert!(matches!(respond(&other, &first.try_into().unwrap(), 100), Err(ChannelFault::Handshake)));
}
