//! What an upgrade showed, for people and programs, and whether that is enough.

use serde_json::{Value, json};
use trine_base::interrupt;
use trine_base::output::Output;
use trine_base::units::{plural, show_count, show_ns};
use trine_chaos::checker::Verdict;
use trine_chaos::history::History;
use trine_transport::time::Instant;

use super::Upgrade;
use super::crossing::Crossed;
use super::judge::{self, Passed};
use super::legs::Leg;
use super::old_clients::OldSeen;
use super::rolling::Course;

/// Backups that have to cross: one in each direction, on the way on and on the way back.
const CROSSINGS: usize = 4;

/// The findings, and the verdict on them.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    upgrade: &'a Upgrade,
    course: Course,
    /// How often the clients of the old program were answered when each leg that has passed had replaced all replicas.
    answers: Vec<u64>,
    clients: usize,
    pub(crate) verdict: Verdict,
}

impl<'a> Findings<'a> {
    /// Judges what happened. `history` has the operations of all clients.
    pub(crate) fn of(
        upgrade: &'a Upgrade,
        course: Course,
        old: &OldSeen,
        history: &History,
    ) -> Self {
        let answers = |passed: &Passed| {
            let clients = old.counting.iter();
            clients
                .map(|counting| judge::answers(history, counting.client, passed).count() as u64)
                .sum()
        };
        let verdict = old
            .counting
            .iter()
            .map(|counting| judge::judge(history, counting, &course.passed))
            .fold(done(upgrade.in_memory, &course), Verdict::and);
        let verdict = match old.troubles.first() {
            Some(trouble) => {
                Verdict::violation(format!("a client of the old program: {trouble}")).and(verdict)
            }
            None => verdict,
        };
        Self {
            upgrade,
            answers: course.passed.iter().map(answers).collect(),
            clients: old.counting.len(),
            course,
            verdict,
        }
    }

    /// The verdict in one line; a run that was interrupted is not judged by what it has not come to.
    pub(crate) fn verdict_line(&self) -> String {
        match self.verdict.is_pass() || !interrupt::interrupted() {
            true => self.verdict.to_string(),
            false => "not judged: the run was interrupted".to_owned(),
        }
    }

    /// What happened, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let pair = &self.upgrade.pair;
        let course = &self.course;
        let legs = course.passed.iter().zip(&self.answers);
        let legs: Vec<String> = legs
            .map(|(passed, answers)| format!("{} {}", passed.leg, show_count(*answers)))
            .collect();
        let legs = match legs.is_empty() {
            true => "no leg came to its end".to_owned(),
            false => legs.join(", "),
        };
        let mut lines = vec![
            format!("from {} to {}", pair.old, pair.new),
            format!(
                "{} of the old program; answers after each leg: {legs}",
                plural(self.clients as u64, "client")
            ),
            format!(
                "{} made by one program and restored by the other",
                plural(course.crossed.len() as u64, "backup")
            ),
        ];
        if self.upgrade.in_memory {
            lines.push(format!(
                "{} from a leader that was the other program",
                plural(course.snapshots, "snapshot")
            ));
        }
        lines.extend(course.switch.clone());
        if !course.late.is_zero() {
            lines.push(format!(
                "the steps took {} longer than --for",
                show_ns(course.late.as_nanos())
            ));
        }
        lines
    }

    pub(crate) fn print(&self, output: Output) {
        for line in self.lines() {
            output.line(format_args!("upgrade      {line}"));
        }
    }

    /// `begun` is when the clients began to work.
    pub(crate) fn document(&self, begun: Instant) -> Value {
        let since = |at: Instant| at.saturating_since(begun).as_nanos();
        let legs = self.course.passed.iter().zip(&self.answers);
        let leg = |(passed, answers): (&Passed, &u64)| {
            json!({
                "leg": passed.leg.name(),
                "at_ns": since(passed.begun),
                "whole_ns": since(passed.whole),
                "ended_ns": since(passed.ended),
                "answers_to_old_clients": answers,
            })
        };
        let backup = |crossed: &Crossed| {
            json!({
                "made_by": crossed.made_by,
                "restored_by": crossed.restored_by,
                "when": crossed.when,
            })
        };
        json!({
            "programs": self.upgrade.pair.document(),
            "same_build": self.upgrade.pair.are_one_build(),
            "legs": legs.map(leg).collect::<Vec<_>>(),
            "backups": self.course.crossed.iter().map(backup).collect::<Vec<_>>(),
            "snapshots_from_the_other": self.course.snapshots,
            "switch": self.course.switch,
            "late_ns": self.course.late.as_nanos(),
            "passed": self.verdict.is_pass(),
            "text": self.verdict.to_string(),
        })
    }
}

/// Whether everything that belongs to an upgrade has happened.
fn done(in_memory: bool, course: &Course) -> Verdict {
    let nothing = |what: String| Verdict::violation(format!("nothing proved: {what}"));
    let has_passed = |leg: Leg| course.passed.iter().any(|passed| passed.leg == leg);
    if let Some(leg) = Leg::ALL.into_iter().find(|&leg| !has_passed(leg)) {
        return nothing(format!("not every replica was replaced in the leg `{leg}`"));
    }
    if course.crossed.len() < CROSSINGS {
        return nothing(format!(
            "only {} of {CROSSINGS} backups were made by one program and restored by the other",
            course.crossed.len()
        ));
    }
    if in_memory && course.snapshots == 0 {
        return nothing(
            "no replica took a snapshot from a leader that was the other program".into(),
        );
    }
    match course.switch {
        Some(_) => Verdict::Pass,
        None => nothing("the end of the upgrade was not reached".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::time::Duration;

    /// An upgrade in which everything has happened.
    fn whole() -> Course {
        let passed = |leg| Passed {
            leg,
            begun: Instant::from_nanos(1),
            whole: Instant::from_nanos(1),
            ended: Instant::from_nanos(2),
        };
        let crossed = Crossed {
            made_by: "one",
            restored_by: "the other",
            when: "once",
        };
        Course {
            passed: Leg::ALL.map(passed).into(),
            crossed: vec![crossed; CROSSINGS],
            snapshots: 1,
            switch: Some("none".into()),
            late: Duration::ZERO,
        }
    }

    #[test]
    fn an_upgrade_in_which_something_did_not_happen_proves_nothing() {
        assert_eq!(done(true, &whole()), Verdict::Pass);
        let without_snapshots = Course {
            snapshots: 0,
            ..whole()
        };
        assert_eq!(done(false, &without_snapshots), Verdict::Pass);
        let mut two_legs = whole();
        two_legs.passed.pop();
        let mut three_backups = whole();
        three_backups.crossed.pop();
        let no_end = Course {
            switch: None,
            ..whole()
        };
        for (course, part) in [
            (two_legs, "in the leg `on again`"),
            (three_backups, "3 of 4 backups"),
            (without_snapshots, "took a snapshot"),
            (no_end, "the end of the upgrade"),
            (Course::default(), "in the leg `on`"),
        ] {
            let verdict = done(true, &course).to_string();
            assert!(
                verdict.contains("nothing proved") && verdict.contains(part),
                "{verdict}"
            );
        }
    }
}
