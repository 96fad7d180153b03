//! A file of `dump`, read.

use std::collections::BTreeMap;
use std::path::Path;

use half::bf16;
use onegraph_tests::{Failed, ensure};
use safetensors::{Dtype, SafeTensors};

/// Tensors whose columns are compared one by one, with their number: entries of the internal state vector, losses of the heads and of
/// the rows.
const SPLIT: [(&str, usize); 4] = [("isv.before", 64), ("isv.after", 64), ("head_losses", 6), ("row_losses", 4)];

/// The tensors by name.
pub struct Tensors(BTreeMap<String, (Dtype, Vec<u8>)>);

impl Tensors {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failed> {
        let bytes = std::fs::read(path)?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let owned =
            |(name, view): (String, safetensors::tensor::TensorView<'_>)| (name, (view.dtype(), view.data().to_vec()));
        Ok(Self(tensors.tensors().into_iter().map(owned).collect()))
    }

    /// Names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A tensor's elements, of whatever type.
    pub fn values(&self, name: &str) -> Result<Vec<f64>, Failed> {
        let (dtype, bytes) = self.0.get(name).ok_or_else(|| Failed::from(format!("the dump has no {name}")))?;
        let words = |width: usize| bytes.chunks_exact(width);
        let word = |bytes: &[u8]| -> [u8; 4] { bytes.try_into().expect("a chunk of four") };
        Ok(match dtype {
            Dtype::F32 => words(4).map(|x| f32::from_le_bytes(word(x)).into()).collect(),
            Dtype::U32 => words(4).map(|x| u32::from_le_bytes(word(x)).into()).collect(),
            Dtype::I32 => words(4).map(|x| i32::from_le_bytes(word(x)).into()).collect(),
            Dtype::BF16 => words(2).map(|x| bf16::from_le_bytes(x.try_into().expect("two")).into()).collect(),
            Dtype::F64 => words(8).map(|x| f64::from_le_bytes(x.try_into().expect("eight"))).collect(),
            Dtype::U8 => bytes.iter().map(|&x| x.into()).collect(),
            other => return Err(format!("{name} is of type {other:?}").into()),
        })
    }

    /// The only element of a tensor.
    pub fn one(&self, name: &str) -> Result<f64, Failed> {
        let values = self.values(name)?;
        ensure!(values.len() == 1, "{name} has {} elements", values.len());
        Ok(values[0])
    }

    /// Entry `index` of the internal state vector as the step left it.
    pub fn isv(&self, index: usize) -> Result<f64, Failed> {
        Ok(self.values("isv.after")?[index])
    }

    /// Names of what differs in a bit, or is in one of the two alone.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let mut names: Vec<&String> = self.0.keys().chain(other.0.keys()).collect();
        names.sort();
        names.dedup();
        let mut differing = Vec::new();
        for name in names {
            let columns = SPLIT.iter().find(|(split, _)| split == name).map(|(_, columns)| *columns);
            match (self.0.get(name), other.0.get(name), columns) {
                (Some((_, one)), Some((_, two)), Some(n_columns)) => {
                    let words = || one.chunks(4).zip(two.chunks(4)).enumerate();
                    let differs =
                        |column: &usize| words().any(|(at, (one, two))| at % n_columns == *column && one != two);
                    differing.extend((0..n_columns).filter(differs).map(|column| format!("{name}.{column}")));
                }
                (one, two, _) if one != two => differing.push(name.clone()),
                _ => {}
            }
        }
        differing
    }
}
