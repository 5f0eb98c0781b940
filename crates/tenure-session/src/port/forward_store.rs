//! Writes the methods of a store that stands around another store.
//!
//! A decorator changes a few methods and passes the rest on. It names those here, so that its own file shows only
//! the methods that differ.

#[doc(hidden)]
pub use bytes::Bytes;

/// Writes methods of [`Store`](crate::port::store::Store) that call the same method of another store.
///
/// `forward_store!(through: get, put)` inside of `impl Store for Decorator` writes `get` and `put`. Each hands a
/// closure that makes the call to `self.through`, which is a method of the decorator: it has the other store, and
/// decides whether, when and with which answer the call is made. The methods that are not named are written by hand.
///
/// ```
/// # use std::sync::Arc;
/// # use tenure_session::forward_store;
/// # use tenure_session::port::store::{RecordKey, Store, StoreError, Stored, Version};
/// struct AppendOnly(Arc<dyn Store>);
///
/// impl AppendOnly {
///     fn engine<T>(&self, operation: impl FnOnce(&dyn Store) -> T) -> T {
///         operation(self.0.as_ref())
///     }
/// }
///
/// impl Store for AppendOnly {
///     forward_store!(engine: put, get, peek, expired, list, claim, owner, release, append, read, trim);
///     forward_store!(engine: drop_session, tail, survey, restore, capabilities, trouble);
///
///     fn delete(&self, _: RecordKey, _: Version) -> Stored<()> {
///         Box::pin(std::future::ready(Err(StoreError::Busy)))
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    (@write $through:ident $method:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        fn $method(&self, $($name: $type),*) -> $answer {
            self.$through(move |store| store.$method($($name),*))
        }
    };
    (@one $through:ident put) => { $crate::forward_store!(@write $through put(
        key: $crate::port::store::RecordKey,
        value: $crate::port::forward_store::Bytes,
        expected: $crate::port::store::Expected,
        deadline: Option<$crate::port::clock::Time>
    ) -> $crate::port::store::Stored<$crate::port::store::Version>); };
    (@one $through:ident get) => { $crate::forward_store!(@write $through get(
        key: $crate::port::store::RecordKey
    ) -> $crate::port::store::Stored<Option<$crate::port::store::Record>>); };
    (@one $through:ident peek) => { $crate::forward_store!(@write $through peek(
        key: $crate::port::store::RecordKey
    ) -> Option<Result<Option<$crate::port::store::Record>, $crate::port::store::StoreError>>); };
    (@one $through:ident delete) => { $crate::forward_store!(@write $through delete(
        key: $crate::port::store::RecordKey,
        expected: $crate::port::store::Version
    ) -> $crate::port::store::Stored<()>); };
    (@one $through:ident expired) => { $crate::forward_store!(@write $through expired(
        space: $crate::port::store::Space,
        now: $crate::port::clock::Time,
        limit: usize
    ) -> $crate::port::store::Stored<Vec<($crate::port::store::RecordKey, $crate::port::store::Version)>>); };
    (@one $through:ident list) => { $crate::forward_store!(@write $through list(
        space: $crate::port::store::Space,
        after: Option<$crate::id::SessionKey>,
        limit: usize
    ) -> $crate::port::store::Stored<Vec<($crate::id::SessionKey, $crate::port::store::Record)>>); };
    (@one $through:ident claim) => { $crate::forward_store!(@write $through claim(
        session: $crate::id::SessionKey,
        node: $crate::id::NodeId,
        expected: Option<$crate::port::store::Epoch>
    ) -> $crate::port::store::Stored<$crate::port::store::Epoch>); };
    (@one $through:ident owner) => { $crate::forward_store!(@write $through owner(
        session: $crate::id::SessionKey
    ) -> $crate::port::store::Stored<Option<($crate::id::NodeId, $crate::port::store::Epoch)>>); };
    (@one $through:ident release) => { $crate::forward_store!(@write $through release(
        session: $crate::id::SessionKey,
        epoch: $crate::port::store::Epoch
    ) -> $crate::port::store::Stored<()>); };
    (@one $through:ident append) => { $crate::forward_store!(@write $through append(
        session: $crate::id::SessionKey,
        epoch: $crate::port::store::Epoch,
        batch: Vec<$crate::port::store::NewEvent>
    ) -> $crate::port::store::Stored<Vec<$crate::id::Position>>); };
    (@one $through:ident read) => { $crate::forward_store!(@write $through read(
        session: $crate::id::SessionKey,
        stream: $crate::id::StreamId,
        after: $crate::id::Position,
        limit: $crate::port::store::ReadLimit
    ) -> $crate::port::store::Stored<$crate::port::store::StreamEvents>); };
    (@one $through:ident trim) => { $crate::forward_store!(@write $through trim(
        session: $crate::id::SessionKey,
        keep: $crate::port::store::Keep
    ) -> $crate::port::store::Stored<$crate::port::store::KeptEvents>); };
    (@one $through:ident drop_session) => { $crate::forward_store!(@write $through drop_session(
        session: $crate::id::SessionKey
    ) -> $crate::port::store::Stored<()>); };
    (@one $through:ident tail) => { $crate::forward_store!(@write $through tail(
        session: $crate::id::SessionKey
    ) -> $crate::port::store::Stored<$crate::id::Position>); };
    (@one $through:ident survey) => { $crate::forward_store!(@write $through survey(
        session: $crate::id::SessionKey
    ) -> $crate::port::store::Stored<$crate::port::store::Survey>); };
    (@one $through:ident restore) => { $crate::forward_store!(@write $through restore(
        session: $crate::id::SessionKey,
        log: $crate::port::store::SavedLog
    ) -> $crate::port::store::Stored<()>); };
    (@one $through:ident capabilities) => { $crate::forward_store!(@write $through capabilities(
    ) -> $crate::port::store::StoreCapabilities); };
    (@one $through:ident trouble) => { $crate::forward_store!(@write $through trouble(
    ) -> Option<$crate::port::store::Trouble>); };
    ($through:ident: $($method:ident),+ $(,)?) => { $($crate::forward_store!(@one $through $method);)+ };
}
