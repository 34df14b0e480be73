"""harness.py - consumers of Kafka side by side: each goes through the same scenarios, on the same broker, to the same service.

A scenario says what the service does (downstream.c) and how messages come; a consumer says how it is started. One run makes fresh
topics, warms the consumer up, sends the numbered messages of the tests' tool, and follows group, service and processes until every
message has succeeded or is a dead letter, or the time is over. measure() gives one dict of figures:

    seconds, per_s          first request to last success or letter; messages over that
    peak_lag                ends less committed offsets, retry topics included
    peak_open               produced, but neither succeeded nor dead: what the business sees (lag + waiting + held)
    open_recovered_s        seconds after the failure's end until open is below 1,000; -1 = never
    rebalances              generations of the group after the load began, as the broker tells
    order, duplicates       first successes after a later message of their key; second successes
    dead, dead_and_ok, lost letters; of them succeeded as well; neither succeeded nor dead at the end
    requests, over, refused calls in all; beyond the service's capacity; during the outage, or to the tenant that was down
    peak_rps                the service's busiest second
    p99_before, p99_down    ms from produced to succeeded, tenants that work: before and while one is down
    memory_mib, cpu_s       of the largest instance; of all together

Nothing is averaged over runs here.
"""
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/kafka"))
import broker  # noqa: E402

PARTITIONS, SIZE, WARM, PERIOD = 12, 256, 10000, 0.5
SESSION_MS = 10000
SERVER = ["-Xms512m", "-Xmx1g"]  # the broker as one would run it: compiled, G1


class Scenario:
    """What happens. rate 0 = as fast as it goes; end = when the failure is over, in seconds after the first request."""

    def __init__(self, what, count, keys, rate=0, service=(), instances=1, end=None, blows=None, long=False, limit=170):
        self.what, self.count, self.keys, self.rate, self.service = what, count, keys, rate, list(service)
        self.instances, self.end, self.blows, self.long, self.limit = instances, end, blows, long, limit


def rolling(run):
    """One instance after the other ends in order and starts again, every 20 s."""
    for i in range(3):
        time.sleep(20)
        run.stop(i)
        run.start(i)


def hung(run):
    """An instance stands still for 45 s, is replaced, and wakes."""
    time.sleep(15)
    run.processes[0].send_signal(signal.SIGSTOP)
    time.sleep(45)
    run.processes[0].send_signal(signal.SIGCONT)


def scenarios(quick):
    n = 10000 if quick else 100000
    down = (5, 15) if quick else (20, 140)
    outage = (5, 15) if quick else (20, 60)
    return {
        "succeed": Scenario("all succeed", n, n // 10),
        "fail": Scenario("10 % fail once", n, n // 10, service=["fail=10"]),
        "poison": Scenario("1 % always fail", n, n // 10, service=["poison=1"]),
        "tenant": Scenario("one tenant of 20 down", 500 * (down[1] + 20), 1000, 500, ["tenants=20", f"down={down[0]},{down[1]}"],
                           end=down[1], long=True, limit=down[1] + 120),
        "outage": Scenario("full outage", 500 * (outage[1] + 30), 1000, 500, ["capacity=2000", f"outage={outage[0]},{outage[1]}"],
                           end=outage[1], long=True, limit=outage[1] + 110),
        "rolling": Scenario("3 instances restarted in turn", 300 * 80, 1000, 300, instances=3, blows=rolling),
        "hung": Scenario("1 of 3 hangs and wakes", 300 * 80, 1000, 300, instances=3, blows=hung),
    }


# ---- consumers ----

class Consumer:
    """Base. policy(long): attempts, first delay, factor, cap; long = for failures that last. max.poll.interval.ms is 15 s there: the
    default of five minutes against back-offs of minutes, at a scale of 1:20."""
    name = version = ""
    works = None  # scenarios; None = all

    def policy(self, long):
        return 4, 1000, 1, 1000

    def retry_topics(self, run):
        return []

    def build(self, cache):
        pass


class Bare(Consumer):
    name, version = "bare", "librdkafka + libcurl: no order, no retry, no dead letters"
    works = ("succeed",)

    def command(self, run, _):
        return [str(run.programs / "kafka_bare"), run.address, run.topic, run.group, run.url]


class Java(Consumer):
    project = ""

    def build(self, cache):
        """Builds it with Maven, outside of the repository, if its sources have changed."""
        self.jars = cache / f"peer-{self.project}"
        stamp = self.jars / f"{self.project}-1.jar"
        sources = [HERE / self.project / "pom.xml", *(HERE / self.project).rglob("*.java")]
        if not stamp.exists() or stamp.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            subprocess.run(["mvn", "-q", "-B", "-f", str(HERE / self.project / "pom.xml"), f"-Dpeer.target={self.jars}", "package",
                            "dependency:copy-dependencies", "-DincludeScope=runtime"], check=True, stdout=subprocess.DEVNULL, timeout=600)

    def java(self, run, *more):
        attempts, delay, factor, cap = self.policy(run.scenario.long)
        values = {"brokers": run.address, "topic": run.topic, "group": run.group, "url": run.url, "attempts": attempts, "delay": delay,
                  "multiplier": factor, "cap": cap, "maxpoll": 15000 if run.scenario.long else 300000, "session": SESSION_MS}
        return ["java", "-Xms256m", "-Xmx1g", "-cp", f"{self.jars}/{self.project}-1.jar:{self.jars}/dependency/*",
                *(f"-Dpeer.{name}={value}" for name, value in values.items()), *more, "redrive.peer.App"]


class Spring(Java):
    project, version, profile = "spring", "Spring Boot 4.0.7, 12 threads", ""

    def command(self, run, _):
        array = "org.apache.kafka.common.serialization.ByteArray"
        settings = {"bootstrap-servers": run.address, "consumer.auto-offset-reset": "earliest",
                    "consumer.key-deserializer": f"{array}Deserializer", "consumer.value-deserializer": f"{array}Deserializer",
                    "producer.key-serializer": f"{array}Serializer", "producer.value-serializer": f"{array}Serializer",
                    "consumer.properties.max.poll.interval.ms": 15000 if run.scenario.long else 300000,
                    "consumer.properties.session.timeout.ms": SESSION_MS}
        return self.java(run, f"-Dspring.profiles.active={self.profile}", "-Dspring.main.banner-mode=off", "-Dlogging.level.root=WARN",
                         "-Dlogging.level.org.springframework.kafka=OFF", *(f"-Dspring.kafka.{n}={v}" for n, v in settings.items()))


class InPlace(Spring):
    name = profile = "inplace"

    def policy(self, long):
        return (50, 1000, 2, 30000) if long else (4, 1000, 1, 1000)


class RetryTopic(Spring):
    name = profile = "topic"

    def policy(self, long):
        return (8, 1000, 2, 20000) if long else (4, 1000, 1, 1000)

    def retry_topics(self, run):
        """(group, topic): the group of a retry topic has its suffix, too."""
        [topics] = run.tool("topics")
        return [(run.group + name[len(run.topic):], name) for name in topics if name.startswith(f"{run.topic}-retry")]


class Parallel(Java):
    name, project, version = "parallel", "parallel", "parallel-consumer 0.5.3.3, order by key, 64 calls at once"

    def policy(self, long):
        return (0 if long else 4), 1000, 1, 1000

    def command(self, run, _):
        return self.java(run, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


class Redrive(Consumer):
    name, version = "redrive", "order by key, 64 calls at once, defaults"

    def command(self, run, number):
        place = run.place / f"redrive-{number}"
        place.mkdir(exist_ok=True)
        (place / "redrive.yaml").write_text(json.dumps(self.configuration(run), indent=1))
        (place / "port").unlink(missing_ok=True)
        return [str(run.build / "redrive"), "serve", "--config", str(place / "redrive.yaml"), "--data", str(place / "data"), "--listen",
                "127.0.0.1:0", "--port-file", str(place / "port")]

    def configuration(self, run):
        source = {"brokers": run.address, "topics": [run.topic], "group": run.group, "from": "earliest",
                  "settings": {"session.timeout.ms": str(SESSION_MS)}}
        made = {"name": "r", "source": {"kafka": source}, "handler": {"http": {"url": run.url}}, "order": "key",
                "dead": {"topic": run.dead, "format": "headers"}}
        if not run.scenario.long:
            made["retry"] = {"attempts": 4, "backoff": "fixed", "base": "1s", "jitter": "none"}
        elif any("capacity" in word for word in run.scenario.service):
            made["rate"] = "1900/s"
        return {"limits": {"disk_free": "64MiB"}, "routes": [made]}

    def account(self, run):
        """Counts and attempts of the route, over all instances."""
        found = []
        for i in range(run.scenario.instances):
            with contextlib.suppress(OSError, ValueError):
                port = int((run.place / f"redrive-{i}/port").read_text())
                found.append({name: value for name, value in ask(port, "/v1/routes/r").items() if name in ("counts", "attempts", "state")})
        return found


CONSUMERS = {consumer.name: consumer for consumer in (Bare(), InPlace(), RetryTopic(), Parallel(), Redrive())}


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        return json.loads(text) if text.startswith("{") else text
    finally:
        connection.close()


# ---- processes ----

def status_of(pid):
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = dict(line.split(":\t", 1) for line in file if ":\t" in line)
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return int(found["VmHWM"].split()[0]) / 1024, (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return None


class Run:
    """One consumer through one scenario. Use as a context; measure() once."""

    def __init__(self, kafka, build, consumer, scenario):
        self.kafka, self.build, self.consumer, self.scenario = kafka, Path(build), consumer, scenario
        self.programs, self.address = self.build / "bench/kafka", kafka.address
        self.topic = f"bench-{consumer.name}-{time.monotonic_ns()}"
        self.dead, self.group = f"{self.topic}-dlt", f"g-{self.topic}"
        self.place = Path(tempfile.mkdtemp(prefix="redrive-kafka-bench-"))
        self.processes, self.others, self.usage = [None] * scenario.instances, [], {}
        self.url = self.port = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for process in [*self.processes, *self.others]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        with contextlib.suppress(subprocess.SubprocessError):
            self.tool("delete", *[t for t in self.tool("topics")[0] if t.startswith(self.topic) or t.startswith("redrive.r.")])
        if error is None:
            shutil.rmtree(self.place, ignore_errors=True)
        else:
            print(f"# what the consumer said is in {self.place}", flush=True)

    def tool(self, *arguments, input=None):
        done = subprocess.run([str(self.programs / "kafka_tool"), self.address, *map(str, arguments)], input=input, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=300)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def spawn(self, program, *arguments):
        process = subprocess.Popen([str(self.programs / program), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL)
        self.others.append(process)
        return process

    def start(self, i):
        with open(self.place / f"log-{i}", "ab") as log:
            self.processes[i] = subprocess.Popen(self.consumer.command(self, i), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self, i):
        self.note_usage()
        self.processes[i].terminate()
        try:
            self.processes[i].wait(60)
        except subprocess.TimeoutExpired:
            self.processes[i].kill()
            self.processes[i].wait()

    def note_usage(self):
        for process in self.processes:
            found = process and status_of(process.pid)
            if found:
                self.usage[process.pid] = found

    def warm_up(self):
        """Topics, service, consumer; then it has handled what came before the load."""
        self.tool("create", self.topic, PARTITIONS, 1)
        self.tool("create", self.dead, PARTITIONS, 1)
        line = json.dumps({"value": b"w".hex() * SIZE})
        self.tool("put", self.topic, input="".join(f'{line[:-1]}, "key": "{f"w{i}".encode().hex()}"}}\n' for i in range(WARM)))
        service = self.spawn("kafka_downstream", f"messages={self.scenario.count}", f"keys={self.scenario.keys}", *self.scenario.service)
        self.port = int(service.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/"
        for i in range(self.scenario.instances):
            self.start(i)
        self.await_(lambda: self.stats()["warm"] >= WARM, 120, "the warm-up")
        before = -1
        while self.kafka.rebalances(self.group) != before:  # the group is at rest
            before = self.kafka.rebalances(self.group)
            time.sleep(5)
        self.note_usage()
        self.idle = dict(self.usage)

    def stats(self):
        return ask(self.port, "/stats")

    def await_(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or all(p.poll() is not None for p in self.processes):
                raise RuntimeError(f"{self.consumer.name}: not within {seconds} s: {what}")
            time.sleep(0.2)

    # ---- following ----

    def measure(self):
        self.warm_up()
        s, generations = self.scenario, self.kafka.rebalances(self.group)
        groups = [(self.group, self.topic), *self.consumer.retry_topics(self)]
        follower = self.spawn("kafka_tool", self.address, "follow", int(PERIOD * 1000), self.dead, *sum(map(list, groups), []))
        load = self.spawn("kafka_tool", self.address, "produce", self.topic, s.count, s.keys, s.rate, 0, SIZE)
        blows = threading.Thread(target=s.blows or (lambda run: None), args=(self,), daemon=True)
        blows.start()
        peaks = self.follow(follower, load, blows)
        rebalances = self.kafka.rebalances(self.group) - generations
        follower.send_signal(signal.SIGTERM)
        last = json.loads(follower.stdout.read().splitlines()[-1])
        result = {"consumer": self.consumer.name, "messages": s.count, "rebalances": rebalances, **peaks, **self.sum_up(last)}
        if hasattr(self.consumer, "account"):
            result["account"] = self.consumer.account(self)
        return result

    def follow(self, follower, load, blows):
        """Looks twice a second until all is done and committed (or 12 s after), or the time is over."""
        peaks = {"peak_lag": 0, "peak_open": 0, "open_recovered_s": -1.0, "complete": False}
        end, done_at = time.monotonic() + self.scenario.limit, None
        for line in follower.stdout:
            seen, stats = json.loads(line), self.stats()
            self.note_usage()
            if None not in seen["groups"]:
                self.note_peaks(peaks, seen, stats)
            produced = load.poll() is not None and not blows.is_alive()
            if produced and stats["ok"] + seen["dead"] >= self.scenario.count:
                done_at = done_at or time.monotonic()
                lag = sum(g["lag"] for g in seen["groups"] if g)
                if lag == 0 or time.monotonic() > done_at + 12:
                    peaks["complete"] = True
                    break
            if time.monotonic() > end or all(p.poll() is not None for p in self.processes):
                break
        return peaks

    def note_peaks(self, peaks, seen, stats):
        lag = sum(group["lag"] for group in seen["groups"])
        still_open = seen["groups"][0]["end"] - WARM - stats["ok"] - seen["dead"]
        peaks["peak_lag"] = max(peaks["peak_lag"], lag)
        peaks["peak_open"] = max(peaks["peak_open"], still_open)
        t = (seen["at"] - stats["first_ms"]) / 1000 if stats["first_ms"] else 0
        if self.scenario.end is not None and t >= self.scenario.end:
            if still_open >= 1000:
                peaks["open_recovered_s"] = -1.0
            elif peaks["open_recovered_s"] < 0:
                peaks["open_recovered_s"] = round(t - self.scenario.end, 1)

    def sum_up(self, last):
        stats = self.stats()
        missing = {int(word) for word in str(ask(self.port, "/missing")).split()}
        dead = set(last["dead"])
        seconds = (max(stats["last_ok_ms"], last["last_dead_ms"]) - stats["first_ms"]) / 1000
        self.note_usage()
        return {"seconds": round(seconds, 2), "per_s": round((stats["ok"] + len(dead & missing)) / max(seconds, 0.001)),
                "order": stats["order_violations"], "duplicates": stats["duplicates"], "dead": len(last["dead"]),
                "dead_and_ok": len(dead - missing), "lost": len(missing - dead), "requests": stats["requests"],
                "over": stats["over_capacity"], "refused": stats["outage_answers"] + stats["down_answers"],
                "peak_rps": stats["peak_rps"], "p99_before": stats["p99_before"], "p99_down": stats["p99_down"],
                "memory_mib": round(max(memory for memory, _ in self.usage.values())),
                "cpu_s": round(sum(cpu - self.idle.get(pid, (0, 0))[1] for pid, (_, cpu) in self.usage.items()), 1)}


def measure(kafka, build, consumer, scenario):
    consumer.build(broker.cache())
    with Run(kafka, build, consumer, scenario) as run:
        return run.measure()


@contextlib.contextmanager
def server():
    with broker.Broker(java=SERVER) as kafka:
        yield kafka


COLUMNS = ("per_s", "seconds", "peak_lag", "peak_open", "open_recovered_s", "rebalances", "order", "duplicates", "dead", "dead_and_ok",
           "lost", "requests", "over", "refused", "peak_rps", "p99_before", "p99_down", "memory_mib", "cpu_s")


def table(results):
    """{scenario: [result]} as text."""
    lines = [" ".join([f"{'':<20}", *(f"{name[:10]:>10}" for name in COLUMNS)])]
    for scenario, found in results.items():
        for result in found:
            mark = "" if result["complete"] else " !"
            lines.append(" ".join([f"{scenario + ' ' + result['consumer'] + mark:<20}", *(f"{result[name]:>10}" for name in COLUMNS)]))
    return "\n".join(lines) + "\n! = not all was done in time"
