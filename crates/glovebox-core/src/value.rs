//! Parsing of the values that people type: sizes, durations, CPU counts, plain counts.
//!
//! Each parser returns a sentence that names the forms it accepts; the faces put the flag and the value before it.

use std::time::Duration;

const SIZE_FORMS: &str = "expected a size above 0 such as 512m, 512mb, 512MiB, 1g, 2gb, 1t or plain bytes";
const DURATION_FORMS: &str = "expected a duration above 0 such as 500ms, 30s, 5m or 1h30m";
const CPU_FORMS: &str = "expected a number of CPUs from 0.01 to 4096 such as 1, 0.5 or 2";

/// Parses a size. All units are binary: `512m`, `512mb` and `512MiB` are the same number of bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(SIZE_FORMS.to_owned()),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        // The kernel's own counters of pages and bytes are signed.
        .filter(|n| (1..=i64::MAX as u64).contains(n));
    bytes.ok_or_else(|| SIZE_FORMS.to_owned())
}

/// Parses a duration: one or more of `h`, `m`, `s`, `ms`, largest first, each at most once.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    const LONGEST_MS: u64 = 10 * 365 * 24 * 3_600_000;
    let wrong = || DURATION_FORMS.to_owned();
    let mut rest = text;
    let mut next_unit = 0;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest.bytes().skip(digits).take_while(u8::is_ascii_alphabetic).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..digits + letters].to_ascii_lowercase();
        let at = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        if at < next_unit {
            return Err(wrong());
        }
        next_unit = at + 1;
        total = number
            .checked_mul(UNITS[at].1)
            .and_then(|ms| total.checked_add(ms))
            .filter(|ms| *ms <= LONGEST_MS)
            .ok_or_else(wrong)?;
        rest = &rest[digits + letters..];
    }
    if total == 0 { Err(wrong()) } else { Ok(Duration::from_millis(total)) }
}

/// Parses a number of CPUs, parts of one allowed.
pub fn parse_cpus(text: &str) -> Result<f64, String> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse::<f64>() {
        Ok(n) if plain && (0.01..=4096.0).contains(&n) => Ok(n),
        _ => Err(CPU_FORMS.to_owned()),
    }
}

/// Parses a memory limit: a size of at least 1 MiB, below which not even the process that starts commands fits.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes >= 1 << 20 => Ok(bytes),
        _ => Err(format!("{SIZE_FORMS}, and at least 1m")),
    }
}

/// Parses a number of open files: a whole number from 16, below which programs do not start, to 1048576.
pub fn parse_open_files(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(count) if (16..=1_048_576).contains(&count) => Ok(count),
        _ => Err("expected a whole number from 16 to 1048576".to_owned()),
    }
}

/// Parses a count such as a number of processes: a whole number from 1 to 4194304 (the kernel's highest process id).
pub fn parse_count(text: &str) -> Result<u64, String> {
    const HIGHEST: u64 = 4_194_304;
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(n) if plain && (1..=HIGHEST).contains(&n) => Ok(n),
        _ => Err(format!("expected a whole number from 1 to {HIGHEST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_of_the_contract_parse() {
        for text in ["512m", "512mb", "512MiB", "512M"] {
            assert_eq!(parse_size(text), Ok(512 << 20), "{text}");
        }
        assert_eq!(parse_size("2gb"), Ok(2 << 30));
        assert_eq!(parse_size("1t"), Ok(1 << 40));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_cpus("0.5"), Ok(0.5));
    }

    #[test]
    fn limits_below_what_a_program_needs_are_refused() {
        assert_eq!(parse_memory("1m"), Ok(1 << 20));
        assert!(parse_memory("1000k").unwrap_err().contains("at least 1m"));
        assert_eq!(parse_open_files("16"), Ok(16));
        assert!(parse_open_files("15").is_err());
    }

    #[test]
    fn zero_negative_and_nonsense_are_refused_with_the_forms() {
        for text in ["", "0", "-1", "1x", "m", "1.5g", "99999999999t", "1 g", "+1", "0x10"] {
            assert!(parse_size(text).unwrap_err().contains("512MiB"), "{text}");
        }
        for text in ["", "0", "0s", "-5s", "5", "1s1h", "1m1m", "s", "1d", "1ｓ"] {
            assert!(parse_duration(text).unwrap_err().contains("1h30m"), "{text}");
        }
        for text in ["0", "-1", "nan", "inf", "1e3", "", "5000"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
        for text in ["0", "-1", "1.5", "", "5000000", "+3"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in ".*") {
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
            let _ = parse_cpus(&text);
            let _ = parse_count(&text);
        }

        #[test]
        fn plain_bytes_are_themselves(n in 1u64..=i64::MAX as u64) {
            prop_assert_eq!(parse_size(&n.to_string()), Ok(n));
        }

        #[test]
        fn a_duration_in_parts_is_the_sum_of_its_parts(h in 0u64..1000, m in 0u64..60, s in 0u64..60, ms in 1u64..1000) {
            let text = format!("{h}h{m}m{s}s{ms}ms");
            let expected = Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms);
            prop_assert_eq!(parse_duration(&text), Ok(expected));
        }
    }
}
