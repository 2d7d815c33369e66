//! The threads of the tunnel, supervised: without one of them the tunnel carries
//! nothing, even if the rest of the process works.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crosslane_core::time::Instant;

use crate::error::Error;

/// Time without a pass of its loop after which a thread hangs: none sleeps longer than half a second.
const HANG_TIMEOUT: Duration = Duration::from_secs(3);

/// Threads that run until they are stopped.
#[derive(Default)]
pub(super) struct Threads(Vec<Thread>);

struct Thread {
    name: &'static str,
    handle: JoinHandle<()>,
    passed_ns: Arc<AtomicU64>,
}

/// By which a thread reports that it runs.
pub(super) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Reports that the thread is at the top of its loop.
    pub(super) fn pass(&self, now: Instant) {
        self.0.store(now.as_nanos(), Relaxed);
    }
}

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system cannot create another.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        now: Instant,
        work: impl FnOnce(Pulse) + Send + 'static,
    ) -> io::Result<()> {
        let passed_ns = Arc::new(AtomicU64::new(now.as_nanos()));
        let pulse = Pulse(passed_ns.clone());
        let handle = Builder::new().name(name.into()).spawn(move || work(pulse))?;
        self.0.push(Thread { name, handle, passed_ns });
        Ok(())
    }

    /// The failure of a thread that has ended without being stopped.
    pub(super) fn fault(&mut self) -> Option<Error> {
        let place = self.0.iter().position(|thread| thread.handle.is_finished())?;
        let Thread { name, handle, .. } = self.0.swap_remove(place);
        let cause = match handle.join() {
            Ok(()) => "no reason is known".into(),
            Err(panic) => panic_text(panic.as_ref()),
        };
        let cause = format!("the thread {name} has ended: {cause}");
        let fault = Error::failure("carrying packets through the tunnel", cause);
        Some(fault.with_remedy("restart the agent, as systemd does, and report this"))
    }

    /// Whether all of them run and none hangs.
    pub(super) fn are_alive(&self, now: Instant) -> bool {
        let is_alive = |thread: &Thread| {
            let passed = Instant::from_nanos(thread.passed_ns.load(Relaxed));
            !thread.handle.is_finished() && now.since(passed) < HANG_TIMEOUT
        };
        self.0.iter().all(is_alive)
    }

    /// Waits for all threads, which have been stopped.
    pub(super) fn join(&mut self) {
        // The runtime prints the message of a panic.
        self.0.drain(..).for_each(|thread| drop(thread.handle.join()));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn wait_for(threads: &mut Threads) -> Error {
        for _ in 0..500 {
            if let Some(fault) = threads.fault() {
                return fault;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no fault is reported");
    }

    #[test]
    fn a_thread_that_dies_is_reported_with_its_reason() {
        let (mut threads, now) = (Threads::default(), Instant::from_millis(5));
        let (stop, stopped) = channel::<()>();
        threads.start("lives", now, move |_| assert!(stopped.recv().is_err())).unwrap();
        assert!(threads.fault().is_none() && threads.are_alive(now));
        threads.start("sends", now, |_| panic!("attempt to add\nwith overflow")).unwrap();
        let fault = wait_for(&mut threads);
        let expected = "while carrying packets through the tunnel: the thread sends has ended: attempt to add with \
                overflow; restart the agent, as systemd does, and report this";
        assert_eq!((fault.to_string().as_str(), fault.exit_code()), (expected, 1));
        threads.start("receives", now, |_| {}).unwrap();
        assert!(wait_for(&mut threads).to_string().contains("the thread receives has ended: no reason is known"));
        assert!(threads.fault().is_none() && threads.are_alive(now), "the other one lives");
        drop(stop);
        threads.join();
    }

    #[test]
    fn a_thread_that_hangs_is_not_alive() {
        let (mut threads, begin) = (Threads::default(), Instant::from_millis(5));
        let (pass, passes) = channel::<Instant>();
        let (passed, has_passed) = channel::<()>();
        let work = move |pulse: Pulse| {
            while let Ok(now) = passes.recv() {
                pulse.pass(now);
                let _ = passed.send(());
            }
        };
        threads.start("works", begin, work).unwrap();
        let late = begin + HANG_TIMEOUT;
        assert!(threads.are_alive(begin) && !threads.are_alive(late));
        pass.send(late).unwrap();
        has_passed.recv().unwrap();
        assert!(threads.are_alive(late) && !threads.are_alive(late + HANG_TIMEOUT));
        drop(pass);
        threads.join();
    }
}
