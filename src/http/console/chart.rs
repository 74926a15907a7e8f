//! Charts as SVG, drawn from whole numbers.

use std::fmt::Write as _;

use crate::inquiry::Point;

const WIDTH: i128 = 720;
const HEIGHT: i128 = 160;
const EDGE: i128 = 8;

/// The points of a step line through the balance over time, for a `polyline` in a box of 720 x 160. Empty with
/// fewer than two rows.
pub fn balance_line(points: &[Point]) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    if points.len() < 2 {
        return String::new();
    }
    let lowest = points.iter().map(|point| point.balance.get()).min().unwrap_or_default().min(0);
    let highest = points.iter().map(|point| point.balance.get()).max().unwrap_or_default().max(0);
    // Rows of one moment lie beside each other all the same.
    let at_once = first.at == last.at;
    let when = |point: &Point| if at_once { point.seq } else { point.at.timestamp_micros() };
    let (began, ended) = (when(first), when(last));
    let mut line = String::new();
    let mut previous_y: Option<i128> = None;
    for point in points {
        let x = place(when(point), began, ended, WIDTH);
        let y = HEIGHT.saturating_sub(place(point.balance.get(), lowest, highest, HEIGHT));
        if let Some(before) = previous_y {
            let _ = write!(line, "{x},{before} ");
        }
        let _ = write!(line, "{x},{y} ");
        previous_y = Some(y);
    }
    line.trim_end().to_owned()
}

/// The height of the zero line in the same box.
pub fn zero_line(points: &[Point]) -> i128 {
    let lowest = points.iter().map(|point| point.balance.get()).min().unwrap_or_default().min(0);
    let highest = points.iter().map(|point| point.balance.get()).max().unwrap_or_default().max(0);
    HEIGHT.saturating_sub(place(0, lowest, highest, HEIGHT))
}

/// Where a value lies between two, on a scale with an edge at both ends.
fn place(value: i64, lowest: i64, highest: i64, scale: i128) -> i128 {
    let span = i128::from(highest).saturating_sub(i128::from(lowest));
    let room = scale.saturating_sub(EDGE.saturating_mul(2));
    let offset = i128::from(value).saturating_sub(i128::from(lowest)).saturating_mul(room);
    EDGE.saturating_add(offset.checked_div(span).unwrap_or_default())
}

/// A bar of a bar chart, in a box of 720 x 160.
#[derive(Debug, Clone)]
pub struct Bar {
    pub x: i128,
    pub y: i128,
    pub width: i128,
    pub height: i128,
    pub label: String,
    pub value: String,
}

/// Bars side by side, as high as their values in proportion to the largest.
pub fn bars(values: &[(String, i64, String)]) -> Vec<Bar> {
    let largest = values.iter().map(|(_, value, _)| i128::from(*value).abs()).max().unwrap_or_default().max(1);
    let count = i128::try_from(values.len()).unwrap_or(1).max(1);
    let step = WIDTH.checked_div(count).unwrap_or(WIDTH);
    values
        .iter()
        .enumerate()
        .map(|(index, (label, value, text))| {
            let room = HEIGHT.saturating_sub(32);
            let height = i128::from(*value).abs().saturating_mul(room).checked_div(largest).unwrap_or_default().max(1);
            Bar {
                x: i128::try_from(index).unwrap_or_default().saturating_mul(step).saturating_add(EDGE),
                y: HEIGHT.saturating_sub(16).saturating_sub(height),
                width: step.saturating_sub(EDGE.saturating_mul(2)).max(4),
                height,
                label: label.clone(),
                value: text.clone(),
            }
        })
        .collect()
}
