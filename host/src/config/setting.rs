//! How a field of the configuration is read from a TOML value and written as one.

use clap::ValueEnum;
use shared_types::Precision;
use toml::Value;

use crate::data::simulate::Market;

/// Which kernels draw a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampler {
    /// Descent of the sum tree.
    #[default]
    Tree,
    /// Prefix sum and binary search.
    Scan,
}

/// A field's type. A value inside of the key's range can always be read, which the tests show for every key.
pub(super) trait Setting: Sized {
    /// The field's value, if the TOML value has its type.
    fn read(value: &Value) -> Option<Self>;
    /// The TOML value.
    fn write(&self) -> Value;
}

macro_rules! whole_number {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            fn read(value: &Value) -> Option<Self> {
                Self::try_from(value.as_integer()?).ok()
            }

            fn write(&self) -> Value {
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )+};
}

whole_number!(u32, u64, usize);

impl Setting for f64 {
    fn read(value: &Value) -> Option<Self> {
        // `clip = 10` is a number too.
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    }

    fn write(&self) -> Value {
        Value::Float(*self)
    }
}

impl Setting for bool {
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn write(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl<const N: usize> Setting for [u32; N] {
    fn read(value: &Value) -> Option<Self> {
        let items: Option<Vec<u32>> = value.as_array()?.iter().map(u32::read).collect();
        items?.try_into().ok()
    }

    fn write(&self) -> Value {
        Value::Array(self.iter().map(u32::write).collect())
    }
}

/// A type whose values have names.
macro_rules! named {
    ($type:ty: $($name:literal = $value:path),+) => {
        impl Setting for $type {
            fn read(value: &Value) -> Option<Self> {
                match value.as_str()? {
                    $($name => Some($value),)+
                    _ => None,
                }
            }

            fn write(&self) -> Value {
                let name = match self {
                    $($value => $name,)+
                };
                Value::String(name.to_owned())
            }
        }
    };
}

named!(Sampler: "tree" = Sampler::Tree, "scan" = Sampler::Scan);
named!(Precision: "bf16" = Precision::Bf16, "f32" = Precision::F32);

impl Setting for Market {
    fn read(value: &Value) -> Option<Self> {
        Self::from_str(value.as_str()?, false).ok()
    }

    fn write(&self) -> Value {
        Value::String(self.name().to_owned())
    }
}
