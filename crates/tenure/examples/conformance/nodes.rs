//! Several nodes that share a store in memory, behind one address. Each request goes to the next node, so that nearly every one
//! reaches another node than the one that has its session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use tenure::config::Config;
use tenure::{MountedNode, Node};
use tenure_session::backend::Backend;
use tenure_store::memory::Memory;
use tenure_testkit::memory_members::MemoryMembers;
use tenure_transport::http::Remote;
use tokio::net::TcpListener;

/// Serves from this many nodes.
pub(crate) async fn serve(config: &Config, backend: &Arc<dyn Backend>, count: usize) -> anyhow::Result<()> {
    let (store, members) = (Arc::new(Memory::new()), Arc::new(MemoryMembers::new()));
    let mut nodes: Vec<MountedNode> = Vec::new();
    for _ in 0..count.max(1) {
        let node = Node::builder(config).with_backend(Arc::clone(backend));
        nodes.push(node.with_store(store.clone()).with_members(members.clone()).mount().await?);
    }
    let services: Arc<[_]> = nodes.iter().map(MountedNode::service).collect();
    let next = Arc::new(AtomicUsize::new(0));
    let answer = move |ConnectInfo(client): ConnectInfo<SocketAddr>, request: Request| {
        let node = services[next.fetch_add(1, Ordering::Relaxed) % services.len()].clone();
        async move { node.handle(request, Some(&Remote::new(client, "http"))).await.map(Body::new) }
    };
    let listen = config.listen;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    #[expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]
    {
        println!("http://{}/mcp", listener.local_addr()?);
    }
    let app = Router::new().fallback(answer).into_make_service_with_connect_info::<SocketAddr>();
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    for node in nodes {
        node.stop().await;
    }
    Ok(())
}
