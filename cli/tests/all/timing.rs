//! `trine put --timing`, and the replicas' counters of all writes.

use crate::common::Cluster;
use trine_client::leader_of;

#[test]
fn a_write_says_where_its_time_went() {
    let cluster = Cluster::start(&[]);
    let stages = [
        "client", "network", "queue", "append", "quorum", "apply", "total",
    ];
    let printed =
        String::from_utf8(cluster.ok(&["put", "key", "value", "--timing"])).expect("text");
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    assert_eq!(lines.len(), stages.len(), "{printed}");
    for (line, stage) in lines.iter().zip(stages) {
        assert!(line.starts_with(stage), "{printed}");
    }
    let document = cluster
        .run(&["put", "key", "value", "--timing", "--json"])
        .expect_status(0)
        .json();
    let timing = document["timing_ns"].as_object().expect("a timing");
    let of = |stage: &str| timing[stage].as_u64().expect("a number");
    assert!(
        of("quorum") > 1_000,
        "another process had to answer: {timing:?}"
    );
    let parts: u64 = stages[..6].iter().map(|stage| of(stage)).sum();
    assert!(parts >= of("total"), "{timing:?}");
    let untimed = cluster.run(&["put", "key", "value", "--json"]);
    assert!(untimed.expect_status(0).json()["timing_ns"].is_null());
    let reports = cluster.survey();
    let leader = leader_of(&reports).expect("a leader");
    let counts = leader.stages.stages().map(|(_, histogram)| histogram.count);
    assert!(counts.iter().all(|&count| count >= 2), "{counts:?}");
}
