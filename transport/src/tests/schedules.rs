//! Random programs over random networks, against a model: every request ends exactly once, with
//! its own answer or an error, and no handler runs twice.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::net::{Done, Manner, Net, pattern};
use crate::prng::{Prng, Ratio};
use crate::time::Duration;
use crate::{Config, CongestionConfig, CongestionControl, RequestId, RpcError, SessionId};

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    loss: u32,
    duplication: u32,
    reorder: u32,
    corruption: u32,
    config: Config,
    steps: usize,
    is_sealed: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    let faults = (0u32..40, 0u32..20, 0u32..20, 0u32..5);
    let terms = (1u16..40, 1u8..=64, any::<bool>());
    let all = (any::<u64>(), faults, terms, 1usize..60, any::<bool>());
    all.prop_map(|(seed, faults, terms, steps, is_sealed)| Plan {
        seed,
        loss: faults.0,
        duplication: faults.1,
        reorder: faults.2,
        corruption: faults.3,
        config: Config {
            credits: terms.0,
            slots: terms.1,
            cumulative_credits: Some(terms.2),
            congestion: CongestionConfig {
                control: CongestionControl::ALL[seed as usize % CongestionControl::ALL.len()],
                ..CongestionConfig::default()
            },
            ..Config::default()
        },
        steps,
        is_sealed,
    })
}

/// The operations that the program has asked for.
#[derive(Default)]
struct Model {
    sizes: BTreeMap<u64, usize>,
    ids: Vec<RequestId>,
    sessions: Vec<SessionId>,
}

fn run(plan: &Plan) -> Net {
    let mut net = if plan.is_sealed {
        Net::sealed(plan.seed, 2, &plan.config)
    } else {
        Net::new(plan.seed, 2, &plan.config)
    };
    let mut prng = Prng::new(plan.seed ^ 1);
    let mut model = Model::default();
    let session = net.connected(0, 1);
    model.sessions.push(session);
    net.faults.loss = Ratio::percent(plan.loss);
    net.faults.duplication = Ratio::percent(plan.duplication);
    net.faults.reorder = Ratio::percent(plan.reorder);
    net.faults.corruption = Ratio::percent(plan.corruption);
    for _ in 0..plan.steps {
        step(&mut net, &mut prng, &mut model);
    }
    net.nodes[1].app.manner = Manner::Echo;
    net.answer_all(1);
    let all = model.sizes.len();
    let end = net.run_until(Duration::from_secs(300), |net| {
        net.nodes[0].app.completions.len() >= all
    });
    assert!(
        end,
        "{} of {all} requests ended: {plan:?}",
        net.nodes[0].app.completions.len()
    );
    // Nothing more comes, whatever is still under way.
    net.run_for(Duration::from_secs(1));
    verify(&net, &model);
    net
}

fn step(net: &mut Net, prng: &mut Prng, model: &mut Model) {
    let choice = prng.below(20);
    match choice {
        0..10 => request(net, prng, model),
        10..13 => {
            let span = prng.below(3_000_000);
            net.run_for(Duration::from_nanos(span));
        }
        13 => net.nodes[1].app.manner = Manner::Later,
        14 => net.nodes[1].app.manner = Manner::Echo,
        15 => net.answer_all(1),
        16 | 17 if !model.ids.is_empty() => {
            let id = model.ids[prng.below(model.ids.len() as u64) as usize];
            net.nodes[0].endpoint.cancel(id);
        }
        18 if prng.below(4) == 0 => {
            let session = model.sessions[prng.below(model.sessions.len() as u64) as usize];
            let (now, side) = (net.now, prng.below(2) as usize);
            if side == 0 {
                net.nodes[0].endpoint.disconnect(now, session);
            }
        }
        19 if model.sessions.len() < 5 => {
            let session = net.connect(0, 1);
            model.sessions.push(session);
        }
        _ => {}
    }
}

fn request(net: &mut Net, prng: &mut Prng, model: &mut Model) {
    let session = model.sessions[prng.below(model.sessions.len() as u64) as usize];
    let size_max = 1 << prng.in_range(4..=17);
    let (tag, size) = (model.sizes.len() as u64, 8 + prng.below(size_max) as usize);
    let deadline =
        (prng.below(4) == 0).then(|| net.now + Duration::from_nanos(1 + prng.below(20_000_000)));
    let node = &mut net.nodes[0].endpoint;
    let mut request = node.pool().alloc(size).expect("memory");
    request.copy_from_slice(&pattern(tag, size));
    let response = node.pool().alloc(size).expect("memory");
    if let Ok(id) = node.enqueue_request(net.now, session, 7, request, response, tag, deadline) {
        model.sizes.insert(tag, size);
        model.ids.push(id);
    }
}

fn verify(net: &Net, model: &Model) {
    let mut ended = BTreeMap::new();
    for Done {
        tag,
        result,
        response: data,
    } in &net.nodes[0].app.completions
    {
        assert!(
            ended.insert(*tag, *result).is_none(),
            "request {tag} ended twice"
        );
        let size = model.sizes[tag];
        let executed = net.nodes[1].app.executed.get(tag).copied().unwrap_or(0);
        match result {
            Ok(()) => {
                assert!(
                    *data == pattern(*tag, size),
                    "request {tag} got another's answer"
                );
                assert_eq!(executed, 1, "request {tag} was answered");
            }
            Err(RpcError::NotSent) => assert_eq!(executed, 0, "request {tag} was not sent"),
            Err(_) => {}
        }
        assert!(
            executed <= 1,
            "the handler of request {tag} ran {executed} times"
        );
    }
    assert_eq!(ended.len(), model.sizes.len(), "a request never ended");
    assert_eq!(net.nodes[0].endpoint.stats().requests_pending, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 2_000 }))]

    #[test]
    fn every_request_ends_exactly_once_and_runs_at_most_once(plan in plans()) {
        run(&plan);
    }
}

/// The simulator's foundation: the same seed gives the same packets, byte for byte.
#[test]
fn the_same_seed_gives_the_same_packets() {
    let packets = |seed| {
        let mut net = Net::new(seed, 2, &Config::default());
        net.recorded = Some(Vec::new());
        let session = net.connected(0, 1);
        net.faults.loss = Ratio::percent(20);
        net.faults.reorder = Ratio::percent(10);
        for tag in 0..50 {
            net.request(0, session, tag, 50 * tag as usize);
        }
        net.run_for(Duration::from_secs(2));
        net.recorded
    };
    assert_eq!(packets(3), packets(3));
    assert_ne!(packets(3), packets(4));
}
