//! What goes over the wire besides MCP: tokens, headers, TLS.

use expect_test::expect_file;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::home::Home;
use crate::cli::process::finish;
use crate::support::wait::within;

/// Answers everybody with 401 until the command has ended; returns the heads of the requests and what it said.
async fn unauthorized(home: &Home, arguments: &[&str]) -> (Vec<String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let mut heads = Vec::new();
    let serving = async {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(connection.read_buf(&mut head).await.unwrap(), 0);
            }
            heads.push(String::from_utf8_lossy(&head).to_lowercase());
            let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n\
                          Content-Length: 0\r\nConnection: close\r\n\r\n";
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let mut command = home.command(&[&["tools", &url], arguments].concat());
    command.env("MY_TOKEN", "geheim");
    let said = tokio::select! {
        said = finish(command) => said,
        () = serving => unreachable!("it goes on"),
    };
    assert_eq!(said.code, Some(1));
    (heads, home.plain(&said.err))
}

#[tokio::test]
async fn a_token_and_headers_go_with_every_request_and_into_no_message() {
    let home = Home::new();
    let arguments =
        ["--bearer-env", "MY_TOKEN", "--header", "X-Team: blue", "--header", "X-Key: auch-geheim"];
    let (heads, said) = unauthorized(&home, &arguments).await;
    assert!(!heads.is_empty());
    for head in heads {
        for line in ["authorization: bearer geheim\r\n", "x-team: blue\r\n", "x-key: auch-geheim\r\n"] {
            assert!(head.contains(line), "{line} in {head}");
        }
    }
    assert!(!said.contains("geheim"), "{said}");
    expect_file!["snapshots/unauthorized.txt"].assert_eq(&said);
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_refused_without_their_value() {
    let home = Home::new();
    for header in ["X-Key geheim: x", "X-Key: gehe\nim", "X-Key"] {
        let refused = home.refused(&["tools", "http://127.0.0.1:1/mcp", "--header", header]).await;
        assert!(refused.starts_with("error: the header `X-Key"), "{refused}");
        assert!(!refused.contains("gehe\n"), "{refused}");
    }
    let refused = home.refused(&["tools", "--header", "X-Team: blue", "--", "false"]).await;
    assert!(refused.contains("takes no headers and no token"), "{refused}");
}

#[tokio::test]
async fn https_is_spoken_with_servers_that_the_system_trusts() {
    let home = Home::new();
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (home.place.beside("cert.pem"), home.place.beside("key.pem"));
    std::fs::write(&cert, issued.cert.pem()).unwrap();
    std::fs::write(&key, issued.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let server = home.serve(&["--tls-cert", &cert, "--tls-key", &key]).await;
    let url = server.url.replace("127.0.0.1", "localhost");
    assert!(url.starts_with("https://localhost:"), "{url}");

    let call = ["call", &url, "public_echo", "text=over TLS"];
    let mut trusting = home.command(&call);
    let said = finish({
        trusting.env("SSL_CERT_FILE", &cert);
        trusting
    })
    .await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), "over TLS\n"), "{}", said.err);

    let said = within("the command ends", home.run(&call)).await;
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("invalid peer certificate"), "{}", said.err);
}
