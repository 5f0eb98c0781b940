//! Who is revoked, as the store keeps it.

use std::sync::Arc;

use tenure_session::port::clock::Time;
use tenure_session::port::store::Store;
use tenure_session::revocation::{self, Revocation};
use tenure_store::memory::Memory;

#[tokio::test]
async fn a_revocation_moves_on_and_never_back_until_it_is_taken_away() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let of = |principal: &str, not_before| Revocation { principal: principal.to_owned(), not_before };
    assert_eq!(revocation::all(store.as_ref()).await, Ok((Vec::new(), 0)));
    for (now, expected) in [(1000, 1000), (3000, 3000), (2000, 3000)] {
        let written = revocation::revoke(store.as_ref(), "corp:ann", Time(now)).await;
        assert_eq!(written, Ok(of("corp:ann", expected)));
    }
    revocation::revoke(store.as_ref(), "corp:b\u{f6}b", Time(5)).await.unwrap();
    let (mut all, unreadable) = revocation::all(store.as_ref()).await.unwrap();
    all.sort_by_key(|one| one.not_before);
    assert_eq!((all, unreadable), (vec![of("corp:b\u{f6}b", 5), of("corp:ann", 3000)], 0));
    assert_eq!(revocation::reinstate(store.as_ref(), "corp:ann").await, Ok(true));
    assert_eq!(revocation::reinstate(store.as_ref(), "corp:ann").await, Ok(false));
    assert_eq!(revocation::of(store.as_ref(), "corp:ann").await, Ok(None));
    assert_eq!(revocation::of(store.as_ref(), "corp:b\u{f6}b").await, Ok(Some(of("corp:b\u{f6}b", 5))));
}
