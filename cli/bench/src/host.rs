//! The machine and the build of a measurement: figures of different ones are not comparable.

use serde::{Deserialize, Serialize};
use trine_protocol::program::Program;

/// Whether this program was built with optimization. The profiles `dev` and `quick` have none, or little.
pub(super) const IS_OPTIMIZED: bool = matches!(env!("TRINE_OPT_LEVEL").as_bytes(), b"2" | b"3");

/// The properties beside the settings that a figure depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HostInfo {
    pub(super) processor: String,
    pub(super) cores: usize,
    /// The kernel's frequency governor; "unknown" in most virtual machines.
    pub(super) governor: String,
    pub(super) kernel: String,
    /// The version of the build that measured.
    pub(super) version: String,
    pub(super) commit: String,
    /// Whether the build was optimized, as those of `--release` are.
    pub(super) optimized: bool,
    /// Processes that wanted to run in the last minute, at the start. A different number does not forbid a comparison,
    /// but casts doubt on it.
    pub(super) load_average: f64,
}

impl HostInfo {
    pub(super) fn detect() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        let or_unknown = |text: &str| match text.trim() {
            "" => "unknown".to_owned(),
            text => text.to_owned(),
        };
        Self {
            processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            governor: or_unknown(&read(
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            )),
            kernel: or_unknown(&read("/proc/sys/kernel/osrelease")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: Program::this().commit,
            optimized: IS_OPTIMIZED,
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// The differences from `other` that make figures incomparable. The commit may differ, because commits are what
    /// users compare.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = [
            ("processor", self.processor.clone(), other.processor.clone()),
            ("cores", self.cores.to_string(), other.cores.to_string()),
            ("governor", self.governor.clone(), other.governor.clone()),
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            (
                "optimized",
                self.optimized.to_string(),
                other.optimized.to_string(),
            ),
        ];
        let different = pairs.into_iter().filter(|(_, now, then)| now != then);
        different
            .map(|(name, now, then)| format!("{name}: {then} then, {now} now"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_told_from_another_commit() {
        let host = HostInfo::detect();
        assert!(host.cores > 0 && !host.kernel.is_empty() && !host.commit.is_empty());
        let later = HostInfo {
            commit: "other".into(),
            load_average: 99.0,
            ..host.clone()
        };
        assert!(later.differences(&host).is_empty());
        let elsewhere = HostInfo {
            cores: host.cores + 1,
            ..host.clone()
        };
        assert_eq!(elsewhere.differences(&host).len(), 1);
    }
}
