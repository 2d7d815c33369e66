use alloc::vec;

use super::*;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

/// Everything that is written now, as (object, offset, length).
fn written(sender: &mut Sender) -> Vec<(u32, u64, u32)> {
    let mut all = Vec::new();
    while let Some((write, _)) = sender.poll() {
        match write {
            Write::Chunk { number, offset, length, .. } => all.push((number, offset, length)),
            Write::Abandon { number, .. } => all.push((number, u64::MAX, 0)),
        }
    }
    all
}

#[test]
fn the_object_that_is_due_earliest_goes_first() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.set_backlog(Some(65_536));
    sender.submit("slow", 200_000, at(0), Some(at(20)));
    assert_eq!(written(&mut sender), [(0, 0, 65_536)]);
    sender.submit("urgent", 1000, at(1), Some(at(2)));
    sender.submit("whenever", 1000, at(1), None);
    sender.set_outstanding(0);
    sender.set_backlog(None);
    let order: Vec<u32> = written(&mut sender).iter().map(|chunk| chunk.0).collect();
    assert_eq!(order, [1, 0, 0, 0, 2]);
}

#[test]
fn unacknowledged_bytes_are_limited() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.set_backlog(Some(150_000));
    sender.submit("a", 1_000_000, at(0), Some(at(20)));
    assert_eq!(written(&mut sender).len(), 2);
    sender.set_outstanding(90_000);
    assert_eq!(written(&mut sender), []);
    sender.set_outstanding(80_000);
    assert_eq!(written(&mut sender), [(0, 131_072, 65_536)]);
}

#[test]
fn acknowledgements_count_for_the_object_of_their_bytes() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.submit("a", 100_000, at(0), Some(at(20)));
    sender.submit("b", 50_000, at(0), Some(at(30)));
    let mut bytes = 0;
    while let Some((_, more)) = sender.poll() {
        bytes += more;
    }
    sender.set_outstanding(bytes - 30_000);
    let head = (OFFER_BYTES + 1 + DATA_BYTES) as u64;
    assert_eq!(sender.demand()[0].acked_bytes, 30_000 - head);
    sender.set_outstanding(0);
    assert!(sender.demand().is_empty() && sender.is_idle());
}

#[test]
fn an_object_past_its_deadline_is_given_up_or_continued() {
    for (late, expected) in [(Late::GiveUp, Some(0)), (Late::Continue, None)] {
        let mut sender = Sender::new(late);
        sender.set_backlog(Some(65_536));
        sender.submit("a", 200_000, at(0), Some(at(2)));
        sender.submit("b", 10, at(0), Some(at(9)));
        written(&mut sender);
        assert_eq!(sender.next_wakeup().is_some(), expected.is_some());
        assert_eq!(sender.poll_late(at(1)), None);
        assert_eq!(sender.poll_late(at(2)), expected);
        sender.set_outstanding(0);
        let next = sender.poll().map(|(write, _)| write);
        let abandoned = Some(Write::Abandon { number: 0, why: Abandoned::Late });
        assert_eq!(next == abandoned, expected.is_some());
    }
}

#[test]
fn an_object_never_offered_is_not_abandoned_on_the_wire() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.submit("a", 10, at(0), Some(at(1)));
    assert_eq!(sender.poll_late(at(1)), Some(0));
    assert_eq!(sender.poll(), None);
    assert!(sender.is_idle());
}

#[test]
fn an_empty_object_is_offered_and_ended() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.submit("a", 0, at(0), Some(at(1)));
    assert_eq!(written(&mut sender), vec![(0, 0, 0)]);
    assert!(!sender.is_idle());
    sender.set_outstanding(0);
    assert!(sender.is_idle());
}

#[test]
fn too_many_objects_are_rejected() {
    let mut sender = Sender::new(Late::GiveUp);
    let taken = (0..=MAX_OPEN).filter(|_| sender.submit("a", 1, at(0), Some(at(1))).is_some()).count();
    assert_eq!(taken, MAX_OPEN);
}

#[test]
fn objects_begun_are_limited_to_those_of_a_receiver() {
    let mut sender = Sender::new(Late::Continue);
    sender.set_backlog(Some(65_536));
    let mut begun = Vec::new();
    // Each is due before the last, and its first chunk fills the backlog.
    for index in 0..=MAX_BEGUN as u64 {
        sender.submit("a", 100_000, at(0), Some(at(10_000 - index)));
        begun.extend(written(&mut sender).into_iter().map(|(number, ..)| number));
        sender.set_outstanding(0);
    }
    assert_eq!(begun.last(), Some(&(MAX_BEGUN as u32 - 1)), "the last object waits, and objects begun are ended");
    assert_eq!(written(&mut sender), [(MAX_BEGUN as u32, 0, 65_536)]);
}

#[test]
fn progress_is_reported_of_objects_without_a_deadline_too() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.submit("a", 100_000, at(0), None);
    sender.submit("b", 100_000, at(0), None);
    written(&mut sender);
    sender.set_outstanding(140_000);
    assert!(sender.demand().is_empty());
    assert_eq!(sender.progress().map(|(number, _)| number).collect::<Vec<_>>(), [0]);
}

#[test]
fn an_unreadable_chunk_is_taken_back() {
    let mut sender = Sender::new(Late::GiveUp);
    sender.submit("a", 100_000, at(0), Some(at(9)));
    sender.submit("b", 10, at(0), Some(at(10)));
    sender.poll();
    sender.poll();
    sender.take_back(Abandoned::Unreadable);
    assert_eq!(sender.poll(), Some((Write::Abandon { number: 0, why: Abandoned::Unreadable }, 6)));
    sender.poll();
    sender.take_back(Abandoned::Unreadable);
    assert_eq!(sender.poll(), None);
    sender.set_outstanding(0);
    assert!(sender.is_idle(), "no acknowledgement is expected for a chunk taken back");
}
