//! Keys of the tunnel's endpoints: X25519, written in base64 as WireGuard's are.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use ring::rand::{SecureRandom, SystemRandom};
use x25519_dalek::{PublicKey as Point, StaticSecret};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// Length of a key, private or public, in bytes.
pub const KEY_BYTES: usize = 32;
/// Length of a key as text, in characters.
pub const KEY_CHARACTERS: usize = 44;

/// Longest key file, in bytes: a key with some blanks.
const MAX_FILE_BYTES: u64 = 256;
/// Permission bits of all users but the owner, which a private key must not have.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Why a text is no valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The text is empty.
    #[error("there is no key, it is empty")]
    Empty,
    /// A character is not of the alphabet, or padding is missing.
    #[error("a key is {KEY_CHARACTERS} characters of base64, and this is not")]
    NotBase64,
    /// It has another length, in bytes.
    #[error("a key has {KEY_BYTES} bytes, and this has {0}")]
    Length(usize),
    /// Every key agreed with it is public (RFC 7748, section 6.1: points of small order).
    #[error("the key is one of the few that yield no shared secret")]
    Weak,
}

/// The public key of an endpoint. Ordered by its bytes. Weak ones are rejected only when a text is parsed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub(super) [u8; KEY_BYTES]);

impl PublicKey {
    /// Its bytes, as on the wire.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn is_weak(&self) -> bool {
        // With a point of small order every private key agrees on zero.
        !StaticSecret::from([0x40; KEY_BYTES]).diffie_hellman(&Point::from(self.0)).was_contributory()
    }
}

impl From<[u8; KEY_BYTES]> for PublicKey {
    fn from(bytes: [u8; KEY_BYTES]) -> PublicKey {
        PublicKey(bytes)
    }
}

impl FromStr for PublicKey {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<PublicKey, KeyFault> {
        let key = PublicKey(*decode(text)?);
        if key.is_weak() { Err(KeyFault::Weak) } else { Ok(key) }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64::encode_string(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The private key of an endpoint; its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(StaticSecret);

impl PrivateKey {
    /// A new key, from the system's source of randomness.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn generate() -> Result<PrivateKey> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let failure = |_| Error::failure("making a key", "the system provides no random bytes");
        SystemRandom::new().fill(bytes.as_mut()).map_err(failure)?;
        Ok(PrivateKey(StaticSecret::from(*bytes)))
    }

    /// The key in `file`, which only its owner may read.
    ///
    /// # Errors
    /// One error message: the file is missing, open to others, no regular file, or holds no key.
    pub fn read(file: &Path) -> Result<PrivateKey> {
        let shown = file.display();
        let attempt = || format!("reading the private key {shown}");
        let make = || format!("`crosslane keygen --out {shown}` makes one");
        // A file that exists is never overwritten by `keygen`, and may be anything: it is not to be changed either.
        let name_another = "name a file that `crosslane keygen --out FILE` made";
        // A pipe without a writer would block the program.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file);
        let opened = opened.map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => Error::usage(attempt(), "there is no such file", make()),
            _ => Error::usage(attempt(), cause, "make it readable for the user of this command"),
        })?;
        let metadata = opened.metadata().map_err(|cause| Error::failure(attempt(), cause))?;
        if !metadata.is_file() {
            return Err(Error::usage(attempt(), "it is no regular file", name_another));
        }
        let text = text_of(opened).map_err(|cause| Error::usage(attempt(), cause, name_another))?;
        let key = text.parse().map_err(|fault: KeyFault| Error::usage(attempt(), fault, name_another))?;
        if metadata.mode() & GROUP_AND_OTHERS != 0 {
            let cause = format!("group or others have access to it (mode {:04o})", metadata.mode() & 0o7777);
            return Err(Error::usage(attempt(), cause, format!("run `chmod 600 {shown}`")));
        }
        Ok(key)
    }

    /// Writes the key into a new file that only its owner may read.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let attempt = || format!("writing the private key {}", file.display());
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        let mut opened = opened.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::usage(attempt(), "the file exists already, and a key is never overwritten", "name another")
            }
            _ => Error::failure(attempt(), cause).with_remedy("name a file in a folder that can be written"),
        })?;
        let line = Zeroizing::new(format!("{}\n", *self.text()));
        opened.write_all(line.as_bytes()).and_then(|()| opened.sync_all()).map_err(|cause| {
            // A partial file is no key, and would obstruct the next attempt.
            let _ = std::fs::remove_file(file);
            Error::failure(attempt(), cause).with_remedy("make room there")
        })
    }

    /// The key as text, for its owner.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64::encode_string(self.0.as_bytes()))
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(Point::from(&self.0).to_bytes())
    }

    /// Its bytes, for key agreement.
    pub(crate) fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        self.0.as_bytes()
    }
}

impl FromStr for PrivateKey {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<PrivateKey, KeyFault> {
        Ok(PrivateKey(StaticSecret::from(*decode(text)?)))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

fn text_of(file: File) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES as usize + 1));
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// The bytes of a key's text; surrounding white space is ignored.
fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyFault> {
    let text = text.trim();
    if text.is_empty() {
        return Err(KeyFault::Empty);
    }
    let bytes = Zeroizing::new(Base64::decode_vec(text).map_err(|_| KeyFault::NotBase64)?);
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    if bytes.len() != KEY_BYTES {
        return Err(KeyFault::Length(bytes.len()));
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    /// RFC 7748, section 6.1: Alice's keys.
    const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
    const PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn the_public_key_is_that_of_the_rfc() {
        let private: PrivateKey = PRIVATE.parse().unwrap();
        assert_eq!(private.public().to_string(), PUBLIC);
        assert_eq!(PUBLIC.parse::<PublicKey>().unwrap(), private.public());
        assert_eq!(*private.text(), PRIVATE);
    }

    #[test]
    fn a_private_key_is_not_shown_by_debug_output() {
        let private: PrivateKey = PRIVATE.parse().unwrap();
        assert_eq!(format!("{private:?} {private:#?}"), "PrivateKey PrivateKey");
    }

    #[test]
    fn a_text_without_a_key_is_rejected() {
        let fault = |text: &str| text.parse::<PublicKey>().unwrap_err();
        assert_eq!(fault(""), KeyFault::Empty);
        assert_eq!(fault(" \n"), KeyFault::Empty);
        assert_eq!(fault("AAAA"), KeyFault::Length(3));
        assert_eq!(fault(&PUBLIC[..43]), KeyFault::NotBase64);
        assert_eq!(fault(&PUBLIC.replace('/', "_")), KeyFault::NotBase64);
        assert_eq!(fault(&format!("{PUBLIC}{PUBLIC}")), KeyFault::NotBase64);
        assert_eq!(fault(&format!("{}A==", "A".repeat(43))), KeyFault::NotBase64);
    }

    #[test]
    fn a_weak_key_is_rejected() {
        let mut one = [0; KEY_BYTES];
        one[0] = 1;
        for weak in [[0; KEY_BYTES], one] {
            assert_eq!(Base64::encode_string(&weak).parse::<PublicKey>(), Err(KeyFault::Weak));
        }
    }

    #[test]
    fn a_key_file_is_only_for_its_owner_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let key = PrivateKey::generate().unwrap();
        key.write(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(PrivateKey::read(&file).unwrap().public(), key.public());
        let error = PrivateKey::generate().unwrap().write(&file).unwrap_err();
        assert!(error.to_string().contains("never overwritten"), "{error}");
        assert_eq!(PrivateKey::read(&file).unwrap().public(), key.public());
    }

    #[test]
    fn a_file_that_others_may_access_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        PrivateKey::generate().unwrap().write(&file).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateKey::read(&file).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let remedy = format!("(mode {mode:04o}); run `chmod 600 {}`", file.display());
            assert!(error.to_string().ends_with(&remedy), "{error}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(PrivateKey::read(&file).is_ok());
    }

    #[test]
    fn a_file_without_a_key_is_rejected_in_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let error_of = |name: &str| PrivateKey::read(&folder.path().join(name)).unwrap_err().to_string();
        assert!(error_of("none").contains("there is no such file; `crosslane keygen --out"));
        assert!(error_of(".").contains("it is no regular file"));
        for (name, text, cause) in [
            ("empty", &b""[..], "it is empty"),
            ("short", b"AAAA\n", "this has 3"),
            ("words", b"my key", "this is not"),
            ("binary", &[0xff; 32], "UTF-8"),
            ("long", &[b'A'; 400], "more than 256 bytes"),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            for mode in [0o600, 0o644] {
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
                let error = error_of(name);
                assert!(error.contains(cause) && !error.contains('\n'), "{error}");
                let remedy = "; name a file that `crosslane keygen --out FILE` made";
                assert!(error.ends_with(remedy), "it exists and may be another program's: {error}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_rejected(text in "\\PC{0,60}") {
            let _ = text.parse::<PublicKey>();
            let _ = text.parse::<PrivateKey>();
        }

        #[test]
        fn parsing_reverses_formatting(bytes: [u8; KEY_BYTES]) {
            let text = PublicKey(bytes).to_string();
            prop_assert_eq!(text.len(), KEY_CHARACTERS);
            prop_assert_eq!(*text.parse::<PublicKey>().unwrap().as_bytes(), bytes);
        }
    }
}
