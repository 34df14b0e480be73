#!/usr/bin/env python3
"""Several instances on Kafka: partitions change hands, an instance hangs and wakes, one leaves in order."""
import time

from kafka_lib import Group, Judge, Kafka, Producer, letters_of
from lib import equal, main, test, until

# Short enough that a member that is gone is replaced within a test.
QUICK = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500", "max.poll.interval.ms": "10000"}
RETRY = {"backoff": "fixed", "base": "300ms", "min": "0s", "jitter": "none"}


def group(redrive, kafka, topic, judge, count, settings=None, each=None, **keys):
    source = {"settings": {**QUICK, **(settings or {})}}
    made = kafka.route("r", topic, judge.url, kafka=source, order="key", breaker="off", storm="dead", retry=RETRY, **keys)
    return Group(redrive, count, made, each=each)


def everything(judge, group_, topic, count):
    """All is finished, in order, committed; the accounts add up; one letter for each dead message."""
    until(lambda: judge.finished() == count, seconds=90, why=f"{count} are finished: {judge}")
    judge.check(count)
    until(lambda: topic.lag() == 0, seconds=60, why="committed")
    until(lambda: group_.settled(count), seconds=60, why=f"settled: {group_.counts()}")
    total = group_.counts()
    dead = {(r.partition, r.offset) for r in topic.read() if r.seq in judge.dead()}
    equal((total["dead"], total["acked"]), (len(dead), count - len(dead)), "dead and acked")
    equal(sorted(letter.position for letter in letters_of(topic.kafka, topic)), sorted(dead), "letters in the topic")


@test
def partitions_change_hands_and_nothing_is_lost(redrive):
    # pitfall: a rebalance lifts a pause and throws polled records away
    # pitfall: an entry of before the rebalance hides a re-delivered record
    kafka = Kafka(redrive)
    topic = kafka.topic(12)
    with Judge(keys=60, fail=10, poison=1) as judge, group(redrive, kafka, topic, judge, 2) as instances:
        with Producer(topic, keys=60, rate=300) as producer:
            until(lambda: judge.finished() > 300, why=f"{judge}")
            instances.kill(1)
            until(lambda: judge.finished() > 1200, seconds=60, why=f"the other one takes over: {judge}")
            instances.start(1)
            until(lambda: owners(kafka, topic) == 2, why="shared again")
            equal(instances[0].stop(), 0, "exit code: it leaves in order")
            done = judge.finished()
            until(lambda: judge.finished() > done + 600, seconds=60, why=f"{judge}")
            instances.start(0)
            until(lambda: owners(kafka, topic) == 2, why="shared again")
            count = producer.stop()
        everything(judge, instances, topic, count)
        print(f"# {count} messages: {judge}", flush=True)


def owners(kafka, topic):
    return sum(bool(member["partitions"]) for member in kafka.group(f"g-{topic.name}")["members"])


@test
def an_instance_that_leaves_in_order_repeats_nothing(redrive):
    # pitfall: a draining consumer stops polling; pitfall: a close commits what was fetched
    kafka = Kafka(redrive)
    topic = kafka.topic(6)
    with Judge(keys=30, delay=0.02) as judge, group(redrive, kafka, topic, judge, 2) as instances:
        with Producer(topic, keys=30, rate=200) as producer:
            until(lambda: owners(kafka, topic) == 2 and judge.finished() > 200, why=f"{judge}")
            for _ in range(3):
                equal(instances[1].stop(), 0, "exit code")
                instances.start(1)
                until(lambda: owners(kafka, topic) == 2, why="shared again")
            count = producer.stop()
        everything(judge, instances, topic, count)
        equal((judge.rewinds, judge.stale), (0, 0), "messages that came again")


@test
def a_hung_instance_that_wakes_changes_nothing(redrive):
    # pitfall: a commit is refused during a rebalance and the poll loop dies
    kafka = Kafka(redrive)
    topic = kafka.topic(12)
    with Judge(keys=60, fail=10, poison=1) as judge, \
            group(redrive, kafka, topic, judge, 2, {"transaction.timeout.ms": "10000"}) as instances:
        with Producer(topic, keys=60, rate=200) as producer:
            until(lambda: owners(kafka, topic) == 2 and judge.finished() > 200, why=f"{judge}")
            instances.sleep(0)
            until(lambda: owners(kafka, topic) == 1 and len(kafka.group(f"g-{topic.name}")["members"]) == 1, seconds=60,
                  why="it is given up")
            done = judge.finished()
            until(lambda: judge.finished() > done + 800, seconds=90, why=f"the other one does all of it: {judge}")
            instances.wake(0)
            until(lambda: owners(kafka, topic) == 2, seconds=60, why="it is a member again, without being started again")
            assert instances[0].process.poll() is None, "it lives"
            count = producer.stop()
        everything(judge, instances, topic, count)
        print(f"# {count} messages: {judge}", flush=True)


@test
def a_static_member_comes_back_without_a_rebalance(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(6)

    def each(made, i):
        made["source"] = {"kafka": {**made["source"]["kafka"], "instance": f"host-{i}"}}
        return made

    with Judge(keys=30) as judge, group(redrive, kafka, topic, judge, 2, {"session.timeout.ms": "20000", "max.poll.interval.ms": "20000"}, each) as instances:
        topic.produce(300, keys=30)
        until(lambda: judge.finished() == 300, why=f"{judge}")
        until(lambda: owners(kafka, topic) == 2, why="both own some")
        before = shares(kafka, topic)
        instances.kill(1)
        instances.start(1)
        topic.produce(300, keys=30, first=300)
        everything(judge, instances, topic, 600)
        equal(shares(kafka, topic), before, "partitions by instance")


def shares(kafka, topic):
    return {m["instance"]: sorted(map(tuple, m["partitions"])) for m in kafka.group(f"g-{topic.name}")["members"]}


@test
def two_groups_do_not_retry_each_others_failures(redrive):
    # pitfall: what failed in one group is retried in another
    kafka = Kafka(redrive)
    topic = kafka.topic(3)
    with Judge(keys=30, fail=20) as one, Judge(keys=30) as two:
        first = kafka.route("one", topic, one.url, group="g-one", order="key", breaker="off", retry=RETRY)
        second = kafka.route("two", topic, two.url, group="g-two", order="key")
        with Group(redrive, 1, first, second) as instances:
            topic.produce(600, keys=30)
            until(lambda: one.finished() == two.finished() == 600, why=f"{one}, {two}")
            one.check(600)
            two.check(600)
            equal(two.once(), {}, "messages that came more than once to the one that never failed")
            until(lambda: instances.counts("two")["acked"] == 600, why="acked")


@test
def rebalances_that_change_nothing_disturb_nothing(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    # three members for two partitions: the third one comes and goes
    with Judge(keys=20, delay=0.005, fail=5) as judge, group(redrive, kafka, topic, judge, 3) as instances:
        with Producer(topic, keys=20, rate=150) as producer:
            for _ in range(4):
                idle = next((i for i, s in enumerate(instances) if s.route("r")["counts"]["received"] == 0), 2)
                before = judge.finished()
                instances.kill(idle)
                instances.start(idle)
                until(lambda: judge.finished() > before + 150, seconds=60, why=f"{judge}")
            count = producer.stop()
        everything(judge, instances, topic, count)


if __name__ == "__main__":
    main()
