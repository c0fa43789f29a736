//! Records on their way to the group, several in one command.

use std::time::SystemTime;

use trine_base::answers::{response_of, store_failure, unexpected};
use trine_base::client::CommandClient;
use trine_base::failure::Failure;
use trine_client::Mode;
use trine_kvstore::{Command, ExecuteMode, List, Response, StoreError};

use super::Done;
use crate::cmd::record::ImportRecord;

/// Bytes and records that one command carries.
const BYTES_MAX: usize = 256 * 1024;
const RECORDS_MAX: usize = 512;

/// The records of the next command.
pub(super) struct Batch<'s> {
    session: &'s mut CommandClient,
    records: Vec<(u64, ImportRecord)>,
    bytes: usize,
    done: Done,
}

impl<'s> Batch<'s> {
    pub(super) fn new(session: &'s mut CommandClient) -> Self {
        Self {
            session,
            records: Vec::new(),
            bytes: 0,
            done: Done::default(),
        }
    }

    pub(super) fn done(&self) -> Done {
        self.done
    }

    pub(super) fn count_bad(&mut self) {
        self.done.bad += 1;
    }

    /// Adds the record of a line, and sends what there is if that is enough.
    pub(super) fn add(&mut self, line: u64, record: ImportRecord) -> Result<(), Failure> {
        self.bytes += record.bytes();
        self.records.push((line, record));
        match self.bytes >= BYTES_MAX || self.records.len() >= RECORDS_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what there is.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let records = std::mem::take(&mut self.records);
        if records.is_empty() || self.send(&records)? {
            return Ok(());
        }
        // Together they overwrite more than one command may have to undo.
        for record in records.chunks(1) {
            if !self.send(record)? {
                return Err(store_failure(StoreError::ExecuteTooLarge).at_line(record[0].0));
            }
        }
        Ok(())
    }

    /// False if nothing was done because it was too much for one command.
    fn send(&mut self, records: &[(u64, ImportRecord)]) -> Result<bool, Failure> {
        let now = SystemTime::now();
        let mut lines = Vec::with_capacity(records.len());
        let mut operations = Vec::with_capacity(records.len());
        for (line, record) in records {
            if let Some(command) = record.command(now) {
                lines.push(*line);
                operations.push(command);
            }
        }
        let expired = (records.len() - operations.len()) as u64;
        if operations.is_empty() {
            self.done.expired += expired;
            return Ok(true);
        }
        let command = Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::default(),
            operations: List::from(operations.as_slice()),
        };
        let answer = self.session.execute(Mode::Write, &command)?;
        if let Ok(Response::Error(StoreError::ExecuteTooLarge)) = answer.response() {
            return Ok(false);
        }
        let answers = match response_of(&answer)? {
            Response::List(answers) => answers,
            other => return Err(unexpected(&other)),
        };
        self.done.expired += expired;
        let mut refused = None;
        for (line, answer) in lines.iter().zip(answers.iter()) {
            match answer {
                Response::Written { .. } => self.done.written += 1,
                Response::Error(error) => {
                    refused.get_or_insert_with(|| store_failure(error).at_line(*line));
                }
                other => {
                    refused.get_or_insert_with(|| unexpected(&other));
                }
            }
        }
        refused.map_or(Ok(true), Err)
    }
}
