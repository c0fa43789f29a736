//! The snapshot in the text format of Prometheus or in that of OpenMetrics, written by `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use trine_protocol::stages::WriteStages;

use super::Snapshot;
use super::accept::Format;
use super::families::{self, Family, MetricKind};
use super::room::Room;
use super::stages;

/// The values that a scrape is made from.
#[derive(Debug, Default)]
pub(super) struct MetricsInput<'a> {
    /// Nothing before the replica's first turn.
    pub(super) snapshot: Option<&'a Snapshot>,
    /// Lines that the log has dropped, if there is one.
    pub(super) dropped_lines: Option<u64>,
    /// The room for the data directory, if there is one.
    pub(super) room: Option<Room>,
}

/// All metrics as text.
pub(super) fn encode(format: Format, input: &MetricsInput<'_>) -> String {
    let mut own = families::server(input.dropped_lines);
    own.extend(input.room.iter().flat_map(families::room));
    own.extend(input.snapshot.map(families::families).unwrap_or_default());
    let stages = input
        .snapshot
        .map(|snapshot| snapshot.status.replica.stages.clone());
    let mut registry = Registry::default();
    for (prefix, families, stages) in [
        ("trine", own, stages),
        ("process", families::process(), None),
    ] {
        let all = All {
            format,
            families,
            stages,
        };
        registry
            .sub_registry_with_prefix(prefix)
            .register_collector(Box::new(all));
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing to a string cannot fail");
    if format == Format::Plain {
        // Only OpenMetrics says where a text ends.
        text.truncate(text.trim_end_matches("# EOF\n").len());
    }
    text
}

#[derive(Debug)]
struct All {
    format: Format,
    families: Vec<Family>,
    stages: Option<WriteStages>,
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families = self.families.iter();
        for family in families.filter(|family| !family.samples.is_empty()) {
            self.encode_family(family, &mut encoder)?;
        }
        match &self.stages {
            Some(stages) => stages::encode(stages, &mut encoder),
            None => Ok(()),
        }
    }
}

impl All {
    fn encode_family(&self, family: &Family, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        // A sample of a counter is called like a gauge of that whole name. The plain format declares the counter by it, too.
        let (name, kind, written_as) = match (family.kind, self.format) {
            (MetricKind::Gauge, _) => {
                (family.name.to_owned(), MetricType::Gauge, MetricKind::Gauge)
            }
            (MetricKind::Counter, Format::Open) => (
                family.name.to_owned(),
                MetricType::Counter,
                MetricKind::Counter,
            ),
            (MetricKind::Counter, Format::Plain) => {
                let name = format!("{}_total", family.name);
                (name, MetricType::Counter, MetricKind::Gauge)
            }
        };
        let mut metric = encoder.encode_descriptor(&name, family.help, None, kind)?;
        for (labels, value) in &family.samples {
            let may_be = family.kind == MetricKind::Gauge || *value >= 0.0;
            assert!(may_be, "{} counts upwards from zero", family.name);
            match labels.is_empty() {
                true => sample(&mut metric, written_as, *value)?,
                false => sample(&mut metric.encode_family(labels)?, written_as, *value)?,
            }
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: f64) -> fmt::Result {
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        MetricKind::Gauge => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::*;

    /// A leader of three with a link.
    pub(in crate::metrics) fn snapshot() -> Snapshot {
        let member = |node_id: u32, this: bool| {
            json!({
                "replica": node_id, "incarnation": format!("{node_id:x}"), "address": format!("127.0.0.1:{node_id}"),
                "voter": true, "this": this, "matched": 90, "lag": 10, "in_snapshot": false, "silent_ns": 5_000_000,
            })
        };
        let status = json!({
            "replica": {
                "replica": 1, "incarnation": "a", "cluster": "c", "address": "127.0.0.1:1", "role": "leader",
                "not_serving": null, "receiving": { "bytes": 300, "bytes_total": 400 }, "term": 7, "leader_address": "127.0.0.1:1", "committed": 100, "applied": 99,
                "group_time_ns": 1, "members": [member(1, true), member(2, false)], "change_in_progress": false,
                "log": to_value::<trine_protocol::status::LogStatus>(),
                "sessions": to_value::<trine_protocol::status::SessionStatus>(),
                "store": to_value::<trine_protocol::status::StoreStatus>(),
                "counters": to_value::<trine_protocol::status::Counters>(),
            },
            "links": [{
                "address": "127.0.0.1:2", "class": "raft", "state": "up", "sessions_lost": 0, "rtt_ns": 20_000,
                "rtt_ns_min": 10_000, "retransmissions": 3, "credits": 32, "credits_in_use": 1, "credit_stalls": 2,
                "rto_ns": 1_000_000, "rate_bytes_per_second": 1_000, "packet_bytes": 1_232,
            }],
            "transport": to_value::<trine_protocol::node_status::TransportStatus>(),
            "keys": {
                "stage": "accept", "sessions": { "member": 4, "admin": 1, "user": 2, "none": 3 },
            },
        });
        Snapshot {
            taken: Instant::now(),
            stopping: false,
            status: serde_json::from_value(status).expect("a status"),
            node: Default::default(),
            endpoint: Default::default(),
            backend: Default::default(),
            event_loop: Default::default(),
            resp: Some(Default::default()),
        }
    }

    fn to_value<T: Default + serde::Serialize>() -> Value {
        serde_json::to_value(T::default()).expect("plain data")
    }

    /// Every value that there can be.
    fn whole(snapshot: &Snapshot) -> MetricsInput<'_> {
        MetricsInput {
            snapshot: Some(snapshot),
            dropped_lines: Some(2),
            room: Some(Room { free: 1, size: 2 }),
        }
    }

    fn open(snapshot: &Snapshot) -> String {
        encode(Format::Open, &whole(snapshot))
    }

    /// Parses the text by those rules of the OpenMetrics 1.0 specification that matter here. Every sample follows the
    /// TYPE of its family, and counters end in `_total`. No sample appears twice, and families do not interleave. The
    /// text ends with `# EOF`. Returns family name to type.
    fn check(text: &str) -> BTreeMap<String, String> {
        let mut types = BTreeMap::new();
        let mut samples = BTreeSet::new();
        let mut current = String::new();
        let body = text.strip_suffix("# EOF\n").expect("an end");
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(
                    types.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "{name} twice"
                );
                current = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(
                    rest.split_once(' ')
                        .is_some_and(|(_, help)| !help.is_empty()),
                    "{line}"
                );
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                value.parse::<f64>().expect(line);
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                assert!(
                    labels.ends_with('}') && labels.matches('"').count() % 2 == 0,
                    "{line}"
                );
                let endings: &[&str] = match types[&current].as_str() {
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                let ending = name.strip_prefix(current.as_str()).expect(line);
                assert!(endings.contains(&ending), "{line}");
                assert!(
                    name.bytes()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
                );
                assert!(samples.insert(series.to_owned()), "{series} twice");
            }
        }
        types
    }

    #[test]
    fn the_text_keeps_the_rules_of_its_format() {
        let text = open(&snapshot());
        let types = check(&text);
        assert!(types.len() > 80, "{} metrics", types.len());
        for line in [
            "trine_raft_role{role=\"leader\"} 1.0",
            "trine_snapshot_receiving_bytes 300.0",
            "trine_snapshot_receiving_total_bytes 400.0",
            "trine_member_lag_entries{node_id=\"2\",address=\"127.0.0.1:2\"} 10.0",
            "trine_link_rtt_seconds{peer=\"127.0.0.1:2\",class=\"raft\"} 0.00002",
            "trine_link_packet_bytes{peer=\"127.0.0.1:2\",class=\"raft\"} 1232.0",
            "trine_transport_black_holes_total 0.0",
            "trine_link_retransmissions_total{peer=\"127.0.0.1:2\",class=\"raft\"} 3.0",
            "trine_write_stage_seconds_bucket{le=\"+Inf\",stage=\"quorum\"} 0",
            "trine_log_lines_dropped_total 2.0",
            "trine_redis_clients_connected 0.0",
            "trine_data_directory_free_bytes 1.0",
            "trine_data_directory_size_bytes 2.0",
            "# TYPE process_cpu_seconds counter",
            "# TYPE process_open_fds gauge",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in:\n{text}"
            );
        }
        // Before the replica's first turn there are fewer metrics, and the text is valid as well.
        check(&encode(Format::Open, &MetricsInput::default()));
    }

    /// The format of Prometheus has neither an end nor types of its own for OpenMetrics, and names a counter in whole.
    #[test]
    fn the_plain_text_has_the_same_samples_and_names_counters_in_whole() {
        let snapshot = snapshot();
        let plain = encode(Format::Plain, &whole(&snapshot));
        let open = open(&snapshot);
        assert!(plain.ends_with('\n') && !plain.contains("# EOF"));
        let samples = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter(|line| line.starts_with("trine_"));
            lines.map(ToOwned::to_owned).collect()
        };
        assert!(samples(&plain).len() > 100);
        assert_eq!(samples(&plain), samples(&open));
        let declared = |text: &str| -> BTreeMap<String, String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            let pairs = lines.map(|line| line.split_once(' ').expect("a type"));
            pairs
                .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
                .collect()
        };
        let renamed = declared(&open)
            .into_iter()
            .map(|(name, kind)| match kind.as_str() {
                "counter" => (name + "_total", kind),
                _ => (name, kind),
            });
        assert_eq!(declared(&plain), renamed.collect());
        let known = ["counter", "gauge", "histogram"];
        assert!(
            declared(&plain)
                .values()
                .all(|kind| known.contains(&kind.as_str()))
        );
    }

    #[test]
    fn the_stage_and_the_roles_of_callers_are_told() {
        let mut snapshot = snapshot();
        for (stage, number) in [("none", 0), ("accept", 1), ("require", 2)] {
            snapshot.status.keys.as_mut().expect("keys").stage = stage.to_owned();
            let text = open(&snapshot);
            check(&text);
            for line in [
                format!("trine_key_stage {number}.0"),
                "trine_sessions_by_role{role=\"member\"} 4.0".to_owned(),
                "trine_sessions_by_role{role=\"none\"} 3.0".to_owned(),
            ] {
                assert!(text.lines().any(|found| found == line), "{line}: {text}");
            }
        }
    }

    #[test]
    fn every_query_of_the_dashboard_names_metrics_that_exist() {
        let dashboard: Value = serde_json::from_str(&packaged("grafana/trine.json")).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let queries: Vec<&str> = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array())
            .flatten()
            .map(|target| target["expr"].as_str().expect("a query"))
            .collect();
        assert!(queries.len() >= 20, "{} queries", queries.len());
        for query in queries {
            assert!(names_metrics_that_exist(query), "{query}");
        }
    }

    #[test]
    fn every_alert_names_metrics_that_exist() {
        let rules = packaged("prometheus/rules.yml");
        let code = rules.lines().filter(|line| !line.trim().starts_with('#'));
        assert!(names_metrics_that_exist(
            &code.collect::<Vec<_>>().join("\n")
        ));
    }

    fn packaged(file: &str) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/");
        std::fs::read_to_string(format!("{path}{file}")).expect("a file")
    }

    /// Whether at least one metric is named. Panics for one that does not exist.
    fn names_metrics_that_exist(query: &str) -> bool {
        let known: BTreeSet<String> = check(&open(&snapshot()))
            .into_iter()
            .map(|(name, kind)| match kind.as_str() {
                "counter" => name + "_total",
                "histogram" => name + "_bucket",
                _ => name,
            })
            .collect();
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("trine_")).collect();
        for name in &named {
            assert!(known.contains(*name), "{name} does not exist: {query}");
        }
        !named.is_empty()
    }
}
