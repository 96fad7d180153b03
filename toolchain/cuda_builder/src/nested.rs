//! The nested cargo: what it is given, what it must not see, and what its messages mean.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use serde::Deserialize;

use crate::compiler::VARIABLE;
use crate::{CudaBuilder, CudaBuilderError, DebugInfo, EmitOption, KernelCompiler, NvvmArch, attributes, ptx};

const TARGET: &str = "nvptx64-nvidia-cuda";

/// What a kernel crate's manifest says.
struct Package {
    name: String,
    manifest: PathBuf,
    lib_name: String,
    lib_root: PathBuf,
    workspace_root: PathBuf,
    target_dir: PathBuf,
}

/// One architecture's result.
struct Image {
    ptx: String,
    raw: PathBuf,
    sources: BTreeSet<PathBuf>,
    warnings: BTreeSet<String>,
}

/// Builds every architecture in a thread of its own, then writes the PTX and tells cargo what to watch.
pub(crate) fn build_images(
    builder: &CudaBuilder,
    architectures: &[NvvmArch],
) -> Result<Vec<PathBuf>, CudaBuilderError> {
    if builder.optix {
        return Err(CudaBuilderError::Unsupported("OptiX programs cannot be built by this compiler".into()));
    }
    watch_variables();
    let path = &builder.path_to_crate;
    if !path.exists() {
        return Err(CudaBuilderError::CratePathDoesntExist(path.clone()));
    }
    let path = path.canonicalize().map_err(CudaBuilderError::io(format!("open {}", path.display())))?;
    // Before anything that takes time: without a compiler nothing else is worth doing.
    let compiler = KernelCompiler::find(&path)?;
    let package = Package::read(&path)?;
    let images: Vec<Result<Image, CudaBuilderError>> = thread::scope(|scope| {
        let threads: Vec<_> = architectures
            .iter()
            .map(|&arch| {
                let (package, compiler) = (&package, &compiler);
                scope.spawn(move || build_image(builder, package, compiler, arch))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread returns its error")).collect()
    });
    let images = images.into_iter().collect::<Result<Vec<_>, _>>()?;
    watch(&package, &compiler, &images);
    architectures.iter().zip(&images).map(|(&arch, image)| write(builder, &package, arch, image)).collect()
}

impl Package {
    /// Asks cargo for the package in this folder.
    fn read(path: &Path) -> Result<Self, CudaBuilderError> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<MetadataPackage>,
            target_directory: PathBuf,
            workspace_root: PathBuf,
        }
        #[derive(Deserialize)]
        struct MetadataPackage {
            name: String,
            manifest_path: PathBuf,
            targets: Vec<Target>,
        }

        let no_kernel_crate = |why: &str| CudaBuilderError::NotAKernelCrate { path: path.into(), why: why.into() };
        let manifest = path.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(no_kernel_crate("it has no Cargo.toml"));
        }
        let output =
            run(cargo(path).args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest))?;
        if !output.status.success() {
            return Err(no_kernel_crate(String::from_utf8_lossy(&output.stderr).trim_end()));
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| no_kernel_crate(&format!("cargo metadata cannot be read: {error}")))?;
        let (target_dir, workspace_root) = (metadata.target_directory, metadata.workspace_root);
        let package = metadata
            .packages
            .into_iter()
            .find(|package| package.manifest_path == manifest)
            .ok_or_else(|| no_kernel_crate("its Cargo.toml describes a workspace and no package"))?;
        let library = package
            .targets
            .into_iter()
            .find(|target| target.is_library())
            .ok_or_else(|| no_kernel_crate("it has no library (src/lib.rs)"))?;
        Ok(Self {
            name: package.name,
            manifest,
            lib_name: library.name.replace('-', "_"),
            lib_root: library.src_path,
            workspace_root,
            target_dir,
        })
    }
}

/// A target as cargo's messages describe it.
#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Target {
    fn folder(&self) -> PathBuf {
        self.src_path.parent().map(Path::to_owned).unwrap_or_default()
    }

    fn is_library(&self) -> bool {
        self.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "rlib" | "dylib" | "cdylib" | "staticlib"))
    }
}

/// Runs the nested cargo for one architecture and finishes its PTX.
fn build_image(
    builder: &CudaBuilder,
    package: &Package,
    compiler: &KernelCompiler,
    arch: NvvmArch,
) -> Result<Image, CudaBuilderError> {
    let folder = image_folder(builder, package, compiler, arch);
    let raw_folder = folder.join("ptx");
    fs::create_dir_all(&raw_folder).map_err(CudaBuilderError::io(format!("create {}", raw_folder.display())))?;
    // Held until the PTX is read: build scripts of two packages may build the same crate at once.
    let lock_path = folder.with_extension("lock");
    let lock = File::create(&lock_path).map_err(CudaBuilderError::io(format!("create {}", lock_path.display())))?;
    lock.lock().map_err(CudaBuilderError::io(format!("lock {}", lock_path.display())))?;
    forget_other_compiler(&folder, compiler)?;

    let kernel_flags = kernel_flags(builder, package);
    // Cargo does not know of this file, so its name carries what cargo's own file names would: whose it is.
    let owner = short_hash(&(&package.manifest, &builder.build_args, &kernel_flags));
    let stem = raw_folder.join(format!("{}-{owner:08x}", package.lib_name));
    let raw = stem.with_extension("s");

    let mut command = cargo(package.manifest.parent().expect("a manifest's path has a folder"));
    command.env("RUSTC", &compiler.rustc).env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_ENCODED_RUSTFLAGS", image_flags(builder, arch).join("\x1f"));
    if let Some(dir) = &compiler.library_dir {
        command.env("LD_LIBRARY_PATH", dir);
    }
    command.args(["rustc", "--lib", "--crate-type=cdylib", "--release", "--message-format=json"]);
    command.args(["-Zbuild-std=core,alloc", "--target", TARGET, "--manifest-path"]).arg(&package.manifest);
    command.arg("--target-dir").arg(&folder);
    for setting in profile(builder) {
        command.args(["--config", &format!("profile.release.{setting}")]);
    }
    command.args(&builder.build_args);
    command.arg("--").arg(emit("asm", &raw));
    if builder.emit == Some(EmitOption::LlvmIr) || builder.final_module_path.is_some() {
        command.arg(emit("llvm-ir", &stem.with_extension("ll")));
    }
    if builder.emit == Some(EmitOption::Bitcode) {
        command.arg(emit("llvm-bc", &stem.with_extension("bc")));
    }
    command.args(&kernel_flags);

    let output = run(&mut command)?;
    let messages = Messages::read(&output, &package.workspace_root);
    let (name, arch_name) = (package.name.clone(), arch.to_string());
    if !output.status.success() {
        return Err(if messages.errors.is_empty() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            CudaBuilderError::CargoFailed { package: name, arch: arch_name, stderr }
        } else {
            let rendered = messages.errors.join("\n");
            CudaBuilderError::BuildFailed { package: name, arch: arch_name, rendered }
        });
    }
    let text = fs::read_to_string(&raw).map_err(CudaBuilderError::io(format!(
        "read {} (if it was removed, remove {} too and build again)",
        raw.display(),
        folder.display()
    )))?;
    let symbols = ptx::undefined_symbols(&text);
    if !symbols.is_empty() {
        return Err(CudaBuilderError::UndefinedSymbol { package: name, arch: arch_name, symbols });
    }
    let ptx = ptx::place_bounds(&text, arch).map_err(|why| CudaBuilderError::BadLaunchBounds {
        package: name,
        arch: arch_name,
        why,
    })?;
    let mut warnings = messages.warnings;
    if ptx::entries(&ptx).next().is_none() {
        warnings.insert(format!("{} has no kernel: no function is marked #[kernel]", package.name));
    }
    Ok(Image { ptx, raw, sources: messages.sources, warnings })
}

/// rustc's `--emit KIND=PATH` as one argument.
fn emit(kind: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(format!("--emit={kind}="));
    argument.push(path);
    argument
}

/// The flags for every crate of the image, `core` included.
fn image_flags(builder: &CudaBuilder, arch: NvvmArch) -> Vec<String> {
    let mut flags = vec![
        "-Zunstable-options".to_owned(),
        // A panic is a bare trap: with a handler, messages and formatting would fill the image.
        "-Cpanic=immediate-abort".to_owned(),
        format!("-Ctarget-cpu={arch}"),
        format!("-Ctarget-feature=+ptx{}", arch.ptx_version()),
        // The assembly is already linked by LTO, and nothing can link PTX.
        "-Clinker=true".to_owned(),
        // Jump threading copies barriers, shuffles and asm! into both arms of a divergent branch.
        "-Zmir-enable-passes=-JumpThreading".to_owned(),
    ];
    if builder.debug == DebugInfo::LineTables {
        flags.push("-Cdebuginfo=line-directives-only".to_owned());
    }
    builder.edited(flags)
}

/// The flags of the kernel crate alone. LTO generates the code of the whole image there, so what steers LLVM belongs
/// here, and builds that differ in it share one `core`.
fn kernel_flags(builder: &CudaBuilder, package: &Package) -> Vec<String> {
    let fma_level = if builder.fma_contraction { 2 } else { 0 };
    let mut flags = vec![
        // Without it, shared and global memory are reached through generic loads and stores.
        "-Cpasses=infer-address-spaces".to_owned(),
        format!("-Cllvm-args=-nvptx-fma-level={fma_level}"),
        // LLVM does the same to asm!, which rustc does not mark as convergent: two branches on one condition become
        // two arms, and a small block between them is copied into both.
        "-Cllvm-args=-simplifycfg-max-small-block-size=0".to_owned(),
    ];
    if builder.fast_div {
        flags.push("-Cllvm-args=-nvptx-prec-divf32=0".to_owned());
    }
    if builder.fast_sqrt {
        flags.push("-Cllvm-args=-nvptx-prec-sqrtf32=0".to_owned());
    }
    flags.extend(attributes::missing(&package.lib_root).iter().map(|attribute| format!("-Zcrate-attr={attribute}")));
    builder.edited(flags)
}

/// What must hold whatever the workspace's own release profile says.
fn profile(builder: &CudaBuilder) -> Vec<String> {
    let checks = !builder.release;
    let mut settings: Vec<String> =
        ["opt-level=3", "lto=\"fat\"", "codegen-units=1", "debug=false", "incremental=false", "strip=\"none\""]
            .map(str::to_owned)
            .into();
    settings.push(format!("debug-assertions={checks}"));
    settings.push(format!("overflow-checks={checks}"));
    settings
}

/// `target/kernels/sm_80`, with a number behind it when the image's flags are not the usual ones: cargo would otherwise
/// take the PTX of one set of flags for the other's. The same for a compiler that lies inside the package's workspace: cargo then
/// knows the source of `core` by a path relative to the workspace, takes the `core` of a workspace elsewhere for stale, and two
/// workspaces that share a folder would build it by turns, minutes each time.
fn image_folder(builder: &CudaBuilder, package: &Package, compiler: &KernelCompiler, arch: NvvmArch) -> PathBuf {
    let kernels = builder.target_dir.clone().unwrap_or_else(|| {
        crate::target_dir_of_build_script().unwrap_or_else(|| package.target_dir.clone()).join("kernels")
    });
    let compiler_inside = compiler.rustc.starts_with(&package.workspace_root);
    let options = |builder: &CudaBuilder, inside: bool| (image_flags(builder, arch), profile(builder), inside);
    if options(builder, compiler_inside) == options(&CudaBuilder::new(""), false) {
        kernels.join(arch.target_cpu())
    } else {
        kernels.join(format!("{arch}-{:08x}", short_hash(&options(builder, compiler_inside))))
    }
}

/// A few digits that tell different values apart in file names.
fn short_hash(value: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish() as u32
}

/// Empties the folder when another compiler filled it: PTX of one must not pass for the other's.
fn forget_other_compiler(folder: &Path, compiler: &KernelCompiler) -> Result<(), CudaBuilderError> {
    let stamp = folder.join("compiler.txt");
    match fs::read_to_string(&stamp) {
        Ok(identity) if identity == compiler.identity => return Ok(()),
        Ok(_) => {
            fs::remove_dir_all(folder).map_err(CudaBuilderError::io(format!("empty {}", folder.display())))?;
            fs::create_dir_all(folder.join("ptx"))
                .map_err(CudaBuilderError::io(format!("create {}", folder.display())))?;
        }
        Err(_) => {}
    }
    fs::write(&stamp, &compiler.identity).map_err(CudaBuilderError::io(format!("write {}", stamp.display())))
}

/// What cargo's JSON lines say about this workspace's own crates.
#[derive(Default)]
struct Messages {
    errors: Vec<String>,
    warnings: BTreeSet<String>,
    sources: BTreeSet<PathBuf>,
}

impl Messages {
    fn read(output: &Output, workspace_root: &Path) -> Self {
        #[derive(Deserialize)]
        struct Line {
            reason: String,
            package_id: Option<String>,
            manifest_path: Option<PathBuf>,
            target: Option<Target>,
            message: Option<Diagnostic>,
            #[serde(default)]
            filenames: Vec<PathBuf>,
        }
        #[derive(Deserialize)]
        struct Diagnostic {
            level: String,
            message: String,
            rendered: Option<String>,
            #[serde(default)]
            spans: Vec<Span>,
        }
        #[derive(Deserialize)]
        struct Span {
            file_name: String,
            line_start: u32,
            is_primary: bool,
        }

        let mut messages = Self::default();
        let lines = output.stdout.split(|&byte| byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
            let is_ours =
                line.package_id.is_some_and(|id| id.starts_with("path+file:") && !id.contains("/rustlib/src/"));
            match (line.reason.as_str(), line.message) {
                ("compiler-message", Some(diagnostic)) if diagnostic.level.starts_with("error") => {
                    // rustc's closing line has no place and says only that there were errors.
                    let rendered = diagnostic.rendered.unwrap_or(diagnostic.message);
                    if !rendered.starts_with("error: aborting due to") && !messages.errors.contains(&rendered) {
                        messages.errors.push(rendered);
                    }
                }
                ("compiler-message", Some(diagnostic)) if is_ours && diagnostic.level == "warning" => {
                    // Without a place it is about the builder's own flags.
                    if let Some(span) = diagnostic.spans.iter().find(|span| span.is_primary) {
                        let (file, line) = (&span.file_name, span.line_start);
                        messages.warnings.insert(format!("{file}:{line}: {}", diagnostic.message));
                    }
                }
                ("compiler-artifact", _) if is_ours => {
                    let (Some(manifest), Some(target)) = (line.manifest_path, line.target) else { continue };
                    let listed = line.filenames.iter().find_map(|file| listed_sources(file));
                    for source in listed.unwrap_or_else(|| vec![target.folder()]) {
                        // rustc runs in the workspace's folder, or in the package's own when that lies elsewhere.
                        let places = [Some(workspace_root), manifest.parent()];
                        let found = places.into_iter().flatten().map(|place| place.join(&source));
                        messages.sources.extend(found.into_iter().find(|path| path.exists()));
                    }
                    messages.sources.insert(manifest);
                }
                _ => {}
            }
        }
        messages
    }
}

/// The sources of an artefact, from the `.d` file that rustc writes beside it or, for the kernel crate, in `deps`.
fn listed_sources(artefact: &Path) -> Option<Vec<PathBuf>> {
    let stem = artefact.file_stem()?.to_str()?;
    let folder = artefact.parent()?;
    let names = [stem, stem.strip_prefix("lib").unwrap_or(stem)].map(|name| format!("{name}.d"));
    let mut places = names.iter().flat_map(|name| [folder.join("deps").join(name), folder.join(name)]);
    let text = places.find_map(|place| fs::read_to_string(place).ok())?;
    let (_, list) = text.lines().next()?.split_once(": ")?;
    Some(split_escaped(list).into_iter().map(PathBuf::from).collect())
}

/// Splits a makefile's list, in which a blank inside a name is written `\ `.
fn split_escaped(list: &str) -> Vec<String> {
    list.replace("\\ ", "\0").split_whitespace().map(|name| name.replace('\0', " ")).collect()
}

/// Tells cargo which files decide whether this build is still good.
fn watch(package: &Package, compiler: &KernelCompiler, images: &[Image]) {
    if std::env::var_os("OUT_DIR").is_none() {
        return;
    }
    let mut files: BTreeSet<PathBuf> = images.iter().flat_map(|image| image.sources.clone()).collect();
    files.extend([package.manifest.clone(), compiler.rustc.clone()]);
    // The workspace's own manifest and lock file decide versions, patches and profiles.
    for folder in package.manifest.ancestors().skip(1) {
        let lock = folder.join("Cargo.lock");
        if lock.is_file() {
            files.extend([lock, folder.join("Cargo.toml")]);
            break;
        }
    }
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let warnings: BTreeSet<&String> = images.iter().flat_map(|image| &image.warnings).collect();
    for warning in warnings {
        println!("cargo::warning={}", warning.replace('\n', " "));
    }
}

fn watch_variables() {
    if std::env::var_os("OUT_DIR").is_some() {
        println!("cargo::rerun-if-env-changed={VARIABLE}");
        println!("cargo::rerun-if-env-changed=RUSTUP_TOOLCHAIN");
    }
}

/// Writes one image's results.
fn write(builder: &CudaBuilder, package: &Package, arch: NvvmArch, image: &Image) -> Result<PathBuf, CudaBuilderError> {
    let path = match std::env::var_os("OUT_DIR") {
        Some(folder) => Path::new(&folder).join(format!("{}.{arch}.ptx", package.lib_name)),
        None => image.raw.with_extension("ptx"),
    };
    replace(&path, image.ptx.as_bytes())?;
    if let Some(module) = &builder.final_module_path {
        replace(module, &fs::read(image.raw.with_extension("ll")).map_err(CudaBuilderError::FailedToCopyPtxFile)?)?;
    }
    Ok(path)
}

/// Writes a file unless it already says the same, so that what depends on it is not built again for nothing.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), CudaBuilderError> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(CudaBuilderError::FailedToCopyPtxFile)?;
    }
    fs::write(path, content).map_err(CudaBuilderError::FailedToCopyPtxFile)
}

/// Cargo in this folder, without what the outer cargo and rustup set for their own build.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| belongs_to_outer_build(name)) {
        command.env_remove(name);
    }
    command
}

/// Whether a variable is about the outer build: its target, flags, wrappers (clippy's among them) or job server.
fn belongs_to_outer_build(name: &OsStr) -> bool {
    const CLEARED: [&str; 18] = [
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "LD_LIBRARY_PATH",
        "MAKEFLAGS",
        "MFLAGS",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "NUM_JOBS",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
    ];
    const KEPT: [&str; 4] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR"];
    let name = name.to_string_lossy();
    let is_cargos = name == "CARGO" || name.starts_with("CARGO_") || name.starts_with("__CARGO");
    CLEARED.contains(&name.as_ref()) || is_cargos && !KEPT.iter().any(|kept| name.starts_with(kept))
}

fn run(command: &mut Command) -> Result<Output, CudaBuilderError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(CudaBuilderError::io(format!("run {program}")))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{Package, belongs_to_outer_build, image_folder, split_escaped};
    use crate::{CudaBuilder, KernelCompiler, NvvmArch};

    #[test]
    fn a_compiler_inside_the_workspace_has_folders_of_its_own() {
        let package = Package {
            name: "kernels".into(),
            manifest: "/w/kernels/Cargo.toml".into(),
            lib_name: "kernels".into(),
            lib_root: "/w/kernels/src/lib.rs".into(),
            workspace_root: "/w".into(),
            target_dir: "/w/target".into(),
        };
        let folder = |rustc: &str| {
            let compiler = KernelCompiler {
                rustc: rustc.into(),
                version: "1.95.0".into(),
                library_dir: None,
                identity: String::new(),
            };
            image_folder(&CudaBuilder::new("/w/kernels"), &package, &compiler, NvvmArch::Compute80)
        };
        assert_eq!(folder("/usr/bin/rustc"), Path::new("/w/target/kernels/sm_80"));
        assert_eq!(folder("/elsewhere/target/kernel-toolchain/usr/bin/rustc"), folder("/usr/bin/rustc"));
        let inside = folder("/w/target/kernel-toolchain/usr/bin/rustc");
        assert_ne!(inside, folder("/usr/bin/rustc"));
        assert_eq!(inside.parent(), Some(Path::new("/w/target/kernels")));
    }

    #[test]
    fn the_outer_builds_variables_do_not_reach_the_nested_cargo() {
        for cleared in ["RUSTC_WORKSPACE_WRAPPER", "CARGO", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "OUT_DIR"] {
            assert!(belongs_to_outer_build(OsStr::new(cleared)), "{cleared}");
        }
        for kept in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_X_INDEX", "PATH", "HOME"]
        {
            assert!(!belongs_to_outer_build(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn blanks_in_file_names_survive() {
        assert_eq!(split_escaped("src/lib.rs src/a\\ b.rs"), ["src/lib.rs", "src/a b.rs"]);
    }
}
