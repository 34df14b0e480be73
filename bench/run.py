#!/usr/bin/env python3
"""run.py - the benchmarks of Redrive as one suite: every figure beside a peer or a limit that is measured in the same run.

    bench/run.py --build build [--quick] [--rounds N] [--dir DIR] [NAME...]

NAMEs choose among the benchmarks (--list names them); without any, all run but kafka, which takes more than an hour
(`make bench-kafka`, see kafka/compare.py). Its rows and those of the others are kept beside each other. Results go to BUILD/bench/results.json, a list of
{name, value, unit, peer, peer_value, ratio, goal, met}, and to a table at the end; how each was measured (durability, versions,
flushes, all rounds) to BUILD/bench/details.json. A figure is the median of its rounds. A lock keeps two runs on one machine from
measuring at the same time. The exit code is 0 when everything ran (a missed goal is a result, not an error), else 1.

`--dir` is where data goes; it must lie on the disk that is to be measured. `--quick` does everything small and once: it shows
that the suite works, its figures mean little.
"""
import argparse
import contextlib
import fcntl
import glob
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from kafka import compare  # noqa: E402
from queues import servers  # noqa: E402

LOCK = "/tmp/measure.lock"
RAW = "raw limit: 1,000 records of 296 B a write + fdatasync, zero-filled"


class Suite:
    def __init__(self, options):
        self.build, self.quick = os.path.abspath(options.build), options.quick
        self.rounds = options.rounds or (1 if options.quick else 3)
        self.place = tempfile.mkdtemp(prefix="redrive-bench-", dir=options.dir)
        self.rows, self.details, self.failed = [], {}, []
        self.kinds = {name == "kafka" for name in options.names or ["all"]}  # does it measure Kafka, others, or both?

    # ---- running programs ----

    def program(self, name):
        return f"{self.build}/bench/{name}"

    def figures(self, name, *arguments, prefix=()):
        """The figures that a benchmark program printed: {name: value}, and with a peer {name: {...}}."""
        done = subprocess.run([*prefix, self.program(name), *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=600)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {line["name"]: line if "peer" in line else line["value"] for line in lines}

    def repeat(self, detail, measure):
        """Every round's figures, kept as details; gives a function from a figure's name to its median."""
        rounds = [measure() for _ in range(self.rounds)]
        self.details[detail] = rounds
        return lambda name: statistics.median(r[name] for r in rounds)

    # ---- rows ----

    def row(self, name, value, unit, peer=None, peer_value=None, goal=None, ratio=None, at_most=False):
        """A goal is for the ratio where there is a peer, else for the value; at_most: smaller is better."""
        if peer_value and ratio is None:
            ratio = value / peer_value
        judged = value if peer_value is None else ratio
        met = None if goal is None else bool(judged <= goal if at_most else judged >= goal)
        self.rows.append({"name": name, "value": round(value, 3), "unit": unit, "peer": peer,
                          "peer_value": None if peer_value is None else round(peer_value, 3),
                          "ratio": None if ratio is None else round(ratio, 4), "goal": goal, "met": met})
        print(line_of(self.rows[-1]), flush=True)

    def kept(self, name):
        """What an earlier run measured that this one does not: Kafka, or all but Kafka."""
        try:
            with open(f"{self.build}/bench/{name}.json", encoding="utf-8") as f:
                before = json.load(f)
        except (OSError, ValueError):
            return [] if name == "results" else {}
        if name == "details":
            return {key: value for key, value in before.items() if key.startswith("kafka") not in self.kinds}
        return [row for row in before if row["name"].startswith("kafka") not in self.kinds]

    def write(self):
        for name, what in (("results", self.kept("results") + self.rows), ("details", {**self.kept("details"), **self.details})):
            with open(f"{self.build}/bench/{name}.json", "w", encoding="utf-8") as f:
                json.dump(what, f, indent=1)
                f.write("\n")


# ---- the benchmarks ----

def bench_ack(s):
    """publish, handle, acknowledge through the C API against the raw limit"""
    median = s.repeat("ack", lambda: s.figures("path_bench", "ack", f"dir={s.place}", "raw=1", f"seconds={1 if s.quick else 4}"))
    s.row("embedded: publish, handle, ack", median("per_s"), "messages/s", RAW, median("raw"), 0.5)
    s.row("embedded: publish, handle, ack: CPU, all threads", median("cpu"), "ns/message")
    s.row("embedded: publish, handle, ack: CPU, core thread", median("rdv-core"), "ns/message", goal=400, at_most=True)


def bench_retry(s):
    """every message, or one in ten, fails once and waits a second, against the raw limit"""
    for work, name in (("retry", "each fails once, 1 s"), ("tenth", "10 % fail once, defaults")):
        median = s.repeat(work, lambda w=work: s.figures("path_bench", w, f"dir={s.place}", "raw=1", f"seconds={2 if s.quick else 5}"))
        s.row(f"embedded: {name}", median("per_s"), "messages/s", RAW, median("raw"), 0.2)
        s.row(f"embedded: {name}: CPU, all threads", median("cpu"), "ns/message")
        s.row(f"embedded: {name}: CPU, core thread", median("rdv-core"), "ns/message")
        if work == "retry":
            s.row("embedded: each fails once: lateness p99 at full load", median("late_p99"), "ms")


def bench_peers(s):
    """the same three works on other queues at the same durability"""
    works = [("ack", "publish, handle, ack", None), ("retry", "each fails once, 1 s", 5), ("tenth", "10 % fail once", 5)]
    works = works[1:2] if s.quick else works
    for work, name, goal in works:
        medians = {}
        for kind in servers.ALL:
            runs = peer_runs(s, kind, work, 1 if s.quick else s.rounds)
            if runs:
                medians[kind.name] = statistics.median(r["per_s"] for r in runs)
        others = {n: v for n, v in medians.items() if n != "redrive"}
        for other in sorted(others, key=others.get, reverse=True):
            best = other == max(others, key=others.get)
            s.row(f"queues: {name}", medians["redrive"], "messages/s", other + (" (best)" if best else ""), others[other],
                  goal if best else None)


def peer_runs(s, kind, work, rounds):
    runs = []
    for _ in range(rounds):
        try:
            with locked():
                runs.append(servers.run(kind, work, s.build, s.place, s.quick))
        except servers.Missing as missing:
            print(f"left out: {missing}", flush=True)
            break
    s.details[f"queues {work} {kind.name}"] = runs
    return runs


def bench_backlog(s):
    """memory of waiting messages and time until a killed queue has them again, all queues"""
    for kind in servers.ALL:
        if s.quick and kind.name in ("rabbitmq", "beanstalkd"):
            continue
        for run in peer_runs(s, kind, "backlog", 1):
            many = f"{run['count']:,}"
            s.row(f"queues: {many} waiting in {kind.name}: memory", run["memory"], "bytes/message")
            s.row(f"queues: {many} waiting in {kind.name}: back after a kill", run["restart_seconds"], "s")


def bench_waiting(s):
    """ten million waiting: memory, lateness, reopening after a kill"""
    n = 1000000 if s.quick else 10000000
    median = s.repeat("waiting", lambda: s.figures("waiting_bench", f"dir={s.place}", f"n={n}", f"due={50000 if s.quick else 400000}"))
    s.row(f"{n:,} waiting: memory", median("memory"), "bytes/message", goal=72, at_most=True)
    s.row(f"{n:,} waiting: lateness p99 of 50,000/s", median("late_p99"), "ms", goal=20, at_most=True)
    s.row(f"{n:,} waiting: reopening after a kill, cold" if median("cold") else f"{n:,} waiting: reopening after a kill, warm",
          median("reopen"), "s", goal=10, at_most=True)
    s.row(f"{n:,} waiting: filling", median("fill"), "messages/s")


def bench_desk(s):
    """dead letters: taken in as fast as possible, at 50,000/s for a minute, at 5,000/s beside a log; read"""
    seconds = 5 if s.quick else 60
    median = s.repeat("desk", lambda: s.figures("desk_bench", f"dir={s.place}", f"letters={100000 if s.quick else 1000000}"))
    s.row("desk: letters taken in, synced and indexed", median("per_s"), "letters/s", goal=50000)
    s.row("desk: CPU of its threads", median("desk_cpu"), "us/letter")
    s.row("desk: a first page of 50", median("page"), "ms", goal=150, at_most=True)
    s.row("desk: by key", median("by_key"), "ms", goal=10, at_most=True)
    paced = s.figures("desk_bench", f"dir={s.place}", "rate=50000", f"letters={50000 * seconds}")
    s.row(f"desk: 50,000/s for {seconds} s: longest until synced and found", paced["slowest"], "ms", goal=2000, at_most=True)
    beside = s.figures("desk_bench", f"dir={s.place}", "rate=5000", f"letters={5000 * seconds // 2}", f"log={seconds // 2}")
    s.row("desk: 5,000/s: p99 of a log's syncs beside it", beside["log_p99_beside"], "ms", "the same log alone",
          beside["log_p99_alone"], 2, at_most=True)
    s.details["desk paced"] = [paced, beside]


def bench_push(s):
    """the http handler against a bare libcurl multi loop"""
    def measure():
        return {"push": next(iter(s.figures("http_push_bench", 64, 1 if s.quick else 2).values()))}
    rounds = [measure()["push"] for _ in range(s.rounds)]
    s.details["push"] = rounds
    middle = sorted(rounds, key=lambda r: r["ratio"])[len(rounds) // 2]
    s.row("http push, 64 connections", middle["value"], "requests/s", middle["peer"], middle["peer_value"], 0.8)


CONFIGURATION = """routes:
  - name: orders
    source: { topic: order.create, partitions: 4 }
    handler: { lease: { lease_for: 30s } }
"""
ADDRESS = "/v1/topics/order.create/messages"


@contextlib.contextmanager
def redrive_server(s, prefix=()):
    """A server with one route that nobody pulls from; gives its port."""
    with tempfile.TemporaryDirectory(dir=s.place) as place:
        with open(f"{place}/redrive.yaml", "w", encoding="ascii") as f:
            f.write(CONFIGURATION)
        process = subprocess.Popen([*prefix, f"{s.build}/redrive", "serve", "-c", f"{place}/redrive.yaml", "--data", f"{place}/data",
                                    "--listen", "127.0.0.1:0", "--port-file", f"{place}/port", "--drain", "100ms"],
                                   stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while not os.path.exists(f"{place}/port"):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the server did not start")
                time.sleep(0.02)
            with open(f"{place}/port", encoding="ascii") as f:
                yield int(f.read().split(":")[-1]), process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


@contextlib.contextmanager
def bare_server(s):
    process = subprocess.Popen([s.program("http_load"), "bare"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def bench_publish(s):
    """http publishing: one message a request, and batches"""
    seconds = f"seconds={1 if s.quick else 4}"

    def measure():
        with bare_server(s) as port:
            bare = s.figures("http_load", port, ADDRESS, "connections=128", seconds)["per_s"]
        with redrive_server(s) as (port, _):
            flushed = servers.flushes(s.place)
            ours = s.figures("http_load", port, ADDRESS, "connections=128", seconds)["per_s"]
            flushed = servers.flushes(s.place) - flushed
        with redrive_server(s) as (port, _):
            batches = s.figures("http_load", port, ADDRESS, "connections=8", seconds, "lines=1000")["messages_per_s"]
        direct = s.figures("path_bench", "publish", f"dir={s.place}", seconds, "batch=1000")["per_s"]
        return {"bare": bare, "ours": ours, "batches": batches, "direct": direct, "flushes": flushed}
    median = s.repeat("publish", measure)
    s.row("http publish, one a request, durable, 128 connections", median("ours"), "requests/s", "libmicrohttpd answering without work",
          median("bare"), 0.5)
    s.row("http publish, batches of 1,000 lines", median("batches"), "messages/s", "C API, batches of 1,000", median("direct"), 0.3)


def bench_growth(s):
    """how the cost of a message grows with what waits, with routes and with keys"""
    limit = 100000 if s.quick else 10000000
    seconds = "seconds=1"
    for waiting in (1000, 10000, 100000, 1000000, 10000000):
        if waiting <= limit:
            got = s.figures("path_bench", "retry", f"dir={s.place}", seconds, f"waiting={waiting}")
            growth_rows(s, f"growth: {waiting:,} waiting, each fails once", got)
    for routes in (1, 10, 100, 1000):
        growth_rows(s, f"growth: {routes:,} routes, ack", s.figures("path_bench", "ack", f"dir={s.place}", seconds, f"routes={routes}"))
    for keys in (1, 10, 100, 1000, 10000, 100000, 1000000):
        if keys <= limit:
            count = "count=4000" if keys == 1 else "count=40000" if keys == 10 else seconds
            growth_rows(s, f"growth: {keys:,} keys in order, ack", s.figures("path_bench", "ack", f"dir={s.place}", count, f"keys={keys}"))


def growth_rows(s, name, got):
    s.details[name] = got
    s.row(f"{name}: time", got["wall"], "ns/message")
    s.row(f"{name}: CPU, all threads", got["cpu"], "ns/message")


def collected(text):
    return int(re.search(r"Collected : (\d+)", text).group(1))


def bench_instructions(s):
    """callgrind: instructions per message on the hot paths"""
    if not shutil.which("valgrind"):
        print("left out: valgrind is not installed", flush=True)
        return
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    few, many = (2000, 10000) if s.quick else (10000, 60000)

    def lane(work, count):
        return collected(subprocess.run([*valgrind, s.program("core_bench"), work, str(count)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, check=True, timeout=300).stderr)

    def path(work, count):
        """Of all threads, and of the core thread alone: it is the one that books calls."""
        out = f"{s.place}/callgrind"
        done = subprocess.run([*valgrind[:2], "--separate-threads=yes", f"--callgrind-out-file={out}", s.program("path_bench"), work,
                               f"dir={s.place}", f"count={count}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=True, timeout=300)
        core = 0
        for name in glob.glob(f"{out}*"):
            with open(name, encoding="utf-8") as f:
                text = f.read()
            if "rdv_flight_book" in text:
                core += int(re.search(r"^totals: (\d+)", text, re.M)[1])
            os.unlink(name)
        return collected(done.stderr), core

    def publish(count):
        with redrive_server(s, valgrind) as (port, process):
            s.figures("http_load", port, ADDRESS, "connections=64", f"count={count // 4}")
            process.send_signal(signal.SIGTERM)
            return collected(process.communicate(timeout=120)[1])
    def row(name, difference, scale=1):
        s.row(f"instructions: {name}", difference / (many - few) * scale, "instructions/message")

    for work, name in (("ack", "publish, handle, ack"), ("fail", "each fails once")):
        row(f"the lane alone: {name}", lane(work, many) - lane(work, few))
    for work, name in (("ack", "publish, handle, ack"), ("retry", "each fails once")):
        all_many, core_many = path(work, many)
        all_few, core_few = path(work, few)
        row(name, all_many - all_few)
        row(f"{name}: core thread", core_many - core_few)
    row("http publish, one a request", publish(many) - publish(few), 4)


def bench_kafka(s):
    """Redrive, Spring Kafka, parallel-consumer and bare librdkafka through the same scenarios on one broker"""
    compare.compare(s)


BENCHES = {name[len("bench_"):]: function for name, function in list(globals().items()) if name.startswith("bench_")}


# ---- the frame ----

@contextlib.contextmanager
def locked():
    with open(LOCK, "a", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def short(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def line_of(row):
    met = {None: "", True: "met", False: "MISSED"}[row["met"]]
    return (f"{row['name']:<58} {short(row['value']):>12} {row['unit']:<20} {short(row['peer_value']):>12} {short(row['ratio']):>8} "
            f"{short(row['goal']):>5} {met:<6} {row['peer'] or ''}").rstrip()


def table(rows):
    head = f"{'what':<58} {'value':>12} {'unit':<20} {'peer':>12} {'ratio':>8} {'goal':>5} {'':<6} against"
    return "\n".join([head, "-" * len(head), *map(line_of, rows)])


def build_programs(s):
    """The clients of queues whose libraries came after the build directory need a new configuration."""
    targets = subprocess.run(["ninja", "-C", s.build, "-t", "targets", "all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    libraries = {"redis": "hiredis", "rabbitmq": "librabbitmq", "postgres": "libpq"}
    if any(f"queue_{name}:" not in targets and subprocess.run(["pkg-config", "--exists", library], check=False).returncode == 0
           for name, library in libraries.items()):
        source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        subprocess.run(["meson", "setup", "--reconfigure", s.build, source], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["ninja", "-C", s.build, "--quiet", "product", "benches"], stdout=subprocess.DEVNULL, check=True)


def machine(s):
    kind = json.loads(subprocess.run(["meson", "introspect", "--buildoptions", s.build], stdout=subprocess.PIPE, text=True,
                                     check=True).stdout)
    return {"kernel": platform.release(), "cores": os.cpu_count(), "load": os.getloadavg(),
            "buildtype": next(o["value"] for o in kind if o["name"] == "buildtype"),
            "filesystem": subprocess.run(["stat", "-f", "-c", "%T", s.place], stdout=subprocess.PIPE, text=True, check=True).stdout.strip(),
            "rounds": s.rounds, "quick": s.quick, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def notes(s):
    """Durability, versions and flushes of the queues, for below the table."""
    for name, runs in s.details.items():
        if name.startswith("queues ") and runs:
            r = runs[len(runs) // 2]
            yield f"{name[7:]:<20} {r['version']:<8} {r['flushes'] * 1000 / r['count']:>8.2f} flushes/1,000 messages  {r['durability']}"
    yield f"machine: {s.details['machine']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:<14}{function.__doc__}" for name, function in BENCHES.items()))
        return 0
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are: {' '.join(BENCHES)}")
    s = Suite(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        os.chmod(s.place, 0o711)
        build_programs(s)
        s.details["machine"] = machine(s)
        for name in options.names or [name for name in BENCHES if name != "kafka"]:
            run_one(s, name)
            s.write()
    finally:
        shutil.rmtree(s.place, ignore_errors=True)
    print("\n" + "\n".join(notes(s)) + "\n\n" + table(s.rows))
    if s.failed:
        print("did not run: " + ", ".join(s.failed), file=sys.stderr)
    return 1 if s.failed else 0


def run_one(s, name):
    started = time.monotonic()
    lock = contextlib.nullcontext() if name in ("peers", "backlog") else locked()  # those two take it for each run
    try:
        with lock:
            BENCHES[name](s)
    except (subprocess.SubprocessError, OSError, RuntimeError, KeyError) as error:
        s.failed.append(name)
        print(f"{name} failed: {error!r}", file=sys.stderr)
    print(f"# {name}: {time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
