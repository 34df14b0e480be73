"""kafka_lib.py - what the end-to-end tests of the Kafka driver share, on top of lib.py.

    @test
    def numbers_arrive(redrive):
        kafka = Kafka(redrive)                          # the broker that REDRIVE_KAFKA names, or one for this process
        topic = kafka.topic(12)                         # a fresh topic with 12 partitions
        with Judge() as judge, Server(redrive, kafka.route("r", topic, judge.url), **small()) as server:
            topic.produce(1000, keys=50)
            until(lambda: judge.finished() == 1000)
            judge.check()

Judge is a handler for numbered messages ("kN SEQ ...", SEQ mod KEYS = N, as kafka_tool writes them): it decides by SEQ what
happens to a message and holds each delivery against what it has answered before, so that a permuted or skipped message is found
at the moment it comes. Group runs several instances with one configuration, each with its own data directory.
"""
import atexit
import collections
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from lib import Handler, Server, equal, route, until

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kafka"))
from broker import Broker  # noqa: E402

COUNTED = {"topics": 0}
OWN = {}


def small(**keys):
    """Keys of a configuration for tests: little disk."""
    return {"limits": {"disk_free": "64MiB"}, **keys}


def unhex(text):
    return None if text is None else bytes.fromhex(text)


def tohex(data):
    return None if data is None else (data.encode() if isinstance(data, str) else data).hex()


# ---- the broker ----

class Record:
    """A message as any client reads it."""

    def __init__(self, line):
        self.partition, self.offset, self.timestamp = line["partition"], line["offset"], line["timestamp"]
        self.key, self.value = unhex(line["key"]), unhex(line["value"])
        self.headers = [(name, unhex(value)) for name, value in line["headers"]]

    @property
    def seq(self):
        return int(self.value.split(b" ")[1])

    def __repr__(self):
        return f"<{self.partition}:{self.offset} {self.key!r} {(self.value or b'')[:60]!r}>"


class Kafka:
    """A cluster and the tool that speaks to it. Without an address: that of REDRIVE_KAFKA, or a broker of this process."""

    def __init__(self, redrive, broker=None):
        self.tool = Path(redrive).resolve().parent / "tests/kafka/kafka_tool"
        self.broker = broker
        if broker is None and not os.environ.get("REDRIVE_KAFKA") and not OWN:
            OWN["broker"] = Broker()
            atexit.register(OWN["broker"].close)
        self.address = broker.address if broker else os.environ.get("REDRIVE_KAFKA") or OWN["broker"].address

    def command(self, verb, *arguments, settings=()):
        options = [word for setting in settings for word in ("-X", setting)]
        return [str(self.tool), *options, self.address, verb, *map(str, arguments)]

    def run(self, verb, *arguments, input=None, settings=(), timeout=120):
        """The lines that the tool printed, as JSON; an error with what it said."""
        done = subprocess.run(self.command(verb, *arguments, settings=settings), input=input, capture_output=True, text=True,
                              timeout=timeout, check=False)
        if done.returncode:
            raise AssertionError(f"kafka_tool {verb} {' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def topic(self, partitions=4, factor=None, name=None, **config):
        """Makes a topic; underscores in names of settings stand for points."""
        COUNTED["topics"] += 1
        name = name or f"t{os.getpid()}-{COUNTED['topics']}"
        factor = factor or (min(len(self.broker.nodes), 3) if self.broker else 1)
        topic = Topic(self, name, partitions, factor, [f"{key.replace('_', '.')}={value}" for key, value in config.items()])
        topic.create()
        return topic

    def topics(self):
        [found] = self.run("topics")
        return {name: count for name, count in found.items() if not name.startswith("__")}

    def in_sync(self, count):
        """Has every partition so many replicas in sync?"""
        [found] = self.run("in_sync")
        return all(n >= count for partitions in found.values() for n in partitions)

    def private(self, topic, kind, route="r"):
        """The private topic of a route and a source topic, by its name's parts; the only one, since groups are fresh."""
        names = [name for name in self.topics() if name.startswith(f"redrive.{route}.") and name.endswith(f".{kind}")]
        own = [name for name in names if name not in topic.before]
        equal(len(own), 1, f"{kind} topics of {topic.name}: {own}; number")
        return Topic(self, own[0], self.topics()[own[0]], topic.factor, [])

    def group(self, name):
        """State and members of a group."""
        [found] = self.run("group", name)
        return found

    def route(self, name, topics, url, group=None, kafka=None, **keys):
        """A route of a configuration that reads these topics (Topic, or names)."""
        names = [t.name if isinstance(t, Topic) else t for t in (topics if isinstance(topics, list) else [topics])]
        source = {"brokers": self.address, "topics": names, "group": group or f"g-{names[0].strip('^')}", "from": "earliest",
                  **(kafka or {})}
        made = route(name, "-", url, **keys)
        made["source"] = {"kafka": source}
        return made


class Topic:
    def __init__(self, kafka, name, partitions, factor, config):
        self.kafka, self.name, self.partitions, self.factor, self.config = kafka, name, partitions, factor, config
        self.before = set()

    def create(self):
        self.before = set(self.kafka.topics())
        self.kafka.run("create", self.name, self.partitions, self.factor, *self.config)

    def delete(self):
        self.kafka.run("delete", self.name)

    def recreate(self):
        """The same name, another topic."""
        self.delete()
        until(lambda: self.name not in self.kafka.topics(), why="the topic is gone")
        self.kafka.run("create", self.name, self.partitions, self.factor, *self.config)

    def grow(self, partitions):
        self.kafka.run("grow", self.name, partitions)
        self.partitions = partitions

    def alter(self, **config):
        self.kafka.run("alter", self.name, *[f"{key.replace('_', '.')}={value}" for key, value in config.items()])

    def describe(self):
        [found] = self.kafka.run("describe", self.name)
        return found

    def produce(self, count, keys, rate=0, first=0, size=64, settings=()):
        """Numbered messages, all acknowledged when this returns."""
        [sent] = self.kafka.run("produce", self.name, count, keys, rate, first, size, settings=settings, timeout=600)
        equal(sent, {"acknowledged": count, "failed": 0}, "produced")

    def put(self, *messages, settings=()):
        """Messages as dicts: key and value text, bytes or None; headers [(name, value)]; partition."""
        lines = []
        for message in messages:
            line = {"key": tohex(message.get("key")), "value": tohex(message.get("value")),
                    "headers": [[name, tohex(value)] for name, value in message.get("headers", [])]}
            if "partition" in message:
                line["partition"] = message["partition"]
            lines.append(json.dumps(line) + "\n")
        [sent] = self.kafka.run("put", self.name, input="".join(lines), settings=settings)
        equal(sent, {"acknowledged": len(messages), "failed": 0}, "produced")

    def read(self, isolation="read_committed"):
        return [Record(line) for line in self.kafka.run("read", self.name, isolation)]

    def ends(self):
        """{partition: (first offset, next offset)}"""
        [found] = self.kafka.run("ends", self.name)
        return {int(p): tuple(pair) for p, pair in found.items()}

    def offsets(self, group=None):
        """{partition: committed offset} of a group."""
        [found] = self.kafka.run("offsets", group or f"g-{self.name}", self.name)
        return {int(p): offset for p, offset in found.items()}

    def lag(self, group=None):
        """Messages of which the group has not committed that they are done with; transactions leave no marks in a source topic."""
        committed = self.offsets(group)
        return sum(end - committed.get(p, first) for p, (first, end) in self.ends().items())

    def commit(self, partition, offset, group=None):
        self.kafka.run("commit", group or f"g-{self.name}", self.name, partition, offset)

    def cut(self, partition, offset):
        self.kafka.run("cut", self.name, partition, offset)


# ---- what no client would write ----

def crc32c(data):
    value = 0xffffffff
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
    return value ^ 0xffffffff


def rewrite_batches(node, topic, partition, change):
    """Calls change(first offset, attributes, rest) for each record batch in the first segment that a stopped node keeps of a
    partition; it gives the new attributes and rest, of the same length. Brokers give out batches as they lie on disk."""
    file = node.place / "data" / f"{topic.name}-{partition}" / f"{0:020}.log"
    data, at, found = bytearray(file.read_bytes()), 0, 0
    while at + 61 <= len(data):  # first offset 8, length 4, epoch 4, magic 1, crc 4, attributes 2, ...
        end = at + 12 + int.from_bytes(data[at + 8:at + 12], "big")
        attributes, rest = change(int.from_bytes(data[at:at + 8], "big"), int.from_bytes(data[at + 21:at + 23], "big"), bytes(data[at + 23:end]))
        data[at + 21:at + 23], data[at + 23:end] = attributes.to_bytes(2, "big"), rest
        data[at + 17:at + 21] = crc32c(bytes(data[at + 21:end])).to_bytes(4, "big")
        at, found = end, found + 1
    file.write_bytes(data)
    return found


class Producer:
    """Numbered messages at a rate in the background, until stop(); what was acknowledged is then in `count`."""

    def __init__(self, topic, keys, rate, first=0, size=64):
        self.count = None
        self.process = subprocess.Popen(topic.kafka.command("produce", topic.name, 10 ** 9, keys, rate, first, size), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=330)
        sent = json.loads(output.splitlines()[-1])
        equal(sent["failed"], 0, "messages that the producer could not deliver")
        self.count = sent["acknowledged"]
        return self.count

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


# ---- the letters topic ----


class Letter:
    """A letter of the private letters topic: "RDL1", kind, flags, length, envelope, body."""

    def __init__(self, record):
        value = record.value
        equal(value[:4], b"RDL1", "magic of a letter")
        self.record, self.kind, at = record, value[4], 5
        if self.kind != 1:
            return
        size, at = varint(value, at + 1)  # after the flags
        envelope, self.body = value[at:at + size], value[at + size:]
        self.reason = envelope[2]
        self.partition = int.from_bytes(envelope[4:8], "little")
        self.offset = int.from_bytes(envelope[8:16], "little")
        self.generation = int.from_bytes(envelope[16:20], "little")

    @property
    def position(self):
        return self.partition, self.offset


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def letters_of(kafka, topic, route="r"):
    """The letters in the letters topic that committed readers see."""
    found = [Letter(record) for record in kafka.private(topic, "letters", route).read()]
    return [letter for letter in found if letter.kind == 1]


# ---- the handler ----

def chosen(seq, salt, percent):
    """Is SEQ among so many percent? The same for every run."""
    return random.Random(seq * 7919 + salt).random() * 100 < percent


class Judge(Handler):
    """A handler for numbered messages. fail: percent whose first delivery gets 503; poison: percent that always get 422.

    A delivery is in order if all earlier messages of its key had got a final answer before it came. Rewinds (a message that
    comes again after its final answer) are allowed and counted; `epochs` are deliveries from an owner that was replaced."""

    def __init__(self, keys, fail=0.0, poison=0.0, delay=0.0, first=0):
        self.keys, self.fail, self.poison, self.delay, self.first = keys, fail, poison, delay, first
        self.final, self.failed_once, self.times = {}, set(), collections.Counter()
        self.violations, self.rewinds, self.stale, self.stray = [], 0, 0, 0
        self.epochs = {}
        self.gate = threading.Event()  # cleared: no answers
        self.gate.set()
        super().__init__(self.judge)

    def judge(self, d):
        try:
            seq = int(d.body.split(b" ")[1])
        except (IndexError, ValueError):
            self.stray += 1
            return 200
        with self.lock:
            self.look(seq, d)
            status = self.decide(seq)
        if self.delay:
            time.sleep(self.delay)
        self.gate.wait()
        if status != 503:
            with self.lock:
                self.final[seq] = status
        return status

    def look(self, seq, d):
        self.times[seq] += 1
        before = seq - self.keys
        if self.keys and before >= self.first and before not in self.final:
            self.violations.append((seq, before, d.headers.get("Redrive-Partition"), d.headers.get("Redrive-Epoch")))
        self.rewinds += seq in self.final
        partition, epoch = d.headers.get("Redrive-Partition"), int(d.headers.get("Redrive-Epoch") or 0)
        self.stale += epoch < self.epochs.get(partition, 0)
        self.epochs[partition] = max(epoch, self.epochs.get(partition, 0))

    def decide(self, seq):
        if chosen(seq, 1, self.poison):
            return 422
        if chosen(seq, 0, self.fail) and seq not in self.failed_once:
            self.failed_once.add(seq)
            return 503
        return 200

    def finished(self):
        return len(self.final)

    def dead(self):
        """The messages that never succeed."""
        return {seq for seq, status in list(self.final.items()) if status == 422}

    def check(self, count=None):
        """No message before its time; with a count: none missing."""
        equal(self.violations[:5], [], f"deliveries before an earlier one of their key had ended ({len(self.violations)} in all)")
        if count is not None:
            missing = [seq for seq in range(self.first, self.first + count) if seq not in self.final]
            equal(missing[:10], [], f"never finished ({len(missing)} in all)")

    def once(self):
        """Messages that were called more often than their failures explain."""
        return {seq: n for seq, n in self.times.items() if n != 1 + (seq in self.failed_once)}

    def __repr__(self):
        return f"{self.finished()} finished, {sum(self.times.values())} calls, {self.rewinds} rewinds, {self.stale} of an older epoch"


# ---- several instances ----

class Group:
    """So many instances of `redrive serve` with one configuration. Use as a context."""

    def __init__(self, redrive, count, *routes, each=None, **keys):
        self.servers = []
        try:
            for i in range(count):
                own = [each(dict(r), i) for r in routes] if each else routes
                self.servers.append(Server(redrive, *own, start=False, **small(**keys)))
            for server in self.servers:
                server.spawn()
            for server in self.servers:
                self.await_ready(server)
        except BaseException:
            self.close()
            raise

    def await_ready(self, server):
        server.port = until(server.bound_port, why="the port file")
        until(server.is_ready, seconds=60, why="/readyz is 200")

    def __getitem__(self, i):
        return self.servers[i]

    def __iter__(self):
        return iter(self.servers)

    def kill(self, i):
        self.servers[i].kill()

    def start(self, i, ready=True):
        self.servers[i].spawn()
        if ready:
            self.await_ready(self.servers[i])

    def sleep(self, i):
        self.servers[i].signal(signal.SIGSTOP)

    def wake(self, i):
        self.servers[i].signal(signal.SIGCONT)

    def running(self):
        return [s for s in self.servers if s.process and s.process.poll() is None]

    def counts(self, name="r"):
        """The accounts of all running instances, added up; each adds up by itself."""
        total = collections.Counter()
        for server in self.running():
            total.update(server.counts(name))
        return total

    def settled(self, count, name="r"):
        """Have so many been received, and is nothing open, over all instances?"""
        try:
            total = self.counts(name)
        except (OSError, AssertionError, ValueError):
            return False
        return total["received"] == count and not any(total[s] for s in ("ready", "waiting", "held", "in_flight"))

    def close(self):
        for server in self.servers:
            if server.process and server.process.poll() is None:
                server.signal(signal.SIGCONT)
            server.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            for i, server in enumerate(self.servers):
                print(f"--- log of instance {i}\n{server.log()[-3000:]}", file=sys.stderr, flush=True)
        self.close()
