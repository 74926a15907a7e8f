//! The table of ratios.

/// Which way is good.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

struct Row {
    what: String,
    ours: String,
    raw: String,
    ratio: f64,
    unit: &'static str,
    reach: Reach,
}

/// What was measured so far.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    skipped: Vec<String>,
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    /// A ratio of ours to raw.
    pub fn ratio(&mut self, what: impl Into<String>, ours: (f64, &str), raw: (f64, &str), reach: Reach) {
        let text = |(value, unit): (f64, &str)| format!("{} {unit}", number(value));
        let row = Row { what: what.into(), ours: text(ours), raw: text(raw), ratio: ours.0 / raw.0, unit: "x", reach };
        eprintln!("  {}: {} against {}", row.what, row.ours, row.raw);
        self.rows.push(row);
    }

    /// A number that stands for itself.
    pub fn number(&mut self, what: impl Into<String>, value: f64, unit: &'static str, reach: Reach) {
        let what = what.into();
        eprintln!("  {what}: {} {unit}", number(value));
        let ours = format!("{} {unit}", number(value));
        self.rows.push(Row { what, ours, raw: "-".to_owned(), ratio: value, unit, reach });
    }

    pub fn skip(&mut self, why: impl Into<String>) {
        self.skipped.push(why.into());
    }

    pub fn print(&self) {
        println!();
        let header = ["what", "ours", "raw", "ratio", "reach", "reached"].map(ToOwned::to_owned);
        let lines: Vec<[String; 6]> = std::iter::once(header).chain(self.rows.iter().map(line)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let widths: [usize; 6] = std::array::from_fn(width);
        for line in &lines {
            let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
        for why in &self.skipped {
            println!("skipped: {why}");
        }
        let missed: Vec<&str> = self.rows.iter().filter(|row| !reached(row)).map(|row| row.what.as_str()).collect();
        if !missed.is_empty() {
            println!("\nNot reached: {}.", missed.join("; "));
        } else if !self.rows.is_empty() {
            println!("\nEvery reach is reached.");
        }
    }
}

fn line(row: &Row) -> [String; 6] {
    let reach = match row.reach {
        Reach::AtMost(most) => format!("<= {most} {}", row.unit),
        Reach::AtLeast(least) => format!(">= {least} {}", row.unit),
    };
    let ratio = if row.unit == "x" { format!("{:.2} x", row.ratio) } else { "-".to_owned() };
    let reached = if reached(row) { "yes" } else { "NO" };
    [row.what.clone(), row.ours.clone(), row.raw.clone(), ratio, reach, reached.to_owned()]
}

fn reached(row: &Row) -> bool {
    match row.reach {
        Reach::AtMost(most) => row.ratio <= most,
        Reach::AtLeast(least) => row.ratio >= least,
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
