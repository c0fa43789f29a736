//! Turns the model into a grid of cells.

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Sparkline, Table};

use super::columns::{self, shortened};
use super::model::{Action, Dialog, Model};
use trine_base::units::{show_count, show_ns};

/// A screen this high has room for a taller plot.
const TALL: u16 = 40;
const KEYS: &str = " q quit   arrows select   t transfer leadership   p pause   ? help";
const FAULT_KEYS: &str =
    " q quit  arrows select  t transfer  s stop  b block  c heal  p pause  ? help";
/// This follows the first lines of the help.
const FAULT_HELP: &str = " s          pause the selected replica (SIGSTOP), after y
 b          block its link to another one: its number, then y
 c          heal: resume all replicas, remove all faults; q does so, too
";
/// The boundary between the keys and the terms in the help.
const HELP_PARTS: &str = "\n\n lag ";
const HELP: &str = " up, down   select a replica
 t          transfer leadership to the selected replica, after y
 p          pause and resume this screen
 q, Ctrl-C  quit

 lag        entries that the leader has and the replica has not
 retransmitted
            packets, since the replica's start or in the link's session
 stages     where a write's time goes at the leader, of a sample;
            each figure is the upper end of a power of two
 credits    in use, of those agreed on
 packet     bytes of the largest packet of the link's session
 keys       which callers are taken; the sessions of others, by role
 pacing     the rate that congestion control allows

 Any key closes this.";

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let plot = if area.height >= TALL { 9 } else { 3 };
    let replicas = u16::try_from(model.replicas.len()).unwrap_or(u16::MAX);
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(plot),
        Constraint::Length(replicas.saturating_add(2).min(area.height / 2)),
        Constraint::Length(4),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [top, throughput, group, stages, links, foot] = parts.areas(area);
    draw_summary(frame, model, top);
    draw_throughput(frame, model, throughput);
    draw_replicas(frame, model, group);
    draw_stages(frame, model, stages);
    draw_links(frame, model, links);
    draw_foot(frame, model, foot);
    if model.dialog == Dialog::Help {
        draw_help(frame, model.fault_injection, area);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn section(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .title(title)
        .title_style(bold())
}

fn draw_summary(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let mut right_words = match model.faults.as_str() {
        "" => String::new(),
        faults => format!(" {faults} "),
    };
    if model.paused {
        right_words.push_str("PAUSED ");
    }
    let width = u16::try_from(right_words.len()).unwrap_or(0);
    let parts = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]);
    let [left, right] = parts.areas(area);
    let summary = shortened(&format!(" {}", model.summary), left.width);
    frame.render_widget(Line::styled(summary, bold()), left);
    frame.render_widget(
        Line::styled(right_words, Style::new().fg(Color::Yellow)),
        right,
    );
}

fn draw_throughput(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = section(" throughput ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [text, plot] =
        Layout::horizontal([Constraint::Length(46), Constraint::Fill(1)]).areas(inner);
    let lines = match &model.interval {
        None => vec![Line::raw(" measuring")],
        Some(interval) => {
            let writes = interval.writes_per_second;
            let writes = writes.map_or("-".to_owned(), |rate| show_count(rate as u64));
            let lag = interval.lag.map_or("-".to_owned(), show_count);
            let first = format!(" writes/s {writes:>11}   lag {lag:>14}",);
            let second = format!(
                " reads/s  {:>11}   retransmitted {:>4}",
                show_count(interval.reads_per_second as u64),
                interval.retransmissions
            );
            vec![Line::raw(first), Line::raw(second)]
        }
    };
    frame.render_widget(Paragraph::new(lines), text);
    let newest = model.history.len().saturating_sub(usize::from(plot.width));
    let data = model.history.iter().skip(newest).copied();
    let style = Style::new().fg(Color::Cyan);
    frame.render_widget(
        Sparkline::default()
            .data(data.collect::<Vec<_>>())
            .style(style),
        plot,
    );
}

/// A table of these columns, as far as there is room, see [`columns::Columns`]. The first `left` cells of each row are aligned
/// on the left.
fn fitted<'a>(
    header: &[&'a str],
    rows: &'a [(Vec<&'a str>, Style)],
    shape: &columns::TableLayout<'_>,
    left: usize,
    width: u16,
) -> Table<'a> {
    let cells = rows.iter().map(|(cells, _)| cells.as_slice());
    let columns = columns::Columns::fit(header, cells.clone(), shape, width);
    let left = columns.kept().filter(|column| *column < left).count();
    let rows = rows
        .iter()
        .map(|(cells, style)| row(columns.of(cells), left).style(*style));
    let table = Table::new(rows, columns.constraints());
    match header {
        [] => table,
        header => table.header(row(columns.of(header), left).style(bold())),
    }
}

/// A row of text. The first `left` cells are left-aligned, and the numbers after them are right-aligned.
fn row<'a>(cells: impl IntoIterator<Item = Cow<'a, str>>, left: usize) -> Row<'a> {
    let cell = |(column, text): (usize, Cow<'a, str>)| {
        let side = if column < left {
            Alignment::Left
        } else {
            Alignment::Right
        };
        Cell::from(Text::raw(text).alignment(side))
    };
    Row::new(cells.into_iter().enumerate().map(cell).collect::<Vec<_>>())
}

fn draw_replicas(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let header = [
        " id",
        "address",
        "role",
        "term",
        "applied",
        "lag",
        "reads/s",
        "keys",
        "retransmitted",
    ];
    let rows = model.replicas.iter().enumerate();
    let rows = rows.map(|(index, replica)| {
        let style = match (index == model.selected, replica.cells[2].as_str()) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, "leader") => Style::new().fg(Color::Green),
            (false, "silent") => Style::new().fg(Color::Red),
            _ => Style::new(),
        };
        (replica.cells.iter().map(String::as_str).collect(), style)
    });
    let rows: Vec<(Vec<&str>, Style)> = rows.collect();
    let shape = columns::TableLayout {
        shares: &[3, 20, 9, 5, 11, 6, 8, 7, 13],
        drops: &[8, 7, 6, 3, 5, 4],
    };
    let title = match model.keys.as_str() {
        "" => " replicas ".to_owned(),
        keys => format!(" replicas, keys {keys} "),
    };
    let table = fitted(&header, &rows, &shape, 3, area.width).block(section(&title));
    frame.render_widget(table, area);
}

fn draw_stages(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let time = |ns: Option<u64>| ns.map_or("-".to_owned(), show_ns);
    let stages = model.interval.as_ref().map(|interval| &interval.stages);
    let (mut names, mut p50, mut p99) = (
        vec![" ".to_owned()],
        vec![" p50".to_owned()],
        vec![" p99".to_owned()],
    );
    for stage in stages.into_iter().flatten() {
        names.push(stage.name.to_owned());
        p50.push(time(stage.p50_ns));
        p99.push(time(stage.p99_ns));
    }
    let rows = match names.len() {
        1 => vec![["", "measuring", "", "", ""].map(str::to_owned).to_vec()],
        _ => vec![names, p50, p99],
    };
    let rows: Vec<(Vec<&str>, Style)> = rows
        .iter()
        .map(|cells| (cells.iter().map(String::as_str).collect(), Style::new()))
        .collect();
    let shape = columns::TableLayout {
        shares: &[1; 5],
        drops: &[],
    };
    let table = fitted(&[], &rows, &shape, 1, area.width);
    let table = table.block(section(" stages of a write at the leader "));
    frame.render_widget(table, area);
}

fn draw_links(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let header = [
        " link",
        "state",
        "rtt",
        "min RTT",
        "timeout",
        "retransmitted",
        "credits",
        "packet",
        "pacing",
    ];
    let rows = model.links.iter().map(|link| {
        let style = match link[1].as_str() {
            "up" => Style::new(),
            _ => Style::new().fg(Color::Red),
        };
        (link.iter().map(String::as_str).collect(), style)
    });
    let rows: Vec<(Vec<&str>, Style)> = rows.collect();
    let shape = columns::TableLayout {
        shares: &[11, 10, 8, 8, 8, 13, 8, 7, 12],
        drops: &[8, 7, 6, 4, 3, 5],
    };
    let table = fitted(&header, &rows, &shape, 2, area.width).block(section(" links "));
    frame.render_widget(table, area);
}

fn draw_foot(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let (text, style) = match model.dialog {
        Dialog::Confirm(action) => (
            format!(" {} y yes, any other key no", question(action)),
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        ),
        Dialog::OtherEnd { from, typed } => (
            format!(
                " Block the link of replica {from} to which other one? {}",
                so_far(typed)
            ),
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        ),
        _ if !model.message.is_empty() => (format!(" {}", model.message), bold()),
        _ if model.fault_injection => (
            FAULT_KEYS.to_owned(),
            Style::new().add_modifier(Modifier::DIM),
        ),
        _ => (KEYS.to_owned(), Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(Line::styled(shortened(&text, area.width), style), area);
}

/// The digits of the other end so far, and what ends them.
fn so_far(typed: u64) -> String {
    match typed {
        0 => "its number, any other key none".to_owned(),
        typed => format!("{typed}_  Enter confirms, Esc cancels"),
    }
}

/// The question of a confirmation.
fn question(action: Action) -> String {
    match action {
        Action::Transfer(node_id) => format!("Transfer leadership to replica {node_id}?"),
        Action::Stop(node_id) => format!("Pause replica {node_id}?"),
        Action::Block(from, to) => format!("Block the link between {from} and {to}?"),
        Action::Heal | Action::None | Action::Quit => String::new(),
    }
}

fn draw_help(frame: &mut Frame<'_>, fault_injection: bool, area: Rect) {
    let help = match fault_injection {
        true => HELP.replacen(HELP_PARTS, &format!("\n{FAULT_HELP}\n lag "), 1),
        false => HELP.to_owned(),
    };
    let height = help.lines().count() as u16 + 2;
    let inside = area.centered(Constraint::Length(70), Constraint::Length(height));
    frame.render_widget(Clear, inside);
    let block = Block::bordered().title(" help ");
    frame.render_widget(Paragraph::new(help).block(block), inside);
}
