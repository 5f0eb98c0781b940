//! Settings of one session alone: metadata, and how long it lives while it is not used.

use std::time::Duration;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::port::store::RecordKey;
use tenure_session::record::{SessionRecord, StoredSession};
use tenure_session::session::Changes;
use tenure_session::settings::{IdleTtl, Metadata, Settings};
use tenure_session::{Limits, Principal, Session, SessionId, session as sessions};
use tenure_testkit::runtime::{self, json_of, send};

use crate::runtime::support::{World, request};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn limits(idle: Option<Duration>) -> Limits {
    Limits {
        idle_ttl: idle,
        max_lifetime: None,
        dormant_after: None,
        tombstone_ttl: 60 * HOUR,
        ..Limits::default()
    }
}

fn metadata(json: serde_json::Value) -> Metadata {
    let serde_json::Value::Object(metadata) = json else { panic!("an object") };
    metadata
}

async fn record(world: &World, session: &Session) -> SessionRecord {
    let record = world.store.inner().get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
    let StoredSession::Session(session) = StoredSession::decode(&record.value).unwrap() else {
        panic!("it has ended")
    };
    *session
}

async fn reason(world: &World, session: &Session) -> Option<Reason> {
    world.find(session).await.err().map(|error| error.reason())
}

// A3.04, A9.01, A9.02: a time of its own at creation; A6.09: so with metadata.
#[tokio::test(start_paused = true)]
async fn a9_02_a_session_is_created_with_metadata_and_a_time_of_its_own() {
    let world = World::with(limits(Some(HOUR)));
    let settings = Settings {
        metadata: metadata(json!({ "user_id": "u1", "client_info": { "ip_address": "10.0.0.7" } })),
        ttl: IdleTtl::After(Duration::from_millis(1_800_000)),
    };
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let id = SessionId::random();
    let created =
        world.sessions.create_with(id, initialize, &Principal::ANONYMOUS, None, settings.clone()).await;
    let session = created.unwrap().session.unwrap();
    let kept = record(&world, &session).await;
    assert_eq!((kept.ttl_ms, &kept.metadata), (Some(1_800_000), &settings.metadata));
    tokio::time::sleep(29 * MINUTE).await;
    assert_eq!(reason(&world, &session).await, None);
    // Finding it is no use of it.
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(reason(&world, &session).await, Some(Reason::SessionExpired));
}

// A9.01: inactivity, not age; `infinity` never expires. A11.02: sessions have independent timeouts.
#[tokio::test(start_paused = true)]
async fn a9_01_each_session_expires_by_its_own_time_and_never_means_never() {
    let world = World::with(limits(Some(HOUR)));
    let (short, long, never, plain) =
        (world.session().await, world.session().await, world.session().await, world.session().await);
    short.set_ttl(IdleTtl::After(10 * MINUTE)).await.unwrap();
    long.set_ttl(IdleTtl::After(3 * HOUR)).await.unwrap();
    never.set_ttl(IdleTtl::Never).await.unwrap();
    for n in 0..3 {
        tokio::time::sleep(9 * MINUTE).await;
        json_of(request(&short, n, "ping").await.unwrap());
    }
    let over = |sessions: [&Session; 4]| sessions.map(Session::is_over);
    assert_eq!(over([&short, &long, &never, &plain]), [false; 4], "use puts it off");
    tokio::time::sleep(11 * MINUTE).await;
    assert_eq!(over([&short, &long, &never, &plain]), [true, false, false, false]);
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(over([&short, &long, &never, &plain]), [true, false, false, true]);
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(over([&short, &long, &never, &plain]), [true, true, false, true]);
    tokio::time::sleep(1000 * HOUR).await;
    json_of(request(&never, 9, "ping").await.unwrap());
    never.set_ttl(IdleTtl::Default).await.unwrap();
    tokio::time::sleep(HOUR + MINUTE).await;
    assert!(never.is_over(), "as all others again");
}

#[tokio::test(start_paused = true)]
async fn a_time_of_its_own_outlives_the_process_and_wins_over_a_changed_default() {
    let world = World::with(limits(Some(HOUR)));
    let (short, never, plain) = (world.session().await, world.session().await, world.session().await);
    short.set_ttl(IdleTtl::After(10 * MINUTE)).await.unwrap();
    never.set_ttl(IdleTtl::Never).await.unwrap();
    // Twice its time after a kill, since its last use may not have been written.
    let world = world.killed(limits(Some(100 * HOUR)));
    tokio::time::sleep(19 * MINUTE).await;
    assert_eq!(reason(&world, &short).await, None, "and it is awake now");
    assert_eq!(world.find(&short).await.unwrap().ttl(), IdleTtl::After(10 * MINUTE));
    tokio::time::sleep(12 * MINUTE).await;
    assert_eq!(reason(&world, &short).await, Some(Reason::SessionExpired));
    // The other way round: a default that is shorter.
    let world = world.killed(limits(Some(MINUTE)));
    tokio::time::sleep(HOUR).await;
    assert_eq!(reason(&world, &plain).await, Some(Reason::SessionExpired), "it follows the default");
    assert_eq!(reason(&world, &never).await, None);
    assert_eq!(world.sessions.tallies().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dormant_session_keeps_its_own_time() {
    let quiet = Limits { dormant_after: Some(MINUTE), ..limits(Some(HOUR)) };
    let world = World::with(quiet);
    let (short, long) = (world.session().await, world.session().await);
    short.set_ttl(IdleTtl::After(10 * MINUTE)).await.unwrap();
    long.set_ttl(IdleTtl::After(5 * HOUR)).await.unwrap();
    let ids = [*short.id(), *long.id()];
    drop((short, long));
    tokio::time::sleep(9 * MINUTE).await;
    assert_eq!((world.sessions.tallies().awake, world.sessions.tallies().sessions), (0, 2));
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 1, "swept by its own time");
    tokio::time::sleep(4 * HOUR).await;
    assert!(world.sessions.find(&ids[1], &Principal::ANONYMOUS).await.is_ok());
    assert!(world.sessions.find(&ids[0], &Principal::ANONYMOUS).await.is_err());
}

// A3.05, A6.09: handlers read and change the metadata; A2.05: and look up the negotiated capabilities.
#[tokio::test(start_paused = true)]
async fn a6_09_a_handler_reads_and_changes_the_metadata_and_the_time_of_its_session() {
    let mut world = World::with(limits(Some(HOUR)));
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let own = call.context.session().expect("it belongs to a session");
    assert_eq!((own.label(), own.metadata().0.len()), (session.label(), 0));
    assert_eq!(
        call.context.capabilities().read::<serde_json::Value>().unwrap()["sampling"],
        json!({}),
        "A2.05"
    );
    let count = own.change_metadata(|metadata| {
        metadata.insert("last_tool".into(), "dig".into());
        Ok::<_, ()>(metadata.len())
    });
    assert_eq!(count.await.unwrap(), Ok(1));
    let refused = own.change_metadata(|metadata| {
        metadata.clear();
        Err::<(), _>("no")
    });
    assert_eq!(refused.await.unwrap(), Err("no"));
    assert_eq!(own.metadata().0, metadata(json!({ "last_tool": "dig" })), "a refusal changes nothing");
    let (seen, version) = own.metadata();
    own.set_metadata(version, metadata(json!({ "last_tool": "fill" }))).await.unwrap();
    let late = own.set_metadata(version, seen).await.unwrap_err();
    assert_eq!(late.reason(), Reason::Conflict, "compare and swap");
    assert_eq!((own.ttl(), own.idle_ttl()), (IdleTtl::Default, Some(HOUR)));
    own.set_ttl(IdleTtl::After(2 * HOUR)).await.unwrap();
    assert_eq!((own.ttl(), own.idle_ttl()), (IdleTtl::After(2 * HOUR), Some(2 * HOUR)));
    drop(own);
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
    let kept = record(&world, &session).await;
    assert_eq!(kept.metadata, metadata(json!({ "last_tool": "fill" })));
    assert_eq!((kept.ttl_ms, kept.idle_ms), (Some(7_200_000), None));
    // The handler of the next process sees the same.
    let mut world = world.killed(limits(Some(HOUR)));
    let woken = world.find(&session).await.unwrap();
    let waiting = send(&woken, runtime::request(2, "tools/call", &json!({})));
    let call = world.script.call().await;
    let own = call.context.session().unwrap();
    assert_eq!((own.metadata().0, own.ttl()), (kept.metadata, IdleTtl::After(2 * HOUR)));
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_fails_changes_nothing_in_memory_nor_in_the_store() {
    let bounded = Limits { max_metadata_bytes: 64, ..limits(Some(HOUR)) };
    let world = World::with(bounded);
    let session = world.session().await;
    session.update_metadata(|metadata| drop(metadata.insert("colour".into(), "red".into()))).await.unwrap();
    let before = (session.metadata(), record(&world, &session).await.metadata);
    let large =
        session.update_metadata(|metadata| drop(metadata.insert("much".into(), "x".repeat(64).into())));
    let error = large.await.unwrap_err();
    assert_eq!(error.reason(), Reason::MetadataTooLarge);
    assert_eq!(error.to_rpc().raw().read::<serde_json::Value>().unwrap()["data"]["limit"], 64);
    world.store.fail_puts(true);
    let unsaved = session.set_ttl(IdleTtl::Never).await.unwrap_err();
    assert_eq!(unsaved.reason(), Reason::StoreUnavailable);
    assert_eq!((session.ttl(), session.info().settings.ttl), (IdleTtl::Default, IdleTtl::Default));
    world.store.fail_puts(false);
    assert_eq!((session.metadata(), record(&world, &session).await.metadata), before);
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let settings = Settings { metadata: metadata(json!({ "much": "x".repeat(64) })), ttl: IdleTtl::Default };
    let refused = world
        .sessions
        .create_with(SessionId::random(), initialize, &Principal::ANONYMOUS, None, settings)
        .await;
    assert_eq!(refused.unwrap_err().reason(), Reason::MetadataTooLarge);
    assert_eq!(world.sessions.tallies().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_changes_the_settings_of_a_session_wherever_it_is() {
    let quiet = || Limits { dormant_after: Some(MINUTE), max_metadata_bytes: 64, ..limits(Some(HOUR)) };
    let world = World::with(quiet());
    let session = world.session().await;
    let key = session.id().key();
    let set = |json: serde_json::Value, ttl| Changes { metadata: metadata(json), ttl };
    let two_hours = Some(IdleTtl::After(2 * HOUR));
    let awake = world.sessions.annotate(&key, &set(json!({ "ticket": 1, "by": "ada" }), two_hours)).await;
    assert_eq!(awake.unwrap().unwrap().ttl, IdleTtl::After(2 * HOUR));
    let id = *session.id();
    drop(session);
    tokio::time::sleep(90 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 0, "it sleeps, and has not expired");
    let asleep = world.sessions.annotate(&key, &set(json!({ "ticket": null }), None)).await.unwrap().unwrap();
    let expected = Settings { metadata: metadata(json!({ "by": "ada" })), ttl: IdleTtl::After(2 * HOUR) };
    assert_eq!(asleep, expected, "what was not named stays");
    let large = world.sessions.annotate(&key, &set(json!({ "much": "x".repeat(64) }), None)).await;
    assert_eq!(large.unwrap_err().reason(), Reason::MetadataTooLarge);
    // A new time counts from now.
    world.sessions.annotate(&key, &set(json!({}), Some(IdleTtl::After(HOUR)))).await.unwrap().unwrap();
    tokio::time::sleep(55 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 1);
    // The same in a store that no server has open; and back to the default, which is that of the next server.
    let (store, now) = (world.store.inner(), tenure_session::port::clock::Clock::now(&*world.clock));
    let back = set(json!({}), Some(IdleTtl::Default));
    sessions::annotate(store.as_ref(), key, &back, &quiet(), now).await.unwrap().unwrap();
    let world = world.killed(Limits { idle_ttl: Some(10 * HOUR), ..quiet() });
    tokio::time::sleep(9 * HOUR).await;
    assert!(world.sessions.find(&id, &Principal::ANONYMOUS).await.is_ok(), "it follows the limits again");
}

#[tokio::test(start_paused = true)]
async fn no_time_brings_back_a_session_that_has_expired() {
    let world = World::with(limits(Some(HOUR)));
    let session = world.session().await;
    let key = session.id().key();
    // As after a kill, and no client has come by since.
    world.store.set_broken(true);
    let store = world.store.inner();
    let late = tenure_session::port::clock::Clock::now(&*world.clock).after(3 * HOUR);
    let never = Changes { ttl: Some(IdleTtl::Never), ..Changes::default() };
    let limits = limits(Some(HOUR));
    assert_eq!(sessions::annotate(store.as_ref(), key, &never, &limits, late).await.unwrap(), None);
    let Ok(Some(kept)) = store.get(RecordKey::session(key)).await else { panic!("it is there") };
    let StoredSession::Session(kept) = StoredSession::decode(&kept.value).unwrap() else {
        panic!("as it was")
    };
    assert_eq!(kept.ttl_ms, None);
    let unknown = SessionId::random().key();
    assert_eq!(sessions::annotate(store.as_ref(), unknown, &never, &limits, late).await.unwrap(), None);
}
