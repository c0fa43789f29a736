//! EAL's command line: the arguments that are added to the user's part of it.

#[cfg(any(feature = "device", test))]
use super::error::DpdkError;

/// Megabytes that a port with queues of the default length takes.
const MEMORY_PER_PORT: usize = 32;

/// Completes the user's arguments with defaults that let several processes share a machine and leave nothing behind:
///
/// - `--no-huge` gets `-m`, enough for its virtual devices, and `--no-shconf`; anything else `--in-memory`: no files in hugetlbfs or /var/run.
/// - Without a choice of cores the calling thread may run on any of `cpus`; EAL would bind it to the first.
/// - No telemetry socket.
///
/// The user's arguments are never overridden.
#[must_use]
pub fn complete(user: &[String], cpus: &str) -> Vec<String> {
    let given = |names: &[&str]| {
        user.iter()
            .any(|argument| names.iter().any(|name| is_option(argument, name)))
    };
    let mut arguments = Vec::new();
    if given(&["--no-huge"]) {
        if !given(&["-m"]) {
            let devices = user
                .iter()
                .filter(|argument| is_option(argument, "--vdev"))
                .count();
            arguments.extend([
                "-m".to_owned(),
                (MEMORY_PER_PORT * (devices + 1)).to_string(),
            ]);
        }
        if !given(&["--no-shconf"]) {
            arguments.push("--no-shconf".to_owned());
        }
    } else if !given(&[
        "--in-memory",
        "--file-prefix",
        "--huge-dir",
        "--proc-type",
        "--no-shconf",
    ]) {
        arguments.push("--in-memory".to_owned());
    }
    if !given(&["-l", "-c", "--lcores", "-S"]) {
        arguments.push(format!("--lcores=0@({cpus})"));
    }
    if !given(&["--telemetry", "--no-telemetry"]) {
        arguments.push("--no-telemetry".to_owned());
    }
    arguments.extend_from_slice(user);
    arguments
}

/// `-l`, `-l0`, `--lcores`, `--lcores=...`.
fn is_option(argument: &str, name: &str) -> bool {
    let long = name.starts_with("--");
    argument
        .strip_prefix(name)
        .is_some_and(|rest| !long || rest.is_empty() || rest.starts_with('='))
}

/// Whether the port is a memif client, whose driver connects when the port starts and at no other time.
#[must_use]
pub fn is_memif_client(arguments: &[String], port: &str) -> bool {
    let mut devices = arguments
        .iter()
        .enumerate()
        .filter_map(|(index, argument)| match argument.strip_prefix("--vdev") {
            Some("") => arguments.get(index + 1).map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        });
    port.starts_with("net_memif")
        && devices.any(|device| {
            device.split(',').next() == Some(port)
                && !device.split(',').any(|part| part == "role=server")
        })
}

/// Splits a command line at blanks, as `--eal "..."` gives it. EAL's arguments need no quoting.
#[must_use]
pub fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The CPUs that this thread may run on, as a list for EAL.
#[cfg(any(feature = "device", test))]
pub(super) fn own_cpus() -> Result<String, DpdkError> {
    let status =
        std::fs::read_to_string("/proc/thread-self/status").map_err(|error| DpdkError::System {
            call: "read /proc/thread-self/status",
            os_error: error.raw_os_error().unwrap_or(0),
        })?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.map_or("0", str::trim).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> String {
        complete(&split(line), "0-3").join(" ")
    }

    #[test]
    fn defaults_fill_what_the_user_left_open() {
        assert_eq!(
            completed("--no-pci --vdev=net_memif0"),
            "--in-memory --lcores=0@(0-3) --no-telemetry --no-pci --vdev=net_memif0"
        );
        assert_eq!(
            completed("--no-huge"),
            "-m 32 --no-shconf --lcores=0@(0-3) --no-telemetry --no-huge"
        );
        assert!(completed("--no-huge --vdev=a --vdev b").contains("-m 96"));
    }

    #[test]
    fn the_user_has_the_last_word() {
        for line in [
            "-l 2 --file-prefix=a --telemetry",
            "-l2 --in-memory --no-telemetry",
            "--lcores=1@(2) --huge-dir /mnt --no-telemetry",
            "-c 0x1 --no-huge -m 128 --no-shconf --telemetry",
        ] {
            assert_eq!(completed(line), line);
        }
        assert!(completed("--lcores-like --vdev=net-l").contains("--lcores=0@"));
    }

    #[test]
    fn memif_clients_are_known_by_their_device() {
        let arguments = split(
            "--no-pci --vdev=net_memif0,role=server,id=1 --vdev net_memif1,socket=@x --vdev=net_null0",
        );
        let clients = ["net_memif0", "net_memif1", "net_memif2", "net_null0"]
            .map(|port| is_memif_client(&arguments, port));
        assert_eq!(
            clients,
            [false, true, false, false],
            "client is the driver's default"
        );
    }

    #[test]
    fn this_thread_runs_somewhere() {
        let cpus = own_cpus().unwrap();
        assert!(
            cpus.starts_with(|first: char| first.is_ascii_digit()),
            "{cpus}"
        );
    }
}
