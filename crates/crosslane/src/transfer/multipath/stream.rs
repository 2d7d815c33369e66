//! The streams of a connection, encrypted or in the clear.

use std::io;

use socket2::Socket;

use super::super::connection;
use super::cipher::Cipher;

pub(super) struct Stream {
    pub(super) socket: Socket,
    /// `None`: in the clear.
    cipher: Option<Cipher>,
    /// What is to be written next.
    pub(super) outbox: Vec<u8>,
    /// What the socket has not accepted, from `written` on.
    sealed: Vec<u8>,
    written: usize,
}

impl Stream {
    pub(super) fn new(socket: Socket, cipher: Option<Cipher>) -> Stream {
        Stream { socket, cipher, outbox: Vec::new(), sealed: Vec::new(), written: 0 }
    }

    /// Writes what waits; true once nothing does.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        loop {
            while self.written < self.sealed.len() {
                match connection::write_some(&self.socket, &self.sealed[self.written..])? {
                    0 => return Ok(false),
                    count => self.written += count,
                }
            }
            self.sealed.clear();
            self.written = 0;
            if self.outbox.is_empty() {
                return Ok(true);
            }
            match &mut self.cipher {
                Some(cipher) => {
                    cipher.seal(&self.outbox, &mut self.sealed)?;
                    self.outbox.clear();
                }
                None => std::mem::swap(&mut self.outbox, &mut self.sealed),
            }
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len() + self.sealed.len() - self.written
    }

    /// Reads what has arrived; `None`: nothing has. An encrypted connection needs a buffer of a record at least.
    ///
    /// # Errors
    /// The connection broke, the peer has ended it, or a record does not open.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        let Some(cipher) = &mut self.cipher else { return connection::read_some(&self.socket, buffer) };
        let mut count = cipher.open(buffer)?;
        if count == 0 {
            let Some(read) = connection::read_some(&self.socket, cipher.room())?.map(<[u8]>::len) else {
                return Ok(None);
            };
            cipher.fill(read);
            count = cipher.open(buffer)?;
        }
        Ok((count > 0).then_some(&buffer[..count]))
    }
}
