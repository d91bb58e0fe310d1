//! Formats the current UTC time for templates, with the conversion specifiers of C's `strftime`.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The days of the week from 1 January 1970, which was a Thursday.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Returns the current UTC time in a format of `strftime`.
pub(super) fn now(format: &str) -> Result<String, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(format, since.as_secs())
}

/// Formats a time that is given in seconds since 1 January 1970, UTC.
fn written(format: &str, seconds: u64) -> Result<String, Error> {
    let (day, second) = (seconds / 86400, seconds % 86400);
    let [year, month, date] = civil(day);
    let name = |of: &str, short: bool| if short { of[..3].to_string() } else { of.to_string() };
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let code = rest.next();
        text += &match code {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{date:02}"),
            Some('e') => format!("{date:2}"),
            Some(c @ ('B' | 'b')) => name(MONTHS[month as usize - 1], c == 'b'),
            Some(c @ ('A' | 'a')) => name(DAYS[(day % 7) as usize], c == 'a'),
            Some('H') => format!("{:02}", second / 3600),
            Some('M') => format!("{:02}", second / 60 % 60),
            Some('S') => format!("{:02}", second % 60),
            Some('%') => "%".into(),
            other => {
                let problem = format!("`%{}` in the format {format:?} is not supported", other.unwrap_or(' '));
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
        };
    }
    Ok(text)
}

/// Converts days since 1 January 1970 to a year, a month and a day of the month. The algorithm is `civil_from_days` of
/// Hinnant, "chrono-compatible low-level date algorithms".
fn civil(days: u64) -> [u64; 3] {
    // Years start in March here, so a leap day is the last day of its year. 719,468 is the number of days from 1 March
    // of the year 0 to 1 January 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, carried) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    [year + 400 * era + carried, month, date]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| written("%A %d %B %Y, %a %e %b %y %m %H:%M:%S %%", seconds).unwrap();
        assert_eq!(at(0), "Thursday 01 January 1970, Thu  1 Jan 70 01 00:00:00 %");
        assert_eq!(at(951_782_400 + 3_661), "Tuesday 29 February 2000, Tue 29 Feb 00 02 01:01:01 %");
        assert_eq!(at(4_107_542_399), "Sunday 28 February 2100, Sun 28 Feb 00 02 23:59:59 %");
        assert_eq!(at(4_107_542_400), "Monday 01 March 2100, Mon  1 Mar 00 03 00:00:00 %");
        assert!(written("%Q", 0).unwrap_err().to_string().contains("`%Q`"));
        assert!(written("%", 0).is_err());
    }
}
