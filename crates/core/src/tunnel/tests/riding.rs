//! Feedback that packets carry.

use super::*;
use crate::tunnel::wire::gre_key::GreKey;
use crate::tunnel::wire::path_feedback::PathFeedback;

/// Two links of 10 Mbit/s, of 30 and 20 ms. Modes that follow the order prefer the first.
const LINKS: [(f64, f64, f64); 2] = [(10.0, 30.0, 0.0), (10.0, 20.0, 0.0)];
/// A message up every 20 ms, and its acknowledgement down.
const MESSAGES: u8 = 100;
const ACKNOWLEDGEMENTS: u8 = 200;

/// Sends messages and acknowledgements.
fn talk(testbed: &mut Testbed, until_ms: u64) {
    while testbed.now < Instant::from_millis(until_ms) {
        testbed.offer(MESSAGES);
        testbed.run_until(testbed.now + Duration::from_millis(13));
        testbed.offer_at(1, ACKNOWLEDGEMENTS);
        testbed.run_until(testbed.now + Duration::from_millis(7));
    }
}

/// The number of messages sent since, and of packets of a flow with feedback.
fn feedback_since(testbed: &Testbed, first: usize, flow: u8) -> (usize, usize) {
    let sent = &testbed.in_flight[first..];
    let messages = sent.iter().filter(|(output, _)| matches!(output, Output::Message { .. }));
    let carries = |output: &Sent| matches!(output, Output::Send { key, feedback: Some(_), .. } if key.flow == flow);
    (messages.count(), sent.iter().filter(|(output, _)| carries(output)).count())
}

#[test]
fn packets_carry_the_feedback_where_there_are_any_in_the_other_direction() {
    let mut testbed = Testbed::new(Mode::Standby, &LINKS);
    talk(&mut testbed, 10_000);
    let first = testbed.in_flight.len();
    talk(&mut testbed, 20_000);
    testbed.run_until(Instant::from_millis(20_100));
    let (messages, up) = feedback_since(&testbed, first, MESSAGES);
    let (_, down) = feedback_since(&testbed, first, ACKNOWLEDGEMENTS);
    // Two in each direction, and keepalives of the reserve.
    assert!(messages <= 60, "{messages} messages");
    assert!((300..=500).contains(&down), "{down} acknowledgements with feedback of 500");
    assert!((60..=250).contains(&up), "{up} messages with feedback of 500");
    for (flow, endpoint) in [(MESSAGES, 0), (ACKNOWLEDGEMENTS, 1)] {
        let lost = testbed.endpoints[endpoint].path(PathId(0)).map(|path| path.lost);
        assert_eq!((testbed.delays(flow, 0, 19_000).1, lost), (0, Some(0)), "flow {flow}");
    }
}

#[test]
fn an_older_peer_gets_messages_only() {
    let mut testbed = Testbed::new(Mode::Standby, &LINKS);
    testbed.tamper = |message| message.reads_feedback = false;
    talk(&mut testbed, 5_000);
    testbed.run_until(Instant::from_millis(5_500));
    assert_eq!(feedback_since(&testbed, 0, ACKNOWLEDGEMENTS).1, 0);
    assert_eq!(testbed.delays(MESSAGES, 0, 4_900).1 + testbed.delays(ACKNOWLEDGEMENTS, 0, 4_900).1, 0);
}

/// The late reports on acknowledgements delay nothing: who sends the messages notices, and says so.
#[test]
fn acknowledgements_leave_a_dead_path_as_fast_as_messages() {
    let (up, down) = (Direction::Up, Direction::Down);
    for dead in [&[up][..], &[down], &[up, down]] {
        for phase_ms in (0..20).step_by(5) {
            let mut testbed = Testbed::new(Mode::Standby, &LINKS);
            talk(&mut testbed, 5_000);
            testbed.run_until(Instant::from_millis(5_000 + phase_ms));
            for direction in dead {
                testbed.links[0].set(testbed.now, *direction, params(10.0, 30.0, 1.0));
            }
            talk(&mut testbed, 8_000);
            testbed.run_until(Instant::from_millis(9_000));
            for flow in [MESSAGES, ACKNOWLEDGEMENTS] {
                let (delays, lost) = testbed.delays(flow, 0, 8_000);
                let worst = delays.last().copied().unwrap_or_default();
                assert!(lost == 0 && worst < 160.0, "{dead:?}, {phase_ms} ms, flow {flow}: {worst} ms, {lost} lost");
            }
        }
    }
}

#[test]
fn feedback_of_before_a_restart_is_ignored() {
    let mut testbed = Testbed::new(Mode::Standby, &LINKS[..1]);
    talk(&mut testbed, 1_000);
    testbed.run_until(Instant::from_millis(1_200));
    testbed.offer(MESSAGES);
    testbed.exchange();
    assert_eq!(testbed.sender(0).in_flight(), 1);
    let highest = testbed.sender(0).next_number() as u32 - 1;
    // The sum of the epochs, 7 and 8.
    for (check, in_flight) in [(14, 1), (15, 0)] {
        let feedback = PathFeedback { check, path: PathId(0), highest, arrival_us: 1, held: 0, bytes: 1 };
        let key = GreKey { path: PathId(0), flow: ACKNOWLEDGEMENTS, sequence: 0 };
        let packet = Numbered { flow: ACKNOWLEDGEMENTS, number: 0, offered: testbed.now };
        let arrived =
            Input::Arrived { key, number: None, bytes: 52, feedback: Some(feedback), is_pure_ack: false, packet };
        testbed.endpoints[0].handle(testbed.now, arrived);
        assert_eq!(testbed.sender(0).in_flight(), in_flight);
    }
}
