//! Seals tokens that clients carry for us, with the same kind of keys as a sealed store.
//!
//! A token is a format byte, the id of its key, a nonce, the ciphertext, and the tag.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XNonce};
use tenure_session::port::seal::Seal;

use super::keys::{KeyId, SealKeys};

const FORMAT: u8 = b't';
const ID: usize = 4;
const NONCE: usize = 24;
const TAG: usize = 16;
const HEAD: usize = 1 + ID + NONCE;

/// Prefix of the associated data, so that a token never opens as a value of a store.
const PURPOSE: &[u8] = b"tenure token\0";

impl Seal for SealKeys {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        let key = self.newest();
        let mut sealed = Vec::with_capacity(HEAD + plain.len() + TAG);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&key.id().0);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let bound = [PURPOSE, bound].concat();
        let text = (&mut sealed[HEAD..]).into();
        let tag = key.cipher().encrypt_inout_detached(&XNonce::from(nonce), &bound, text).ok()?;
        sealed.extend_from_slice(&tag);
        Some(sealed)
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let [FORMAT, a, b, c, d, rest @ ..] = sealed else { return None };
        let (nonce, rest) = rest.split_at_checked(NONCE)?;
        let (text, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let (nonce, tag) = (XNonce::try_from(nonce).ok()?, Tag::try_from(tag).ok()?);
        let bound = [PURPOSE, bound].concat();
        let id = KeyId([*a, *b, *c, *d]);
        self.all().filter(|key| key.id() == id).find_map(|key| {
            let mut plain = text.to_vec();
            let opened =
                key.cipher().decrypt_inout_detached(&nonce, &bound, plain.as_mut_slice().into(), &tag);
            opened.ok().map(|()| plain)
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_session::port::seal::Seal;

    use crate::sealed::keys::{SealKeys, generate};

    #[test]
    fn a_token_opens_for_whom_it_was_sealed_and_unchanged() {
        let keys = SealKeys::parse(&generate()).unwrap();
        let sealed = keys.seal(b"ann", b"secret").unwrap();
        assert_eq!(keys.open(b"ann", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(keys.open(b"bob", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(b"ann", &changed), None, "byte {at}");
            assert_eq!(keys.open(b"ann", &sealed[..at]), None, "cut at {at}");
        }
        assert_ne!(keys.seal(b"ann", b"secret").unwrap(), sealed);
        assert_eq!(SealKeys::parse(&generate()).unwrap().open(b"ann", &sealed), None, "another's key");
    }

    #[test]
    fn keys_rotate() {
        let (old, new) = (generate(), generate());
        let sealed = SealKeys::parse(&old).unwrap().seal(b"ann", b"secret").unwrap();
        let both = SealKeys::parse(&format!("{}\n{}", new.trim(), old.trim())).unwrap();
        assert_eq!(both.open(b"ann", &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(SealKeys::parse(&new).unwrap().open(b"ann", &sealed), None);
    }
}
