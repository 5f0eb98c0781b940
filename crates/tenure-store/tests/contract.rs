//! Every engine against the store port's contract.

use std::sync::Arc;

use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::store_contract;

#[tokio::test]
async fn memory_keeps_the_contract() {
    store_contract::all(|| Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn the_faulty_wrapper_keeps_the_contract_while_it_has_no_fault() {
    store_contract::all(|| Arc::new(Faulty::new(Arc::new(Memory::new())))).await;
}
