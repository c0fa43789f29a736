//! Counts of each fault at one replica as text: by name, in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trine_transport::backend::FaultCounts;

/// The beginning of the line in which a replica with fault injection tells its counts.
pub const FAULTS_LINE: &str = "faults ";

/// The counts as a field of a message.
pub(super) fn serialize<S: Serializer>(counts: &FaultCounts, to: S) -> Result<S::Ok, S::Error> {
    counts.named().collect::<BTreeMap<_, _>>().serialize(to)
}

/// The counts of such a field.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FaultCounts, D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(from)?;
    let named = named.iter().map(|(name, count)| (name.as_str(), *count));
    Ok(FaultCounts::from_named(named))
}

/// The line in which a replica tells its counts.
pub fn to_line(counts: &FaultCounts) -> String {
    let named: BTreeMap<_, _> = counts.named().collect();
    let json = serde_json::to_string(&named).expect("numbers under plain names");
    format!("{FAULTS_LINE}{json}")
}

/// What such a line tells.
pub fn from_line(line: &str) -> Option<FaultCounts> {
    let json = line.strip_prefix(FAULTS_LINE)?;
    deserialize(&mut serde_json::Deserializer::from_str(json)).ok()
}
