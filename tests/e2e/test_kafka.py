#!/usr/bin/env python3
"""One instance on Kafka: messages, offsets, bytes, dead letters, and topics that are not as they were."""
import time

from kafka_lib import Judge, Kafka, Producer, letters_of, small
from lib import Handler, Server, equal, main, test, until

SMALL_FIXED = {"backoff": "fixed", "base": "200ms", "min": "0s", "jitter": "none"}


# So that a killed member is given up within a test.
QUICK = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}


def serve(redrive, kafka, topic, url, settings=None, **keys):
    """An instance with one route, r, over the topic."""
    return Server(redrive, kafka.route("r", topic, url, kafka={"settings": {**QUICK, **(settings or {})}}, **keys), **small())


def done_with(topic, group=None):
    until(lambda: topic.lag(group) == 0, why=f"the committed offsets reach the end of {topic.name}")


@test
def messages_come_once_and_a_restart_goes_on_where_it_was(redrive):
    # pitfall: a close commits what was fetched, not what was finished
    kafka = Kafka(redrive)
    topic = kafka.topic(12)
    topic.produce(1000, keys=50)
    with Judge(keys=50) as judge, serve(redrive, kafka, topic, judge.url, order="key") as server:
        until(lambda: judge.finished() == 1000, why=f"1000 are finished: {judge}")
        done_with(topic)
        equal(server.counts("r")["acked"], 1000, "acked")
        equal(server.stop(), 0, "exit code")
        topic.produce(500, keys=50, first=1000)
        server.start()
        until(lambda: judge.finished() == 1500, why=f"1500 are finished: {judge}")
        done_with(topic)
        judge.check(1500)
        equal(judge.once(), {}, "messages that came more than once")
        equal(server.counts("r")["acked"], 1500, "acked: the account survives")


@test
def a_failing_message_holds_its_key_and_not_its_partition(redrive):
    # pitfall: a failing key holds back commits; pitfall: whole-queue suspension for order
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Judge(keys=20) as judge:
        decide = judge.decide
        judge.decide = lambda seq: 503 if seq == 3 and judge.times[3] < 6 else decide(seq)
        with serve(redrive, kafka, topic, judge.url, order="key", breaker="off", retry={**SMALL_FIXED, "base": "1s"}) as server:
            topic.produce(400, keys=20)
            until(lambda: judge.finished() == 380, why=f"all but key 3 are finished: {judge}")
            done_with(topic)  # nothing that waits is in the way of the offset
            equal(server.counts("r")["waiting"] + server.counts("r")["held"], 20, "of key 3")
            server.kill()
            server.start()
            until(lambda: judge.finished() == 400, why=f"all are finished: {judge}")
            judge.check(400)
            assert judge.times[3] == 6, ("attempts of the failing message", judge.times[3])


@test
def bytes_arrive_as_they_were(redrive):
    # pitfall: a null value breaks the error path; pitfall: the dead-lettered copy loses the key; pitfall: header lengths in characters
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    headers = [("plain", b"a"), ("twice", b"1"), ("twice", b"2"), ("raw", bytes(range(256))), ("null", None), ("empty", b""),
               ("größe", "äöü".encode()), ("Content-Type", b"application/x-test")]
    topic.put({"key": None, "value": None, "headers": headers}, {"key": b"", "value": b"", "headers": headers},
              {"key": bytes(range(256)), "value": bytes(range(256)) * 3, "headers": headers})
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url, storm="dead"):
        until(lambda: len(handler.deliveries) == 3, why="delivered")
        null, empty, binary = sorted(handler.deliveries, key=lambda d: int(d.headers["Redrive-Offset"]))
        equal((null.headers.get("Redrive-Null"), null.key, null.body), ("true", None, b""), "a tombstone without a key")
        equal((empty.headers.get("Redrive-Null"), empty.key, empty.body), (None, "", b""), "empty is not null")
        equal(binary.body, bytes(range(256)) * 3, "body")
        equal(binary.headers["Redrive-Partition"], "0", "partition")
        equal(binary.headers.get("Redrive-Header-Twice"), binary.headers.get("redrive-header-twice"), "names")
        letters = until(lambda: (found := letters_of(kafka, topic)) and len(found) == 3 and found, why="in the letters topic")
        equal([letter.record.key for letter in sorted(letters, key=lambda l: l.offset)], [None, b"", bytes(range(256))], "keys")
        done_with(topic)


@test
def every_compression_is_read(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for i, codec in enumerate(codecs):
        topic.produce(200, keys=10, first=200 * i, size=500, settings=[f"compression.type={codec}", "linger.ms=50"])
    with Judge(keys=10) as judge, serve(redrive, kafka, topic, judge.url, order="key"):
        until(lambda: judge.finished() == 200 * len(codecs), why=f"all are finished: {judge}")
        judge.check(200 * len(codecs))


@test
def each_dead_message_is_one_letter(redrive):
    # pitfall: repeated dead letters, since republishing and committing were two steps
    kafka = Kafka(redrive)
    topic = kafka.topic(6)
    with Judge(keys=40, poison=5, fail=10) as judge, \
            serve(redrive, kafka, topic, judge.url, order="key", storm="dead", breaker="off", retry=SMALL_FIXED) as server:
        topic.produce(800, keys=40)
        until(lambda: judge.finished() == 800, why=f"all are finished: {judge}")
        done_with(topic)
        judge.check(800)
        dead = {(r.partition, r.offset) for r in topic.read() if r.seq in judge.dead()}
        until(lambda: server.counts("r")["dead"] == len(dead), why="dead")
        equal(sorted(letter.position for letter in letters_of(kafka, topic)), sorted(dead), "positions in the letters topic")
        counts = server.counts("r")
        equal((counts["dead"], counts["acked"]), (len(dead), 800 - len(dead)), "dead and acked")


@test
def the_desk_has_the_letters(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(3)
    topic.put(*[{"key": f"k{i}", "value": f"body {i}"} for i in range(30)])
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url, storm="dead") as server:
        until(lambda: len(server.letters()) == 30, why="the desk has all of them")
        server.kill()
        server.start()
        equal(len(server.letters()), 30, "each once")


@test
def several_topics_and_a_pattern(redrive):
    # pitfall: a batch of mixed topics is dead-lettered as a whole
    kafka = Kafka(redrive)
    one, two = kafka.topic(2), kafka.topic(3)
    some = [kafka.topic(1, name=f"many-{time.monotonic_ns()}-{i}") for i in range(2)]
    prefix = some[0].name.rsplit("-", 1)[0].split("-")[0] + "-"
    with Handler() as handler, Server(redrive, kafka.route("r", [one, two, f"^{prefix}.*"], handler.url, group="g-several"), **small()):
        for i, topic in enumerate([one, two, *some]):
            topic.put({"key": "k", "value": f"topic {i}"})
        until(lambda: len(handler.deliveries) >= 4, why="one of each topic")
        equal({d.headers["Redrive-Topic"] for d in handler.deliveries}, {t.name for t in (one, two, *some)}, "topics")


@test
def partitions_that_are_added_are_read_from_their_start(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Handler() as handler, serve(redrive, kafka, topic, handler.url, {"topic.metadata.refresh.interval.ms": "1000"}) as server:
        topic.put(*[{"key": "k", "value": f"old {p}", "partition": p} for p in range(2)])
        until(lambda: len(handler.deliveries) == 2, why="the first two")
        topic.grow(5)
        topic.put(*[{"key": "k", "value": f"new {p}", "partition": p} for p in range(5)])
        until(lambda: len(handler.deliveries) == 7, seconds=60, why=f"those of all partitions: {server.route('r')}")
        equal(kafka.private(topic, "journal").partitions, 5, "partitions of the journal")
        done_with(topic)


@test
def an_offset_out_of_range_is_said_and_nothing_is_guessed(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Judge(keys=20) as judge, serve(redrive, kafka, topic, judge.url) as server:
        topic.produce(100, keys=20)
        until(lambda: judge.finished() == 100, why=f"{judge}")
        done_with(topic)
        equal(server.stop(), 0, "exit code")
        end = topic.ends()[0][1]
        assert end > 0, topic.ends()
        topic.commit(0, end + 1000)
        topic.produce(100, keys=20, first=100)
        server.spawn()
        server.port = until(server.bound_port, why="the port")
        until(lambda: topic.offsets().get(1, 0) == topic.ends()[1][1], why="the other partition goes on")
        until(lambda: says(server, "offset"), why=f"the route says it: {server.route('r')}")
        time.sleep(1)
        equal(topic.offsets()[0], end + 1000, "the offset is left as it was")


@test
def messages_deleted_before_they_were_read_are_said(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Judge(keys=4) as judge, serve(redrive, kafka, topic, judge.url) as server:
        topic.produce(50, keys=4)
        until(lambda: judge.finished() == 50, why=f"{judge}")
        done_with(topic)
        equal(server.stop(), 0, "exit code")
        topic.produce(100, keys=4, first=50)
        topic.cut(0, 100)
        server.spawn()
        server.port = until(server.bound_port, why="the port")
        until(lambda: says(server, "offset"), why=f"the route says that 50 messages are gone: {server.log()[-500:]}")


@test
def a_recreated_topic_is_found_and_said(redrive):
    # pitfall: a topic is deleted and made again: old offsets are retried for ever or match new messages
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Judge(keys=4) as judge, serve(redrive, kafka, topic, judge.url) as server:
        topic.produce(100, keys=4)
        until(lambda: judge.finished() == 100, why=f"{judge}")
        done_with(topic)
        equal(server.stop(), 0, "exit code")
        topic.recreate()
        topic.produce(10, keys=4, first=100)
        server.spawn()
        server.port = until(server.bound_port, why="the port")
        until(lambda: says(server, topic.name), why=f"it is said: {server.log()[-500:]}")


def says(server, word):
    """Does the route's detail, or the log, name it?"""
    return word in str(server.route("r").get("detail")) or word in server.log()


@test
def foreign_records_in_the_private_topics_are_counted_and_hurt_nobody(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Judge(keys=10) as judge, serve(redrive, kafka, topic, judge.url, order="key") as server:
        topic.produce(100, keys=10)
        until(lambda: judge.finished() == 100, why=f"{judge}")
        done_with(topic)
        for kind in ("journal", "inbox", "letters"):
            private = kafka.private(topic, kind)
            private.put(*[{"key": key, "value": value, "partition": p, "headers": [("h", b"\xff")]} for p in range(2) for key, value in
                          ((None, None), ("k", "not ours"), (None, b""), ("k", b"RDJ"), ("k", b"\x00" * 100000))])
        topic.produce(100, keys=10, first=100)
        until(lambda: judge.finished() == 200, why=f"it goes on: {judge}")
        server.kill()
        server.start()
        topic.produce(100, keys=10, first=200)
        until(lambda: judge.finished() == 300, why=f"and again after it was opened: {judge}, {server.route('r')}")
        judge.check(300)
        equal(server.counts("r")["acked"], 300, "acked")


@test
def a_damaged_journal_is_said_and_its_partition_stands(redrive):
    """What has our mark but breaks inside may have been ours: nothing is guessed."""
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Judge(keys=20) as judge, serve(redrive, kafka, topic, judge.url, order="key") as server:
        topic.produce(100, keys=20)
        until(lambda: judge.finished() == 100, why=f"{judge}")
        done_with(topic)
        equal(server.stop(), 0, "exit code")
        kafka.private(topic, "journal").put({"key": "k", "value": b"RDJ1\xff\xff\xff\xff\xff", "partition": 0})
        before = topic.ends()
        topic.produce(100, keys=20, first=100)
        server.start()
        until(lambda: says(server, "damaged"), why="it is said")
        until(lambda: topic.offsets()[1] == topic.ends()[1][1], why="the other partition goes on")
        equal(topic.offsets()[0], before[0][1], "its offset stands")


@test
def a_private_topic_that_would_lose_records_is_refused(redrive):
    # pitfall: the place for letters is unusable: they are dropped with a log line
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Judge(keys=4) as judge, serve(redrive, kafka, topic, judge.url) as server:
        topic.produce(10, keys=4)
        until(lambda: judge.finished() == 10, why=f"{judge}")
        done_with(topic)
        equal(server.stop(), 0, "exit code")
        journal = kafka.private(topic, "journal")
        journal.alter(retention_ms=3600000)
        topic.produce(10, keys=4, first=10)
        server.spawn()
        server.port = until(server.bound_port, why="the port")
        until(lambda: says(server, "retention.ms"), why=f"it is said: {server.log()[-500:]}")
        equal(judge.finished(), 10, "nothing is called while what happens could be lost")


@test
def huge_headers_are_kept_or_a_letter_says_why_not(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1, max_message_bytes=4000000)
    many = [(f"h{i}", b"v" * 1000) for i in range(900)]  # 900 KiB
    topic.put({"key": "k", "value": "many", "headers": many}, {"key": "k", "value": "one", "headers": [("h", b"\x80" * 900000)]},
              {"key": "k", "value": b"x" * 3000000}, {"key": "k", "value": "last"})
    # Python's server refuses so many headers, and breaks the connection at one so large: both end as letters.
    with Handler() as handler, serve(redrive, kafka, topic, handler.url, order="key", breaker="off", retry={**SMALL_FIXED, "attempts": 2}) as server:
        until(lambda: b"last" in handler.bodies(), why="the next ones go on")
        done_with(topic)
        counts = server.counts("r")
        equal(counts["acked"] + counts["dead"], 4, "each has ended")
        equal(len(letters_of(kafka, topic)), counts["dead"], "letters")


@test
def what_the_journal_can_never_take_stops_the_route_and_says_so(redrive):
    # pitfall: a record that is larger than a topic allows is dropped, and the offset moves on
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Judge(keys=1) as judge, serve(redrive, kafka, topic, judge.url, order="key", breaker="off", retry=SMALL_FIXED) as server:
        topic.produce(20, keys=1)
        until(lambda: judge.finished() == 20, why=f"{judge}")
        done_with(topic)
        journal = kafka.private(topic, "journal")
        kept = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1, "segment_bytes": 64 << 20}
        journal.alter(max_message_bytes=500, **kept)
        judge.fail = 100
        topic.produce(5, keys=1, first=20, size=2000)
        until(lambda: server.route("r")["state"] == "failed", why=f"the route has failed: {server.route('r')}")
        assert "larger" in server.route("r")["detail"] or "size" in server.route("r")["detail"], server.route("r")
        topic.produce(5, keys=1, first=25)
        equal((server.stop(), topic.lag()), (0, 10), "exit code, messages of which nothing was recorded")
        journal.alter(max_message_bytes=2000000, **kept)
        judge.fail = 0
        server.start()
        until(lambda: judge.finished() == 30, seconds=60, why=f"all are finished: {judge} {server.route('r')['detail']}")
        judge.check(30)
        done_with(topic)
        until(lambda: server.counts("r")["acked"] == 30, why=f"{server.counts('r')}")


@test
def back_pressure_stops_fetching(redrive):
    # pitfall: seek, pause and resume lose a position; pitfall: a back-pressure flag stops taking work but polling goes on until memory is gone
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Judge(keys=0) as judge, serve(redrive, kafka, topic, judge.url, concurrency=2) as server:
        judge.gate.clear()
        topic.produce(60000, keys=0, size=4000)  # 240 MB
        time.sleep(5)
        resident = int(server_status(server)["VmRSS"].split()[0]) // 1024
        judge.gate.set()
        assert resident < 400, f"{resident} MiB of memory while nothing is handled"


def server_status(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return dict(line.split(":\t", 1) for line in file if ":\t" in line)


@test
def a_handler_that_hangs_costs_no_rebalance(redrive):
    # pitfall: a blocking handler stops the heartbeats; pitfall: a back-off longer than max.poll.interval evicts the consumer
    # Ten minutes against the default of five, at a scale of 1:50.
    kafka = Kafka(redrive)
    topic = kafka.topic(4)
    settings = {"max.poll.interval.ms": "6000", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
    with Judge(keys=20) as judge, \
            serve(redrive, kafka, topic, judge.url, settings, order="key", retry={**SMALL_FIXED, "base": "8s"}, breaker="off",
                  http={"timeout": "30s"}) as server:
        topic.produce(20, keys=20)
        until(lambda: judge.finished() == 20, why=f"{judge}")
        [member] = kafka.group(f"g-{topic.name}")["members"]
        judge.gate.clear()
        decide = judge.decide
        judge.decide = lambda seq: 503 if judge.times[seq] < 2 and seq % 211 == 0 else decide(seq)
        with Producer(topic, keys=20, rate=100, first=20) as producer:
            time.sleep(12)
            equal([m["id"] for m in kafka.group(f"g-{topic.name}")["members"]], [member["id"]], "the same member")
            judge.gate.set()
            count = producer.stop()
        until(lambda: judge.finished() == 20 + count, seconds=60, why=f"{judge}")
        judge.check(20 + count)
        equal([m["id"] for m in kafka.group(f"g-{topic.name}")["members"]], [member["id"]], "still the same member")
        equal(judge.stale, 0, "calls of an older epoch")
        assert server.counts("r")["dead"] == 0, server.counts("r")


if __name__ == "__main__":
    main()
