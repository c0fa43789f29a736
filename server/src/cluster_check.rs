//! The cluster-mismatch check: a replica's configured peers must belong to its group. It runs while the replica has no
//! leader. A replica with the files of another group waits for members that are elsewhere, and its peers do not even
//! talk to it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::JoinHandle;

use trine_client::Report;
use trine_protocol::status::Status;
use trine_replica::Replica;
use trine_transport::time::{Duration, Instant};

use trine_base::network::Network;
use trine_base::survey;

/// A replica asks after it had no leader for this long; an election takes less.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two questions.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How long the peers may take to answer one question.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// Asks these peers for their status, in a separate thread.
pub(crate) type StatusSurvey = Box<dyn Fn(Vec<SocketAddr>) -> SurveyThread>;

/// The thread that asks.
type SurveyThread = io::Result<JoinHandle<Vec<Report>>>;

/// How a replica at `own` asks others. `None` where a process has only one port, because the replica uses it.
pub(crate) fn asker<N: Network>(network: &N, own: SocketAddr) -> Option<StatusSurvey> {
    if network.chooses_addresses() {
        return None;
    }
    let network = network.clone();
    Some(Box::new(move |mut others| {
        others.retain(|&address| address != own);
        let network = network.clone();
        std::thread::Builder::new()
            .name("cluster-check".into())
            .spawn(move || survey::ask(&network, &others, ANSWER_LIMIT).unwrap_or_default())
    }))
}

/// The results of the cluster-mismatch check.
#[derive(Default)]
pub(crate) struct ClusterCheck {
    /// The time of the next question; `None` while there is a leader.
    ask_at: Option<Instant>,
    asked: Option<JoinHandle<Vec<Report>>>,
    reported: Option<OtherClusters>,
}

impl ClusterCheck {
    /// Asks if it is time to. Returns its finding once if the peers belong to other groups.
    pub(crate) fn check(
        &mut self,
        replica: &Replica,
        now: Instant,
        ask: Option<impl FnOnce() -> SurveyThread>,
    ) -> Option<OtherClusters> {
        let ask = ask?;
        let own = replica.discovery();
        if own.cluster.is_none() || own.leader.is_some() {
            (self.ask_at, self.asked) = (None, None);
            return None;
        }
        if let Some(answers) = self.asked.take_if(|asked| asked.is_finished()) {
            let reports = answers.join().unwrap_or_default();
            let found = other_clusters(&reports, &own.cluster.to_string());
            if found.is_some() && self.reported != found {
                self.reported.clone_from(&found);
                return found;
            }
        }
        let ask_at = *self.ask_at.get_or_insert(now + PATIENCE);
        if self.asked.is_none() && ask_at <= now {
            self.ask_at = Some(now + ASK_EVERY);
            // Without a thread there is no answer, and the next question follows later.
            self.asked = ask().ok();
        }
        None
    }
}

/// Peers of other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherClusters {
    /// The replica's own group.
    own: String,
    /// The peers' addresses by group.
    others: BTreeMap<String, Vec<SocketAddr>>,
    /// Whether one of these groups has a leader.
    led: bool,
}

/// Returns nothing if a peer belongs to this replica's group. Then this replica cannot tell which of them is wrong.
fn other_clusters(reports: &[Report], own: &str) -> Option<OtherClusters> {
    let statuses = || reports.iter().filter_map(Report::status);
    let mut others: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
    for status in statuses() {
        if let Some(cluster) = &status.cluster {
            let of_one = others.entry(cluster.clone()).or_default();
            of_one.push(status.address);
        }
    }
    let led = |status: &Status| status.leader.is_some();
    (!others.is_empty() && !others.contains_key(own)).then(|| OtherClusters {
        own: own.to_owned(),
        led: statuses().any(led),
        others,
    })
}

impl OtherClusters {
    /// Explains the mismatch and gives advice, for a replica whose data is in `directory` or only in memory.
    pub(crate) fn explain(&self, directory: Option<&Path>, rejoin: bool) -> String {
        let own = &self.own;
        let whose = match directory {
            Some(directory) => format!("the directory {} to cluster {own}", directory.display()),
            None => format!("this replica to cluster {own}"),
        };
        let hint = match (self.led, directory) {
            // The other replica may be the wrong one. No user is told to leave a group for one that does not serve.
            (false, _) => {
                "the list of peers mixes groups: check --peers and --data-dir of each".to_owned()
            }
            (true, None) => format!(
                "if cluster {own} is gone, start this replica again: it joins its peers; otherwise name the peers of \
                 cluster {own} with --peers"
            ),
            (true, Some(_)) => format!(
                "to join these peers start it with an empty directory (--data-dir); to continue in \
                 cluster {own} name its peers with --peers{}",
                match rejoin {
                    true =>
                        "; --rejoin sets aside only what is damaged or was removed, and this is neither",
                    false => "",
                }
            ),
        };
        format!("{self}, {whose}\n  {hint}")
    }
}

impl fmt::Display for OtherClusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (cluster, addresses)) in self.others.iter().enumerate() {
            let separator = if place == 0 { "peers " } else { "; " };
            let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            let verb = if list.len() == 1 { "belongs" } else { "belong" };
            write!(
                f,
                "{separator}{} {verb} to cluster {cluster}",
                list.join(", ")
            )?;
        }
        Ok(())
    }
}
