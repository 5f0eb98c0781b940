//! Static keys in front of a running authenticator.

use std::fs;

use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_auth::scope::ScopeSet;
use tenure_auth::{AuthSettings, AuthSettingsError, Authenticator, CredentialKind, UnixSeconds};

use crate::world::{NOW, World, reason};

#[tokio::test]
async fn a_key_is_let_in_until_it_is_revoked_or_expires() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let scopes = ScopeSet::parse("files:read").unwrap();
    let until = UnixSeconds(NOW.0 + 1000);
    let new = |name: &str| NewKey { name: name.to_owned(), ..NewKey::default() };
    let ci = file.add(NewKey { scopes, expires: Some(until), ..new("ci") }, NOW).unwrap();
    let world = World::with(|settings, _| settings.keys = Some(file.clone())).await;

    let identity = world.bearer(ci.expose()).await.unwrap();
    assert_eq!((identity.principal(), identity.kind()), ("key:ci", CredentialKind::Key));
    assert_eq!(identity.scopes().to_string(), "files:read");
    let by_header = [("x-api-key", ci.expose().to_owned())];
    assert!(world.ask(&by_header, None, &world.endpoint, NOW).await.is_ok());
    assert_eq!(world.auth.keys()[0].1, Some(NOW), "its last use is known");

    assert_eq!(reason(world.bearer_at(ci.expose(), until).await), "expired");
    let mut typo = ci.expose().to_owned();
    typo.pop();
    assert_eq!(reason(world.bearer(&typo).await), "unknown");

    // Another process makes a key and revokes the first; the next look at the file takes that over.
    let ops = file.add(new("ops"), NOW).unwrap();
    assert_eq!(reason(world.bearer(ops.expose()).await), "unknown");
    file.revoke("ci").unwrap();
    world.auth.read_keys().unwrap();
    assert!(world.bearer(ops.expose()).await.is_ok(), "though it was refused a moment ago");
    assert_eq!(reason(world.bearer(ci.expose()).await), "unknown");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_noted_beside_the_file_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let new = |name: &str| NewKey { name: name.to_owned(), ..NewKey::default() };
    let (ci, ops) = (file.add(new("ci"), NOW).unwrap(), file.add(new("ops"), NOW).unwrap());
    let world = World::with(|settings, _| settings.keys = Some(file.clone())).await;
    let at = |seconds: u64| UnixSeconds(NOW.0 + seconds);
    let noted = || file.last_uses(&file.list().unwrap());
    assert_eq!(noted(), [None, None], "no server has told anything");
    for (used, key, refreshed, expected) in [
        (10, &ci, 11, [Some(at(10)), None]),
        (20, &ops, 70, [Some(at(10)), None]),
        (71, &ci, 72, [Some(at(71)), Some(at(20))]),
        (71, &ci, 500, [Some(at(71)), Some(at(20))]),
    ] {
        assert!(world.bearer_at(key.expose(), at(used)).await.is_ok());
        world.auth.refresh(at(refreshed)).await;
        assert_eq!(noted(), expected, "after {refreshed} s");
    }
    // Another server that uses the same file knows nothing of the first one's uses, and takes none of them back.
    let other = World::with(|settings, _| settings.keys = Some(file.clone())).await;
    assert!(other.bearer_at(ops.expose(), at(600)).await.is_ok());
    other.auth.refresh(at(601)).await;
    assert_eq!(noted(), [Some(at(71)), Some(at(600))]);
    file.revoke("ops").unwrap();
    other.auth.refresh(at(602)).await;
    let text = fs::read_to_string(folder.path().join("keys.used")).unwrap();
    assert!(!text.contains(ci.expose()) && !text.contains(ops.expose()), "{text}");
    fs::write(folder.path().join("keys.used"), "nonsense").unwrap();
    assert_eq!(noted(), [None], "it is a help for people, and nothing more");
}

#[tokio::test]
async fn a_broken_file_leaves_the_keys_at_hand_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let key = file.add(NewKey { name: "ci".to_owned(), ..NewKey::default() }, NOW).unwrap();
    let world = World::with(|settings, _| settings.keys = Some(file.clone())).await;
    fs::write(file.path(), "[[key]]\nname = ").unwrap();
    world.auth.refresh(NOW).await;
    assert!(world.bearer(key.expose()).await.is_ok());
    let settings = AuthSettings { keys: Some(file), ..AuthSettings::default() };
    let refused = Authenticator::new(settings, reqwest::Client::builder());
    assert!(matches!(refused, Err(AuthSettingsError::Keys(_))), "but nothing starts with it");
}

#[cfg(unix)]
#[tokio::test]
async fn a_key_that_was_deleted_from_a_refused_file_is_gone_when_the_file_is_mended() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let key = file.add(NewKey { name: "ci".to_owned(), ..NewKey::default() }, NOW).unwrap();
    let world = World::with(|settings, _| settings.keys = Some(file.clone())).await;
    fs::write(file.path(), "").unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o664)).unwrap();
    world.auth.refresh(NOW).await;
    assert!(world.bearer(key.expose()).await.is_ok());
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
    world.auth.refresh(NOW).await;
    assert_eq!(reason(world.bearer(key.expose()).await), "unknown");
}

#[test]
fn keys_that_are_made_and_revoked_at_once_do_not_undo_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = ApiKeyFile::at(folder.path().join("keys.toml"));
    let new = |name: String| NewKey { name, ..NewKey::default() };
    for number in 0..20 {
        file.add(new(format!("old{number}")), NOW).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|number| drop(file.revoke(&format!("old{number}")).unwrap())));
        scope.spawn(|| (0..20).for_each(|number| drop(file.add(new(format!("new{number}")), NOW).unwrap())));
    });
    let names: Vec<String> = file.list().unwrap().into_iter().map(|key| key.name).collect();
    assert_eq!(names.len(), 20, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("new")), "{names:?}");
}
