//! Common Redis clients: the `redis` crate, redis-cli, redis-benchmark, redis-py.

use std::path::PathBuf;
use std::process::{Command, Output};

use redis::Commands;

use super::{RedisGroup, has_tool};
use crate::common::leave_out;

#[test]
fn the_redis_crate_works() {
    let group = RedisGroup::start(&[]);
    for (node_id, protocol) in [(1, ""), (2, "?protocol=resp3")] {
        let url = format!("redis://{}/{protocol}", group.address(node_id));
        let client = redis::Client::open(url).expect("an address");
        let mut connection = client.get_connection().expect("a connection");
        let _: () = connection.set("greeting", "hello").expect("SET");
        let value: String = connection.get("greeting").expect("GET");
        assert_eq!(value, "hello");
        let none: Option<String> = connection.get("none").expect("GET");
        assert_eq!(none, None);
        let _: () = connection.mset(&[("a", 1), ("b", 2)]).expect("MSET");
        let values: Vec<Option<i64>> = connection.mget(&["a", "b", "none"]).expect("MGET");
        assert_eq!(values, [Some(1), Some(2), None]);
        let _: bool = connection.expire("a", 100).expect("EXPIRE");
        let ttl: i64 = connection.ttl("a").expect("TTL");
        assert!((98..=100).contains(&ttl), "{ttl}");
        let (first, second): (i64, i64) = redis::pipe()
            .atomic()
            .incr("b", 5)
            .incr("b", 1)
            .query(&mut connection)
            .expect("a transaction");
        assert_eq!((first, second), (7, 8));
        let (sum,): (i64,) = redis::transaction(&mut connection, &["b"], |connection, pipe| {
            let value: i64 = connection.get("b")?;
            pipe.set("b", value * 2).ignore().get("b").query(connection)
        })
        .expect("a watched transaction");
        assert_eq!(sum, 16);
        let error = connection
            .incr::<_, _, i64>("greeting", 1)
            .expect_err("no number");
        assert!(error.to_string().contains("not an integer"), "{error}");
    }
}

fn run(mut command: Command) -> Output {
    command.output().expect("it starts")
}

#[track_caller]
fn expect_clean(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(!errors.to_lowercase().contains("error"), "{errors}");
    text
}

#[test]
fn redis_cli_and_redis_benchmark_work() {
    if !has_tool("redis-cli") || !has_tool("redis-benchmark") {
        return;
    }
    let group = RedisGroup::start(&[]);
    let port = group.address(2).port().to_string();
    let cli = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port]).args(words);
        expect_clean(&run(command))
    };
    assert_eq!(cli(&["set", "greeting", "hello world"]), "OK\n");
    assert_eq!(cli(&["get", "greeting"]), "hello world\n");
    assert_eq!(cli(&["-3", "incr", "n"]), "1\n");
    assert!(cli(&["command", "docs", "get"]).contains("Reads the value of a key."));
    assert!(cli(&["info"]).contains("trine_version"));
    // `redis-cli --stat` and monitoring read these. The numbers of keys come from the replica a moment later.
    crate::common::wait_for("the keys", || {
        cli(&["info", "keyspace"])
            .contains("db0:keys=2,expires=0")
            .then_some(())
    });
    let info = cli(&["info"]);
    for field in [
        "used_memory:",
        "used_memory_human:",
        "used_memory_rss:",
        "maxmemory:",
        "connected_clients:",
        "blocked_clients:",
        "total_connections_received:",
        "total_commands_processed:",
        "instantaneous_ops_per_sec:",
        "keyspace_hits:1",
        "used_cpu_user:",
        "used_cpu_sys:",
        "rdb_bgsave_in_progress:",
        "loading:",
    ] {
        assert!(info.contains(field), "{field} is missing in {info}");
    }
    let stat = |port: &str| {
        let mut command = Command::new("timeout");
        command.args(["3", "stdbuf", "-oL", "redis-cli", "-p", port, "--stat"]);
        String::from_utf8_lossy(&run(command).stdout).into_owned()
    };
    let lines = stat(&port);
    assert!(
        lines.lines().any(|line| line.starts_with("2 ")),
        "two keys in {lines}"
    );
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        command.args([
            "-p",
            &port,
            "-t",
            "set,get,incr,mset",
            "-n",
            "100000",
            "-c",
            "50",
        ]);
        command.args(["-P", pipeline, "-r", "10000", "--csv"]);
        let text = expect_clean(&run(command));
        for test in ["\"SET\"", "\"GET\"", "\"INCR\"", "\"MSET (10 keys)\""] {
            assert!(text.contains(test), "{test} is missing in:\n{text}");
        }
    }
}

const PYTHON: &str = r#"
import sys, redis
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True)
    assert r.ping()
    assert r.set("k", "v", ex=60) and r.get("k") == "v" and 58 <= r.ttl("k") <= 60
    assert r.set("k", "w", nx=True) is None and r.set("k", "w", get=True) == "v"
    assert r.setex("s", 10, "x") and r.getdel("s") == "x" and r.get("s") is None
    assert r.mset({"a": 1, "b": 2}) and r.mget("a", "b", "none") == ["1", "2", None]
    assert r.incr("a") == 2 and r.decrby("a", 5) == -3 and r.append("b", "0") == 2
    assert r.exists("a", "b") == 2 and r.delete("a", "b", "none") == 2
    with r.pipeline() as p:
        p.set("n", 1).incr("n").get("n")
        assert p.execute() == [True, 2, "2"]
    def double(p):
        value = int(p.get("n"))
        p.multi()
        p.set("n", 2 * value)
    assert r.transaction(double, "n") == [True] and r.get("n") == "4"
    with r.pipeline() as p:
        p.watch("n")
        r.set("n", 5)
        p.multi()
        p.set("n", 6)
        try:
            p.execute()
            raise SystemExit("the watched key was changed")
        except redis.WatchError:
            pass
    try:
        r.incr("k")
        raise SystemExit("no number")
    except redis.ResponseError as error:
        assert "not an integer" in str(error), error
    assert r.info()["trine_version"]
    assert r.client_setname("me") and r.client_getname() == "me"
print("ok", redis.__version__)
"#;

/// The Python with redis-py: TRINE_REDIS_PYTHON, or the one in a virtual environment that `.ci/redis` makes.
#[track_caller]
pub(super) fn python() -> Option<PathBuf> {
    let named = std::env::var_os("TRINE_REDIS_PYTHON").map(PathBuf::from);
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/redis-py/bin/python");
    let found = named.or(Some(made)).filter(|path| path.exists());
    if found.is_none() {
        let why = "redis-py is not there (.ci/redis installs it)";
        leave_out(why, "TRINE_NEED_TOOLS");
    }
    found
}

#[test]
fn redis_py_works() {
    let Some(python) = python() else { return };
    let group = RedisGroup::start(&[]);
    let mut command = Command::new(python);
    command.args(["-c", PYTHON, &group.address(3).port().to_string()]);
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(output.stdout.starts_with(b"ok "));
}
