//! Every text that explains a client command, as a snapshot.

use expect_test::expect_file;

use crate::cli::process::run;

#[tokio::test]
async fn every_client_command_explains_itself_with_examples() {
    for command in [
        "call",
        "tools",
        "resources",
        "read",
        "prompts",
        "jar",
        "jar list",
        "jar use",
        "jar new",
        "jar clear",
        "jar forget",
    ] {
        let arguments: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let said = run(&arguments).await;
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        assert!(command == "jar" || said.out.contains("\nExample"), "{command}: {}", said.out);
        let name = format!("help_{}.txt", command.replace(' ', "_"));
        let file = format!("{}/tests/it/client/snapshots/{name}", env!("CARGO_MANIFEST_DIR"));
        expect_file![file].assert_eq(&said.out);
    }
}
