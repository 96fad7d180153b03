use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use toml::Value;

use super::range::{Form, Range};
use super::*;

const FILE: &str = "onegraph.toml";

fn tiny() -> Layers {
    Layers::new(Preset::Tiny, DataSource::Simulator)
}

/// What a file on top of `tiny` makes, or its message.
fn with_file(text: &str) -> Result<Config, String> {
    let mut layers = tiny();
    layers.toml(Path::new(FILE), text).and_then(|()| layers.finish()).map_err(|error| error.to_string())
}

fn with_set(assignment: &str) -> Result<Config, String> {
    let mut layers = tiny();
    layers.set(assignment).and_then(|()| layers.finish()).map_err(|error| error.to_string())
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

#[test]
fn presets_are_what_was_chosen() {
    let full = Config::preset(Preset::Full, DataSource::Simulator);
    assert_eq!((full.window, full.hidden, full.branch_hidden, full.batch), (16, 512, 128, 8192));
    assert_eq!((full.capacity, full.environments, full.bars_per_epoch, full.warmup), (1 << 20, 4096, 32, 131_072));
    assert_eq!((full.steps_per_epoch, full.epochs, full.lr, full.min_hold), (178, 200, 3e-4, [1, 5, 15]));
    let small = Config::preset(Preset::Small, DataSource::Files);
    assert_eq!((small.folds, small.episode_len, small.sim.bars, small.decay), (1, 250, 40_000, 2.0));
    assert_eq!(Config::preset(Preset::Full, DataSource::Files).folds, 3);
    assert_eq!(full.steps_per_fold(), 35_600);
    let tiny = Config::preset(Preset::Tiny, DataSource::Simulator);
    assert_eq!((tiny.tau_init, tiny.tau_final, tiny.e_end, tiny.clip), (0.05, 0.01, 0.05, 10.0));
    assert_eq!(tiny.warmup_bars(), 512 / 16 + 2);
}

#[test]
fn every_preset_is_valid_and_inside_the_ranges() {
    for preset in Preset::ALL {
        for source in [DataSource::Simulator, DataSource::Files] {
            let config = Config::preset(preset, source);
            assert_eq!(config.validate(), Ok(()));
            for key in KEYS {
                let value = (key.read)(&config);
                assert!(key.range.holds(&value), "{} = {value} in {}", key.name, preset.name());
            }
        }
    }
}

#[test]
fn names_are_unique_and_words_say_something() {
    for (at, key) in KEYS.iter().enumerate() {
        assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{} twice", key.name);
        assert!(key.doc.trim().len() > 8 && !key.unit.is_empty(), "{} has no documentation", key.name);
        let section = key.name.split_once('.').map(|(section, _)| section);
        assert!(section.is_none_or(|name| SECTIONS.iter().any(|&(known, _)| known == name)), "{}", key.name);
    }
}

/// The page is the table's text, so every key is on it. The guard itself: a page that lacks a key is not the table's text.
#[test]
fn config_documentation_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let text = documentation();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&page, &text).expect("docs can be written");
    }
    let written = std::fs::read_to_string(&page).expect("docs/configuration.md is there");
    assert_eq!(written, text, "write it anew: BLESS=1 cargo test -p host config_documentation");
    for key in KEYS {
        assert!(written.contains(&format!("| `{}` |", key.name)), "{} is not documented", key.name);
    }
}

/// Any value in a key's range.
fn value_in(range: Range) -> BoxedStrategy<Value> {
    match range {
        Range::Whole { least, most, form } => {
            let numbers = prop_oneof![Just(least), Just(most), least..=most];
            numbers
                .prop_map(move |n| match form {
                    Form::Any => n,
                    Form::MultipleOf(of) => (n / of * of).max(least),
                    Form::PowerOfTwo => 1 << n.ilog2(),
                })
                .prop_map(Value::Integer)
                .boxed()
        }
        Range::Real { least, most, .. } => (least..most)
            .prop_map(move |x| if x > least { x } else { (least + most) / 2.0 })
            .prop_map(Value::Float)
            .boxed(),
        Range::Switch => any::<bool>().prop_map(Value::Boolean).boxed(),
        Range::Choice(words) => prop::sample::select(words).prop_map(|word| Value::String(word.into())).boxed(),
        Range::Rising { most } => prop::collection::vec(1..=most, 3)
            .prop_map(|mut numbers| {
                numbers.sort_unstable();
                Value::Array(numbers.into_iter().map(Value::Integer).collect())
            })
            .boxed(),
    }
}

/// Whatever the values, the effective configuration reads back to the same bits, by file and by `--set`.
#[test]
fn the_effective_configuration_round_trips() {
    let all: Vec<_> = KEYS.iter().map(|key| value_in(key.range)).collect();
    TestRunner::new(Runs::with_cases(300))
        .run(&all, |values| {
            let mut config = Config::preset(Preset::Full, DataSource::Files);
            for (key, value) in KEYS.iter().zip(&values) {
                prop_assert!(key.range.holds(value), "{} = {value}", key.name);
                prop_assert!((key.write)(&mut config, value), "{} = {value}", key.name);
                prop_assert_eq!(&(key.read)(&config), value);
            }
            // Rules between keys may be broken here; layers alone are under test.
            let mut by_file = tiny();
            by_file.toml(Path::new(FILE), &config.to_toml()).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let mut by_set = tiny();
            for key in KEYS {
                by_set
                    .set(&format!("{}={}", key.name, config.value(key.name)))
                    .map_err(|e| TestCaseError::fail(e.to_string()))?;
            }
            let accepted = config.validate().is_ok();
            for layers in [by_file, by_set] {
                match layers.finish() {
                    Ok(read) => prop_assert!(accepted && read == config && read.fingerprint() == config.fingerprint()),
                    Err(error) => prop_assert!(!accepted, "{error}"),
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn presets_round_trip_whole() {
    for preset in Preset::ALL {
        let config = Config::preset(preset, DataSource::Files);
        assert_eq!(with_file(&config.to_toml()), Ok(config));
    }
}

#[test]
fn later_layers_win() {
    let mut layers = tiny();
    layers.toml(Path::new(FILE), "lr = 0.5\nbatch = 64\n[per]\nalpha = 0.5\n").unwrap();
    layers.set("lr=0.25").unwrap();
    layers.set(" per.sampler = scan ").unwrap();
    layers.flag("--seed", "seed", &Value::Integer(7)).unwrap();
    let config = layers.finish().unwrap();
    assert_eq!((config.lr, config.batch, config.per.alpha, config.seed), (0.25, 64, 0.5, 7));
    assert_eq!(config.per.sampler, Sampler::Scan);
    assert_eq!(config.epochs, 5, "the preset's");
}

#[test]
fn a_whole_number_is_a_number_too() {
    assert_eq!(with_file("clip = 3").unwrap().clip, 3.0);
    assert_eq!(with_set("min_hold=[2, 2, 9]").unwrap().min_hold, [2, 2, 9]);
    assert_eq!(with_set("prune.final=0.5").unwrap().prune.final_sparsity, 0.5);
}

/// Each message has file, line, key, and what to do.
#[test]
fn faults_of_a_file_name_line_key_and_remedy() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[per]\nlr = 1e-3\n",
            &["onegraph.toml:2", "`per.lr`", "nearest is `lr`, which stands above the first `[section]`;"],
        ),
        ("lr = 1e-3\nhiden = 64\n", &["onegraph.toml:2", "`hiden`", "nearest is `hidden`", "configuration.md"]),
        ("[per]\nalfa = 0.5\n", &["onegraph.toml:2", "`per.alfa`", "`per.alpha`"]),
        ("\n[pre]\nalpha = 0.5\n", &["onegraph.toml:2", "no section `pre`", "nearest to `pre.alpha` is `per.alpha`"]),
        ("[nothing]\n", &["onegraph.toml:1", "no section `nothing`"]),
        ("sampler = \"scan\"\n", &["onegraph.toml:1", "`sampler`", "`per.sampler`"]),
        ("per = 3\n", &["onegraph.toml:1", "`per` is a section", "`per.sampler`"]),
        ("window.x = 3\n", &["onegraph.toml:1", "`window.x`"]),
        ("per.alpha.x = 3\n", &["onegraph.toml:1", "`per.alpha` is", "a number from 0 to 1"]),
        ("\n\nlr = 2.0\n", &["onegraph.toml:3", "`lr` is 2.0", "a number above 0, at most 1", "(a step)"]),
        ("lr = nan\n", &["`lr` is nan", "a number above 0, at most 1"]),
        ("window = 6\n", &["`window` is 6", "a multiple of 4 from 4 to 64", "(bars)"]),
        ("capacity = 3\n", &["`capacity` is 3", "a power of two from 64"]),
        ("batch = 1.5\n", &["`batch` is 1.5", "a whole number from 1"]),
        ("batch = -1\n", &["`batch` is -1"]),
        ("precision = \"fp8\"\n", &["`precision` is \"fp8\"", "\"bf16\" or \"f32\""]),
        ("[learners]\ncql = 1\n", &["onegraph.toml:2", "`learners.cql` is 1", "true or false"]),
        ("min_hold = [1, 2]\n", &["`min_hold` is [1, 2]", "three whole numbers from 1 to 1000"]),
        ("min_hold = [4, 2, 1]\n", &["`min_hold`", "none smaller than the one before it"]),
        ("min_hold = [1, 2, \"x\", 4]\n", &["`min_hold`"]),
        ("lr = 1e-3\nlr = 1e-4\n", &["onegraph.toml:2", "duplicate key"]),
        ("lr 1e-3\n", &["onegraph.toml:1", "`key = value`"]),
        ("seed = 99999999999999999999\n", &["onegraph.toml:1"]),
    ];
    for (text, parts) in cases {
        assert_has(&with_file(text).expect_err(text), parts);
    }
}

#[test]
fn faults_of_set_name_the_argument() {
    for (assignment, parts) in [
        ("hiden=64", &["--set hiden=64", "`hiden`", "`hidden`"][..]),
        ("lr", &["--set lr", "not `key=value`", "--set lr=1e-3"][..]),
        (" =1", &["--set  =1", "not `key=value`"][..]),
        ("lr=fast", &["--set lr=fast", "`lr` is \"fast\"", "a number above 0"][..]),
        ("lr=", &["`lr` is \"\""][..]),
        ("per=1", &["`per` is a section"][..]),
        ("lr=1\nwindow=4", &["--set lr=1\\nwindow=4: `lr` is \"1\\nwindow=4\""][..]),
    ] {
        assert_has(&with_set(assignment).expect_err(assignment), parts);
    }
}

#[test]
fn unreadable_files_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.toml");
    assert_has(&tiny().file(&path).unwrap_err().to_string(), &["missing.toml", "cannot be read", "check the path"]);
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_has(&tiny().file(&path).unwrap_err().to_string(), &["missing.toml", "no UTF-8 text; save it as UTF-8"]);
    let message = tiny().file(folder.path()).unwrap_err().to_string();
    assert_has(&message, &["cannot be read: it is a folder, not a regular file; name a regular file"]);
}

/// Every rule can fail, and its message has both values and where they came from.
#[test]
fn rules_between_keys_name_values_and_origins() {
    let cases: &[(&str, &[&str])] = &[
        (
            "environments = 1024",
            &["`capacity` is 4096 (preset tiny)", "`environments` is 1024 (onegraph.toml:1)", "2 n_step"],
        ),
        ("batch = 8192", &["`batch` is 8192 (onegraph.toml:1)", "`capacity` is 4096", "larger than the ring"]),
        ("warmup = 5000", &["`warmup` is 5000", "`capacity`"]),
        ("episode_len = 3", &["`n_step` is 3", "`episode_len` is 3"]),
        ("v_min = 10", &["`v_min` is 10.0", "`v_max` is 3.0"]),
        ("tau_final = 0.5", &["`tau_final` is 0.5", "`tau_init`"]),
        ("e_start = 0.01", &["`e_end` is 0.05", "`e_start` is 0.01"]),
        ("prune.start = 100", &["`prune.start` is 100", "`prune.end` is 100"]),
        ("folds = 100\nepochs = 1000000\nsteps_per_epoch = 22", &["`folds` is 100", "2147483647 steps"]),
        ("steps_per_epoch = 1\nepochs = 1000000\nbars_per_epoch = 1000000", &["`bars_per_epoch`", "2147483647 bars"]),
    ];
    for (text, parts) in cases {
        assert_has(&with_file(text).expect_err(text), parts);
    }
    // Ranges make every capacity and number of environments a power of two; the rule guards values set from code.
    let uneven = Config { environments: 3, ..Config::preset(Preset::Tiny, DataSource::Simulator) };
    assert_eq!(uneven.validate().unwrap_err().keys, ["capacity", "environments"]);
}

#[test]
fn memory_is_the_sum_of_its_parts() {
    let full = Config::preset(Preset::Full, DataSource::Simulator);
    let estimate = full.memory_estimate(200_000);
    assert_eq!(estimate.total_bytes, estimate.parts.iter().map(|part| part.bytes).sum::<u64>());
    // 2^20 transitions of two states of 400 f32 and 25 bytes.
    assert_eq!(estimate.parts[0], MemoryPart { name: "replay ring", bytes: (1 << 20) * (2 * 400 * 4 + 25) });
    assert_eq!(estimate.check(usize::MAX, "a GPU"), Ok(()));
    let message = estimate.check(1 << 30, "a GPU").unwrap_err().to_string();
    assert_has(&message, &["on a GPU, which has 1.0 GiB free", "replay ring 3.1 GiB + ", "smaller preset"]);
    let mut with_iqn = full.clone();
    with_iqn.learners.iqn = true;
    let more = with_iqn.memory_estimate(200_000).total_bytes - estimate.total_bytes;
    // Eight quantiles a row: 512 products as bf16 and their gradients as f32, 128 hidden units as f32 and bf16 and their gradients
    // as bf16, 16 outputs twice as f32 and once as bf16; a gradient of h and a loss.
    assert_eq!(more, 8192 * (8 * (512 * 6 + 128 * 8 + 16 * 10) + 513 * 4));
    // A pass of 25 R rows, R = 256: each holds at least its state and the three h.
    let mut blind = full.clone();
    blind.learners.causal = false;
    let less = estimate.total_bytes - blind.memory_estimate(200_000).total_bytes;
    assert!(less > 25 * 256 * (448 + 3 * 512) * 4, "{less}");
    // theta' as f32, and its operands as bf16.
    let mut without_target = full.clone();
    without_target.learners.target_ema = false;
    let less = estimate.total_bytes - without_target.memory_estimate(200_000).total_bytes;
    assert_eq!(less, full.n_parameters() as u64 * 6);
    let half = Config { capacity: full.capacity / 2, ..full };
    assert!(half.memory_estimate(200_000).total_bytes < estimate.total_bytes);
}

/// What a test of 2,000,000 bars leaves behind: records of five paths of the agent and, side by side, of four random ones. Each of those
/// that are read back is on the host, too.
#[test]
fn memory_of_the_host_is_what_tests_leave_there() {
    let tiny = Config::preset(Preset::Tiny, DataSource::Simulator);
    let bytes = |config: &Config, name: &str| {
        let estimate = config.memory_estimate(10_000_000).and(config.host_memory_estimate(10_000_000));
        assert_eq!(estimate.total_bytes, estimate.parts.iter().map(|part| part.bytes).sum::<u64>());
        estimate.parts.iter().find(|part| part.name == name).expect("a part").bytes
    };
    let records = 5 * 2_000_000 * 32;
    assert_eq!(bytes(&tiny, "records read back"), records);
    assert!(bytes(&tiny, "evaluation") > records);
    // At least the returns of the agent and of buy-and-hold under five scenarios each.
    assert!(bytes(&tiny, "returns of the tests") > 10 * 2_000_000 * 4);
    let mut returning = tiny.clone();
    returning.sim.market = crate::data::simulate::Market::MeanReverting;
    // One rule over as many bars as a training part has at most; the deviations.
    assert_eq!(bytes(&returning, "records read back"), 10_000_000 * 32);
    let more = bytes(&returning, "returns of the tests") - bytes(&tiny, "returns of the tests");
    assert_eq!(more, 10_000_000 * 8);
    let message = tiny.host_memory_estimate(10_000_000).check(1 << 28, "the host").unwrap_err().to_string();
    assert_has(&message, &["on the host, which has 256.0 MiB free: records read back 305.2 MiB + ", "fewer bars"]);
}

#[test]
fn byte_counts_for_people() {
    for (bytes, text) in
        [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (1 << 50, "1024.0 TiB")]
    {
        assert_eq!(bytes_text(bytes), text);
    }
}
