//! Connections over which no receiver serves the transfer.

use crosslane_core::time::Instant;

use super::super::super::TransferError;
use super::super::super::source::News;
use super::{Link, Sending};

impl Sending<'_> {
    /// The receiver rejects a connection. Once it has served this transfer, it may do so for some seconds only, as for
    /// connections that have waited while it was stopped.
    pub(super) fn rejected(&mut self, now: Instant, path: usize, fault: TransferError) -> Result<(), TransferError> {
        if self.connected.is_none() {
            return Err(fault);
        }
        self.refused(now, path, fault);
        Ok(())
    }

    /// A connection leads to no receiver that serves this transfer: to the portal of a Wi-Fi network, for example.
    pub(super) fn refused(&mut self, now: Instant, path: usize, fault: TransferError) {
        self.engine.close(path);
        let text = fault.to_string();
        let is_new = self.links.get_mut(path).is_some_and(|link| link.refuse(now, fault));
        if is_new && (self.connected.is_some() || !self.links.iter().all(Link::is_refused)) {
            self.source.on_news(now, News::Down(path, text));
        }
    }
}
