//! Quick runs of the questions about storage, data sessions, credentials and logs, eras and gateways: they have figures,
//! and leave nothing behind.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
}

/// Runs the harness, and returns its figures and its report.
fn quick(args: &str, bin_dir: Option<&Path>) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, json) = (folder.path().join("tmp"), folder.path().join("figures.json"));
    std::fs::create_dir(&temporary).unwrap();
    let mut run = bench();
    run.args(args.split(' ')).arg("--dir").arg(&temporary).arg("--json").arg(&json);
    run.args(bin_dir.into_iter().flat_map(|folder| [Path::new("--bin-dir"), folder]));
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "something was left behind");
    let figures = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (figures, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_question_about_storage_is_answered_and_cleans_up() {
    // `calls` is left out: it needs another binary, which may not be built.
    let all = "store append lookup wake open stalls --quick --seconds 0.05 --sessions 300 --events 1500";
    let (figures, report) = quick(all, None);
    for command in ["append --quick", "lookup --quick", "wake --quick", "open --quick", "stalls --quick"] {
        assert!(report.contains(&format!("`./dev bench store {command}")), "{report}");
    }
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
    let (figures, report) = quick("data many --quick --sessions 1500", None);
    assert!(report.contains("`./dev bench data many --quick --sessions 1500`"), "{report}");
    let many = &figures["data"]["many"];
    assert!(many["filled"]["per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(many["opens"].as_array().unwrap().len(), 1);
    let rows = many["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row[1]["samples"].as_u64().unwrap() > 0), "{rows:?}");
}

/// The folder of the binaries, with those of Tenure in it. They belong to another package: when all packages are tested
/// they are there, and otherwise they are built here.
fn folder_with_tenure() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_tenure-bench")).parent().expect("a folder");
    let examples = ["echo_stdio", "native_echo", "rmcp_echo"];
    let is_there = |file: &str| folder.join(file).is_file();
    if is_there("tenure") && examples.iter().all(|name| is_there(&format!("examples/{name}"))) {
        return folder.to_owned();
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--package", "tenure", "--bin", "tenure"]);
    build.args(examples.iter().flat_map(|name| ["--example", name]));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success());
    folder.to_owned()
}

#[test]
fn gateways_are_measured_without_what_is_behind_them() {
    let small = "gateway --no-peers --rounds 1 --connections 4 --sessions 6 --seconds 0.2 --warm-up 0.05";
    let (figures, _) = quick(small, Some(&folder_with_tenure()));
    let rows = figures["gateway"]["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pipes", "tenure", "tenure-share", "http", "tenure-upstream"]);
    let figure = |place: usize, name: &str| rows[place]["rounds"][0][name].as_f64().unwrap();
    // Four connections and six sessions more; a server may have been started ahead.
    let servers: Vec<_> = (0..5).map(|place| figure(place, "servers")).collect();
    assert!(
        servers == [10.0, servers[1], 1.0, 1.0, 1.0] && (10.0..=11.0).contains(&servers[1]),
        "{servers:?}"
    );
    for (place, row) in rows.iter().enumerate() {
        let is_direct = row["is_direct"].as_bool().unwrap();
        assert_eq!(figure(place, "gateway_cpu_us_per_call") == 0.0, is_direct, "{names:?} {place}");
        assert_eq!(figure(place, "gateway_bytes") == 0.0, is_direct, "{names:?} {place}");
        assert!(figure(place, "calls_per_second") > 0.0 && figure(place, "server_cpu_us_per_call") > 0.0);
        assert!(figure(place, "opened_per_second") > 0.0 && figure(place, "alone_p50_us") > 0.0);
    }
}

#[test]
fn both_eras_and_every_bridge_between_them_are_measured() {
    let (figures, report) = quick("eras --quick --seconds 0.1", Some(&folder_with_tenure()));
    for question in ["calls", "bridges"] {
        let command = format!("`./dev bench eras {question} --quick --rounds 1 --seconds 0.1`");
        assert!(report.contains(&command), "{report}");
    }
    let calls = figures["eras"]["calls"]["rows"].as_array().unwrap();
    let names = ["hyper", "axum", "rmcp", "tenure", "tenure-rmcp", "tenure-native"];
    for (place, row) in calls.iter().enumerate() {
        let calling = if place < names.len() { "modern_echo" } else { "echo" };
        let found = (row["name"].as_str().unwrap(), row["calling"].as_str().unwrap());
        assert_eq!(found, (names[place % names.len()], calling));
        assert!(row["rounds"][0]["server_cpu_us_per_call"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(calls.len(), 2 * names.len());
    let bridges = figures["eras"]["bridges"]["rows"].as_array().unwrap();
    assert_eq!(bridges.len(), 14);
    for row in bridges {
        let figure = |name: &str| row["rounds"][0][name].as_f64().unwrap();
        let is_direct = row["is_direct"].as_bool().unwrap();
        assert_eq!(figure("gateway_cpu_us_per_call") == 0.0, is_direct, "{row}");
        assert!(figure("calls_per_second") > 0.0 && figure("alone_p50_us") > 0.0, "{row}");
    }
}

#[test]
fn credentials_limits_and_logs_are_measured_beside_a_server_without_them() {
    let folder = folder_with_tenure();
    let (figures, report) = quick("controls --quick --seconds 0.1", Some(&folder));
    assert!(report.contains("`./dev bench controls --quick --rounds 1 --seconds 0.1`"), "{report}");
    let rows = figures["controls"]["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let all = [
        "native-plain",
        "native-bytes",
        "native-token",
        "native-key",
        "native-limits",
        "native-access",
        "native-metrics",
        "native-traces",
        "access-metrics",
        "access-traces",
        "native-audit",
        "native-all",
    ];
    assert_eq!(names, all);
    for row in rows {
        assert!(row["rounds"][0]["server_cpu_us_per_call"].as_f64().unwrap() > 0.0, "{row}");
    }
    let (figures, _) = quick("controls --quick --seconds 0.1 --only native-key", Some(&folder));
    assert_eq!(figures["controls"]["rows"].as_array().unwrap().len(), 1);
    assert!(figures["controls"]["targets"][0]["met"].is_null(), "there is nothing to compare it with");
}

#[test]
fn naming_rows_where_they_are_not_expected_is_an_error_with_a_hint() {
    for (question, hint) in [("eras", "hint: name the question too"), ("store", "hint: name questions")] {
        let output = bench().args([question, "--only", "axum"]).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && log.contains(hint), "{log}");
    }
}
