//! A quick run of the questions about storage and about data sessions: they have figures, and leave nothing behind.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_question_about_storage_is_answered_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, json) = (folder.path().join("tmp"), folder.path().join("figures.json"));
    std::fs::create_dir(&temporary).unwrap();
    // `calls` is left out: it needs another binary, which may not be built.
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .args(["store", "append", "lookup", "wake", "open", "stalls", "--quick", "--seconds", "0.05"])
        .args(["--sessions", "300", "--events", "1500"])
        .arg("--dir")
        .arg(&temporary)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (report, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);

    for command in ["append --quick", "lookup --quick", "wake --quick", "open --quick", "stalls --quick"] {
        assert!(report.contains(&format!("`./dev bench store {command}")), "{report}");
    }
    let figures: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let store = &figures["store"];
    assert_eq!(store["append"]["rows"].as_array().unwrap().len(), 4);
    assert!(store["append"]["rows"][0]["file"][0]["events_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(store["lookup"]["rows"].as_array().unwrap().len(), 9);
    assert_eq!(store["wake"]["rows"][2]["events"], 1_000);
    assert_eq!(store["open"]["killed"].as_array().unwrap().len(), 1);
    assert!(store["stalls"]["stalled"]["busy"]["call"]["samples"].as_u64().unwrap() > 0);
}

#[test]
fn many_data_sessions_are_measured_and_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, json) = (folder.path().join("tmp"), folder.path().join("figures.json"));
    std::fs::create_dir(&temporary).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .args(["data", "many", "--quick", "--sessions", "1500"])
        .arg("--dir")
        .arg(&temporary)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (report, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    assert!(report.contains("`./dev bench data many --quick --sessions 1500`"), "{report}");
    let figures: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let many = &figures["data"]["many"];
    assert!(many["filled"]["per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(many["opens"].as_array().unwrap().len(), 1);
    let rows = many["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row[1]["samples"].as_u64().unwrap() > 0), "{rows:?}");
}

#[test]
fn naming_rows_where_questions_are_expected_is_an_error_with_a_hint() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tenure-bench")).args(["store", "--only", "axum"]).output().unwrap();
    assert!(!output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("hint: name questions"), "{log}");
}
