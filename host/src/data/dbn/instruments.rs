//! Which instrument a record belongs to: numeric ids and their names, which may change from day to day.

use crate::data::bars::DAY_NS;
use crate::data::symbols::SymbolFilter;
use ::dbn::{Metadata, RecordRef, SType, SymbolMappingMsg};
use std::collections::HashMap;

/// One name of an id for a span of time.
#[derive(Debug)]
struct Span {
    start_ns: i64,
    end_ns: i64,
    name: String,
}

/// The last answer for an id, good within its span.
#[derive(Clone, Copy, Debug)]
struct Answer {
    start_ns: i64,
    end_ns: i64,
    admitted: bool,
}

/// Names by id and time.
#[derive(Debug, Default)]
pub(super) struct Instruments {
    spans: HashMap<u32, Vec<Span>>,
    answers: HashMap<u32, Answer>,
}

impl Instruments {
    /// The mappings of a historical file: from names to ids, or the other way round.
    pub(super) fn from_metadata(metadata: &Metadata) -> Self {
        let mut instruments = Self::default();
        let names_come_out = metadata.stype_in == Some(SType::InstrumentId);
        for mapping in &metadata.mappings {
            for interval in &mapping.intervals {
                let (name, id) = match names_come_out {
                    true => (&interval.symbol, &mapping.raw_symbol),
                    false => (&mapping.raw_symbol, &interval.symbol),
                };
                if let (Ok(id), false) = (id.parse(), name.is_empty()) {
                    let start_ns = midnight_ns(interval.start_date.to_julian_day());
                    let end_ns = midnight_ns(interval.end_date.to_julian_day());
                    instruments.add(id, Span { start_ns, end_ns, name: name.clone() });
                }
            }
        }
        instruments
    }

    fn add(&mut self, id: u32, span: Span) {
        self.answers.remove(&id);
        self.spans.entry(id).or_default().push(span);
    }

    /// Takes in a mapping that stands among the records, as in files saved from a live stream.
    pub(super) fn learn(&mut self, record: &RecordRef<'_>) -> Result<(), String> {
        if !record.has::<SymbolMappingMsg>() {
            return Ok(());
        }
        let mapping: &SymbolMappingMsg = record.try_get().map_err(|_| "is shorter than its type".to_string())?;
        let name = mapping.stype_out_symbol().map_err(|_| "has a symbol without an end".to_string())?;
        if !name.is_empty() {
            let span = Span { start_ns: i64::MIN, end_ns: i64::MAX, name: name.to_owned() };
            self.add(mapping.hd.instrument_id, span);
        }
        Ok(())
    }

    /// Asks `symbols` whether a record of this id and time is wanted, by its name or by its id.
    pub(super) fn admits(&mut self, id: u32, time_ns: i64, wanted: Option<&str>, symbols: &mut SymbolFilter) -> bool {
        if let Some(answer) = self.answers.get(&id).filter(|a| (a.start_ns..a.end_ns).contains(&time_ns)) {
            return answer.admitted;
        }
        let spans = self.spans.get(&id).map_or(&[][..], Vec::as_slice);
        let here = || spans.iter().filter(|s| (s.start_ns..s.end_ns).contains(&time_ns));
        let span = here().find(|s| Some(s.name.as_str()) == wanted).or_else(|| here().next());
        let id_text = id.to_string();
        let name = match span {
            Some(span) if wanted != Some(&id_text) => &span.name,
            _ => &id_text,
        };
        let admitted = symbols.admits(name);
        if let Some(span) = span {
            self.answers.insert(id, Answer { start_ns: span.start_ns, end_ns: span.end_ns, admitted });
        }
        admitted
    }
}

/// Midnight UTC of a Julian day, at the ends of 64-bit nanoseconds for days beyond them.
fn midnight_ns(julian_day: i32) -> i64 {
    const JULIAN_DAY_1970: i64 = 2_440_588;
    (i64::from(julian_day) - JULIAN_DAY_1970).saturating_mul(DAY_NS)
}
