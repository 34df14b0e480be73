#!/usr/bin/env python3
"""Three instances, twelve partitions, and every few seconds one is killed, hung, ended or started: nothing is lost, no message comes
before an earlier one of its key has ended, every dead message is one letter, the accounts add up.

KILLS sets how many blows (default 12; the full run has 500), SEED the dice."""
import os
import random
import time

from kafka_lib import Group, Judge, Kafka, Producer, letters_of
from lib import equal, main, test, until

KILLS = int(os.environ.get("KILLS", "12"))
QUICK = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500", "max.poll.interval.ms": "8000", "transaction.timeout.ms": "10000"}


class Blows:
    """What is done to the instances; each leaves at least one of them working, and what hangs wakes some blows later."""

    def __init__(self, instances, dice):
        self.instances, self.dice, self.asleep, self.down, self.told = instances, dice, set(), set(), {}

    def one(self):
        verbs = [self.kill, self.kill, self.stop, self.hang, self.blink]
        able = [i for i in range(3) if i not in self.asleep | self.down]
        if len(able) < 2 or self.dice.random() < 0.4 and self.asleep | self.down:
            verb, i = self.back, self.dice.choice(sorted(self.asleep | self.down))
        else:
            verb, i = self.dice.choice(verbs), self.dice.choice(able)
        self.told[verb.__name__] = self.told.get(verb.__name__, 0) + 1
        verb(i)

    def kill(self, i):
        self.instances.kill(i)
        self.down.add(i)

    def stop(self, i):
        equal(self.instances[i].stop(), 0, "exit code")
        self.down.add(i)

    def hang(self, i):
        self.instances.sleep(i)
        self.asleep.add(i)

    def blink(self, i):
        """Too short to be given up, or just not: the hardest moment to lose a lane is while writing."""
        self.instances.sleep(i)
        time.sleep(self.dice.uniform(0.1, 4))
        self.instances.wake(i)

    def back(self, i):
        if i in self.asleep:
            self.instances.wake(i)
            self.asleep.discard(i)
        else:
            self.instances.start(i, ready=False)
            self.down.discard(i)

    def end(self):
        for i in sorted(self.asleep | self.down):
            self.back(i)
        for server in self.instances:
            self.instances.await_ready(server)


@test
def random_blows_lose_nothing_and_permute_nothing(redrive):
    seed = int(os.environ.get("SEED", str(int(time.time()))))
    dice = random.Random(seed)
    print(f"# seed {seed}, {KILLS} blows", flush=True)
    kafka = Kafka(redrive)
    topic = kafka.topic(12)
    with Judge(keys=120, fail=8, poison=0.5) as judge:
        made = kafka.route("r", topic, judge.url, kafka={"settings": QUICK}, order="key", breaker="off", storm="dead", budget="off",
                           retry={"backoff": "fixed", "base": "300ms", "min": "0s", "jitter": "none"})
        with Group(redrive, 3, made) as instances, Producer(topic, keys=120, rate=150) as producer:
            blows = Blows(instances, dice)
            for _ in range(KILLS):
                time.sleep(dice.uniform(0.2, 4))
                blows.one()
                judge.check()  # at once, so that the log ends where it happened
            blows.end()
            count = producer.stop()
            until(lambda: judge.finished() == count, seconds=120 + count / 200, why=f"{count} are finished: {judge}")
            judge.check(count)
            until(lambda: topic.lag() == 0, seconds=60, why="committed")
            until(lambda: instances.settled(count), seconds=60, why=f"settled: {instances.counts()}")
            total = instances.counts()
            dead = {(r.partition, r.offset) for r in topic.read() if r.seq in judge.dead()}
            equal((total["dead"], total["acked"]), (len(dead), count - len(dead)), "dead and acked")
            equal(sorted(letter.position for letter in letters_of(kafka, topic)), sorted(dead), "letters in the topic")
            print(f"# {count} messages, {blows.told}: {judge}", flush=True)


if __name__ == "__main__":
    main()
