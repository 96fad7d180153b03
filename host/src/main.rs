//! The program `onegraph`.

fn main() -> std::process::ExitCode {
    host::cli::main()
}
