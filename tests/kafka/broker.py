#!/usr/bin/env python3
"""broker.py - a real Apache Kafka for the tests: fetched once, formatted fresh, on free ports, gone afterwards.

    tests/kafka/broker.py --run -- COMMAND...     run COMMAND with REDRIVE_KAFKA=host:port of a broker that lives as long
    tests/kafka/broker.py --control               a broker for a test in another language: a verb a line on standard input ("start",
                                                  "stop", "kill", "pause", "resume"), its address as the answer; ends with the input
    tests/kafka/broker.py --fetch                 only make sure that the jars are there
    tests/kafka/broker.py --pin VERSION           write jars-VERSION.sha256 anew, after a version was added or changed

    with Broker() as kafka:                       # one node
        kafka.address                             # "127.0.0.1:PORT"
        kafka.stop(); kafka.start()               # SIGTERM; the same data, the same ports
        kafka.kill(); kafka.pause(); kafka.resume()    # SIGKILL, SIGSTOP, SIGCONT
    with Broker(nodes=2) as kafka:                # two brokers and a controller of its own, so that either may die
        kafka.kill(kafka.nodes[1])

The jars come from Maven's repository as pom.xml says (`mvn`, Java 17), are compared with jars-VERSION.sha256, and are kept in
$XDG_CACHE_HOME/redrive (or ~/.cache/redrive). Another version: Broker(version=...), --kafka, or REDRIVE_KAFKA_VERSION. VERSIONS has
those that are known: the default; the oldest line that the Kafka project still supports (it keeps three minor ones); and the last
of the lines before 4.0, whose transactions are of the older kind.

A broker is ready when it answers a Metadata request with all its nodes. Small internal topics, short limits for sessions and
cleanup: see SETTINGS; `settings` overrides them. Standard library only.
"""
import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSIONS = ("4.3.1", "4.1.2", "3.9.2")
HERE = Path(__file__).resolve().parent
CLUSTER = "cmVkcml2ZS10ZXN0cy0xMA"  # a formatted directory needs an id: 16 bytes in base64
READY_SECONDS = 60.0
STOP_SECONDS = 60.0
FETCH_SECONDS = 600
# Fast to start and small; the rest of the time goes to what is tested.
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx768m"]
JAVA = ["-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.logFile=System.out"]
SETTINGS = {
    "auto.create.topics.enable": "false",           # a topic that nobody made is a mistake of the test, or of the program
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",         # so that a member may be given up quickly
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "broker.heartbeat.interval.ms": "500",          # a killed node may come back when its session is over
    "broker.session.timeout.ms": "4000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
REPLICATED = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor",
              "share.coordinator.state.topic.replication.factor")
MIN_ISR = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


def default_version():
    return os.environ.get("REDRIVE_KAFKA_VERSION") or VERSIONS[0]


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


# ---- the jars ----

def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redrive"


def digests(directory):
    """The lines of a checksum file, as sha256sum writes them."""
    return [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}" for jar in sorted(directory.glob("*.jar"))]


def pinned(version):
    return HERE / f"jars-{version}.sha256"


def download(version, target):
    """Maven copies the jars into `target`; an error with what it said."""
    if not shutil.which("mvn") or not shutil.which("java"):
        raise RuntimeError("mvn and java are needed: tools/install-packages.sh check")
    done = subprocess.run(["mvn", "-q", "-B", "-C", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={version}",
                           f"-DoutputDirectory={target}", "dependency:copy-dependencies"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"mvn: {done.stdout[-1500:]}")


def verify(version, directory):
    wanted, found = set(pinned(version).read_text().splitlines()), set(digests(directory))
    if found != wanted:
        raise RuntimeError(f"the jars of Kafka {version} are not those of {pinned(version).name}: {sorted(found ^ wanted)[:4]}")


def fetch(version):
    """The directory with the jars; from the cache if they are there. Safe beside others that do the same."""
    if not pinned(version).exists():
        raise RuntimeError(f"no {pinned(version).name}: known are {', '.join(VERSIONS)}")
    place = cache()
    jars = place / f"kafka-{version}-{hashlib.sha256(pinned(version).read_bytes()).hexdigest()[:12]}"
    if jars.is_dir():
        return jars
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=place) as fresh:
                download(version, Path(fresh) / "jars")
                verify(version, Path(fresh) / "jars")
                os.rename(Path(fresh) / "jars", jars)
    return jars


def pin(version):
    with tempfile.TemporaryDirectory() as fresh:
        download(version, fresh)
        pinned(version).write_text("\n".join(digests(Path(fresh))) + "\n")


# ---- asking a broker ----

def brokers_of(port):
    """The node numbers that the broker at a port tells: Metadata request version 4 for no topic. Raises OSError."""
    body = struct.pack(">hhih", 3, 4, 1, 4) + b"test" + struct.pack(">i?", 0, False)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(struct.pack(">i", len(body)) + body)
        [size] = struct.unpack(">i", receive(s, 4))
        answer = receive(s, size)
    [count], at, nodes = struct.unpack_from(">i", answer, 8), 12, []  # after correlation and throttle time
    for _ in range(count):
        node, length = struct.unpack_from(">ih", answer, at)
        nodes.append(node)
        at += 6 + length + 4
        [rack] = struct.unpack_from(">h", answer, at)
        at += 2 + max(rack, 0)
    return nodes


def receive(s, size):
    data = b""
    while len(data) < size:
        piece = s.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


# ---- processes ----

class Node:
    """One process: a broker, a controller, or both."""

    def __init__(self, broker, number, roles, port, controller_port):
        self.broker, self.number, self.roles = broker, number, roles
        self.port, self.controller_port = port, controller_port
        self.place = broker.directory / f"node-{number}"
        self.log_file = self.place / "log"
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def properties(self):
        listeners = ([f"PLAINTEXT://{self.address}"] if "broker" in self.roles else []) + \
                    ([f"CONTROLLER://127.0.0.1:{self.controller_port}"] if "controller" in self.roles else [])
        own = {"node.id": self.number, "process.roles": ",".join(self.roles), "listeners": ",".join(listeners),
               "controller.listener.names": "CONTROLLER", "log.dirs": self.place / "data",
               "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
        if "broker" in self.roles:
            own["advertised.listeners"] = f"PLAINTEXT://{self.address}"
        return {**self.broker.settings, **own}

    def java(self, *arguments):
        return ["java", *self.broker.java, *JAVA, "-cp", f"{self.broker.jars}/*", *arguments]

    def prepare(self):
        self.place.mkdir(parents=True)
        file = self.place / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        done = subprocess.run(self.java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(file)), check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(f"format: {done.stdout[-1500:]}")

    def spawn(self):
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.java("kafka.Kafka", str(self.place / "server.properties")), cwd=self.place,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_ready(self, count):
        if self.process.poll() is not None:
            raise RuntimeError(f"the broker ended with {self.process.returncode}: {self.log()[-1500:]}")
        try:
            return "broker" not in self.roles or len(brokers_of(self.port)) >= count
        except (OSError, struct.error):
            return False

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def end(self, number):
        """Sends a signal that ends it, and waits; what was paused goes on first, or it would never end."""
        if self.running:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Broker:
    """A broker, or a small cluster, in a temporary directory. Use as a context; `nodes` are its brokers. The verbs without a node
    mean all of them."""

    def __init__(self, nodes=1, version=None, settings=None, start=True, java=None):
        self.java = java or QUICK
        self.version = version or default_version()
        self.jars = fetch(self.version)
        self.directory = Path(tempfile.mkdtemp(prefix="redrive-kafka-"))
        factor = {**dict.fromkeys(REPLICATED, min(nodes, 3)), **dict.fromkeys(MIN_ISR, 1)}
        ports = free_ports(nodes + 1)
        self.settings = {**SETTINGS, **factor, "controller.quorum.voters": f"1@127.0.0.1:{ports[0]}", **(settings or {})}
        if nodes == 1:
            self.processes = [Node(self, 1, ["broker", "controller"], ports[1], ports[0])]
        else:
            self.processes = [Node(self, 1, ["controller"], None, ports[0])]
            self.processes += [Node(self, 2 + i, ["broker"], port, None) for i, port in enumerate(ports[1:])]
        self.nodes = [node for node in self.processes if "broker" in node.roles]
        try:
            for node in self.processes:
                node.prepare()
            if start:
                self.start()
        except BaseException:
            self.close()
            raise

    @property
    def address(self):
        return ",".join(node.address for node in self.nodes)

    def start(self, node=None):
        """Starts what does not run (or one node), on the data it has, and waits until all that run know each other."""
        for each in [node] if node else self.processes:
            if not each.running:
                each.spawn()
        count = sum(each.running for each in self.nodes)
        end = time.monotonic() + READY_SECONDS
        while not all(each.is_ready(count) for each in self.nodes if each.running):
            if time.monotonic() > end:
                raise RuntimeError(f"no broker within {READY_SECONDS} s: {self.nodes[0].log()[-1500:]}")
            time.sleep(0.05)
        return self

    def stop(self, node=None):
        """SIGTERM: leaves in order. Brokers before their controller."""
        for each in [node] if node else reversed(self.processes):
            each.end(signal.SIGTERM)

    def kill(self, node=None):
        """kill -9."""
        for each in [node] if node else self.processes:
            each.end(signal.SIGKILL)

    def pause(self, node=None):
        for each in [node] if node else self.processes:
            each.process.send_signal(signal.SIGSTOP)

    def resume(self, node=None):
        for each in [node] if node else self.processes:
            each.process.send_signal(signal.SIGCONT)

    def rebalances(self, group):
        """How many generations of members a group has had, as the brokers' logs tell."""
        return len(re.findall(rf"Stabilized group {re.escape(group)} generation", self.log()))

    def log(self):
        return "\n".join(f"--- node {node.number}\n{node.log()}" for node in self.processes)

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()


def run(version, nodes, command):
    """Runs a command beside a broker; its exit code."""
    with Broker(nodes, version) as kafka:
        try:
            return subprocess.run(command, env={**os.environ, "REDRIVE_KAFKA": kafka.address}, check=False).returncode
        except KeyboardInterrupt:
            return 130


def control(version, nodes):
    """Does what its standard input says; each answer is the address, the first one when the broker is ready."""
    with Broker(nodes, version) as kafka:
        verbs = {verb: getattr(kafka, verb) for verb in ("start", "stop", "kill", "pause", "resume")}
        print(kafka.address, flush=True)
        for line in sys.stdin:
            verbs[line.strip()]()
            print(kafka.address, flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description="A real Apache Kafka for the tests.")
    parser.add_argument("--kafka", metavar="VERSION", default=default_version(), help=f"one of {', '.join(VERSIONS)}")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--fetch", action="store_true", help="only fetch the jars")
    parser.add_argument("--pin", metavar="VERSION", help="write the checksums of a version's jars")
    parser.add_argument("--run", action="store_true", help="run the command after --")
    parser.add_argument("--control", action="store_true", help="do what standard input says")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.pin:
        return pin(given.pin)
    if given.fetch:
        print(fetch(given.kafka))
        return 0
    if given.control:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return control(given.kafka, given.nodes)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not given.run or not command:
        parser.error("nothing to do: --run -- COMMAND, --fetch or --pin VERSION")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the broker must not outlive this
    return run(given.kafka, given.nodes, command)


if __name__ == "__main__":
    sys.exit(main())
