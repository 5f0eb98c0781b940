//! The clauses of the port to the nodes of a cluster as tests; every cluster engine runs all of them.
//!
//! Each function is named after its clause and draws its own nodes, so that they can share one engine. What an engine
//! does when it loses its majority (the rest of clause 4) needs faults that only its own tests can make.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_session::id::NodeId;
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::StoreError;

type SharedMembers = Arc<dyn Members>;

/// How long a list may be late in these tests, and how often it is read meanwhile.
const LATE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);

/// Runs every clause.
pub async fn all(open: impl Fn() -> SharedMembers) {
    clause_1_a_first_renewal_makes_the_record_of_a_new_node(open()).await;
    clause_2_a_renewal_replaces_exactly_the_one_it_names(open()).await;
    clause_2_a_removed_record_cannot_be_renewed(open()).await;
    clause_3_remove_needs_the_renewal(open()).await;
    clause_4_a_later_write_sees_every_finished_one(open()).await;
    clause_5_members_lists_every_record(open()).await;
    clause_6_the_next_finished_write_settles_an_earlier_one(open()).await;
}

fn info(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn is_conflict<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Conflict { .. }))
}

/// Reads the list until it is as wanted.
async fn listed(members: &SharedMembers, node: NodeId, wanted: impl Fn(Option<&Member>) -> bool) -> bool {
    let found = async {
        loop {
            let list = members.members().await.expect("lists");
            if wanted(list.iter().find(|member| member.node == node)) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::time::timeout(LATE, found).await.is_ok()
}

async fn clause_1_a_first_renewal_makes_the_record_of_a_new_node(members: SharedMembers) {
    let node = NodeId::random();
    let first = members.renew(node, info("a"), None).await.expect("joins");
    assert!(is_conflict(&members.renew(node, info("b"), None).await), "there is one");
    let is_first = |member: Option<&Member>| {
        member.is_some_and(|member| member.renewal == first && member.info == info("a"))
    };
    assert!(listed(&members, node, is_first).await, "the conflict changed nothing");
}

async fn clause_2_a_renewal_replaces_exactly_the_one_it_names(members: SharedMembers) {
    let node = NodeId::random();
    let first = members.renew(node, info("a"), None).await.expect("joins");
    let second = members.renew(node, info("b"), Some(first)).await.expect("renews");
    assert!(second > first, "{first:?} {second:?}");
    for wrong in [first, Renewal(second.0 + 1)] {
        assert!(is_conflict(&members.renew(node, info("c"), Some(wrong)).await), "{wrong:?}");
    }
    let third = members.renew(node, info("d"), Some(second)).await.expect("the conflicts changed nothing");
    assert!(third > second, "{second:?} {third:?}");
}

async fn clause_2_a_removed_record_cannot_be_renewed(members: SharedMembers) {
    let node = NodeId::random();
    let first = members.renew(node, info("a"), None).await.expect("joins");
    members.remove(node, first).await.expect("removes");
    assert!(is_conflict(&members.renew(node, info("b"), Some(first)).await));
    // A record that another node makes under the name has a higher renewal.
    let mark = members.renew(node, info("mark"), None).await.expect("marks");
    assert!(mark > first, "{first:?} {mark:?}");
    assert!(is_conflict(&members.renew(node, info("c"), Some(first)).await));
}

async fn clause_3_remove_needs_the_renewal(members: SharedMembers) {
    let node = NodeId::random();
    assert!(is_conflict(&members.remove(node, Renewal(1)).await), "it has no record");
    let first = members.renew(node, info("a"), None).await.expect("joins");
    let second = members.renew(node, info("b"), Some(first)).await.expect("renews");
    assert!(is_conflict(&members.remove(node, first).await), "it was renewed since");
    let third = members.renew(node, info("c"), Some(second)).await.expect("the conflict changed nothing");
    members.remove(node, third).await.expect("removes");
    assert!(is_conflict(&members.remove(node, third).await), "once");
}

async fn clause_4_a_later_write_sees_every_finished_one(members: SharedMembers) {
    let node = NodeId::random();
    let mut last = members.renew(node, info("a"), None).await.expect("joins");
    for _ in 0..20 {
        let next = members.renew(node, info("b"), Some(last)).await.expect("renews");
        assert!(is_conflict(&members.remove(node, last).await), "the renewal came first");
        last = next;
    }
    // Of a renewal and a removal at the same time exactly one wins.
    for _ in 0..20 {
        let (renewed, removed) =
            tokio::join!(members.renew(node, info("c"), Some(last)), members.remove(node, last));
        match (renewed, removed) {
            (Ok(next), removed) if is_conflict(&removed) => last = next,
            (renewed, Ok(())) if is_conflict(&renewed) => {
                last = members.renew(node, info("d"), None).await.expect("the record is gone");
            }
            both => panic!("{both:?}"),
        }
    }
}

async fn clause_5_members_lists_every_record(members: SharedMembers) {
    let nodes: Vec<NodeId> = (0..5).map(|_| NodeId::random()).collect();
    for node in &nodes {
        members.renew(*node, info("a"), None).await.expect("joins");
    }
    for node in &nodes {
        assert!(listed(&members, *node, |member| member.is_some()).await, "{node:?}");
    }
    let list = members.members().await.expect("lists");
    let renewal = list.iter().find(|member| member.node == nodes[0]).expect("it was listed").renewal;
    members.remove(nodes[0], renewal).await.expect("the listed renewal is the last");
    assert!(listed(&members, nodes[0], |member| member.is_none()).await);
    assert!(listed(&members, nodes[1], |member| member.is_some()).await, "only it is gone");
}

async fn clause_6_the_next_finished_write_settles_an_earlier_one(members: SharedMembers) {
    // A caller that does not wait for the answer does not know whether the write happened.
    for _ in 0..20 {
        let node = NodeId::random();
        let first = members.renew(node, info("a"), None).await.expect("joins");
        let dropped = members.renew(node, info("b"), Some(first));
        drop(tokio::time::timeout(Duration::ZERO, dropped).await);
        let settled = match members.renew(node, info("c"), Some(first)).await {
            Ok(renewal) => renewal,
            Err(StoreError::Conflict { .. }) => {
                let is_later = |member: Option<&Member>| member.is_some_and(|member| member.renewal > first);
                assert!(listed(&members, node, is_later).await, "only the dropped one can be in its way");
                let list = members.members().await.expect("lists");
                let found = list.iter().find(|member| member.node == node).expect("it was listed").renewal;
                members.renew(node, info("c"), Some(found)).await.expect("renews over it")
            }
            Err(error) => panic!("{error}"),
        };
        members.renew(node, info("d"), Some(settled)).await.expect("nothing comes in between any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_members::MemoryMembers;

    #[tokio::test(start_paused = true)]
    async fn the_records_in_memory_keep_the_contract() {
        all(|| Arc::new(MemoryMembers::new())).await;
    }
}
