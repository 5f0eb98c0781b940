//! A thread without which nothing is written ends the engine with it.

#[test]
fn an_engine_whose_writer_or_keeper_panicked_counts_as_failed() {
    let (failed, told) = std::sync::mpsc::channel();
    let progress = std::sync::Arc::new(super::Progress::new(failed));
    let shared = std::sync::Arc::clone(&progress);
    let ended = super::thread("fine", move || super::vital(&shared, || {})).unwrap().join();
    assert!(ended.is_ok() && !progress.is_poisoned());
    let shared = std::sync::Arc::clone(&progress);
    let panics = move || super::vital(&shared, || panic!("a panic for testing"));
    assert!(super::thread("panics", panics).unwrap().join().is_err());
    assert!(progress.is_poisoned());
    assert!(told.try_recv().is_ok(), "it is to be opened anew");
}
