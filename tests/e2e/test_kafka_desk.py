#!/usr/bin/env python3
"""The desk on Kafka: fed by the letters topics, through outages, strangers, crashes; and replays of what lies in them."""
import time

from kafka_lib import Kafka, letters_of, small
from lib import Handler, Server, equal, main, route, test, until

DEAD = {"storm": "dead"}


def serve(redrive, kafka, topic, url, source=None, **keys):
    return Server(redrive, kafka.route("r", topic, url, kafka=source, **{**DEAD, **keys}), **small())


def positions(server):
    return sorted((letter["partition"], letter["offset"]) for letter in server.letters())


def plan(server, **body):
    answer = server.request("POST", "/v1/replays", {"rate": "1000/s", "ids": [letter["id"] for letter in server.letters()], **body})
    equal(answer.status, 201, f"plan {answer}")
    return answer.json()


def run_plan(server, made):
    for verb, body in (("approve", {"digest": made["digest"]}), ("start", {})):
        answer = server.request("POST", f"/v1/replays/{made['id']}/{verb}", body)
        equal(answer.status, 200, f"{verb}: {answer}")


def over(server, made, seconds=60):
    return until(lambda: (p := server.get(f"/v1/replays/{made['id']}").json())["state"] in ("finished", "stopped", "cancelled") and p,
                 seconds=seconds, why="the plan ends")


@test
def letters_come_to_the_desk_within_a_second_and_are_replayed(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(3)
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url) as server:
        topic.put({"key": "k", "value": b"body \x00\xff", "headers": [("h", b"v")]})
        until(lambda: len(server.letters()) == 1, why="the first letter")
        died = time.monotonic()
        topic.put(*[{"key": f"k{i}", "value": f"body {i}"} for i in range(100)])
        until(lambda: len(handler.deliveries) == 101, why="all were tried")
        began = time.monotonic()
        until(lambda: len(server.letters()) == 101, why="all are at the desk")
        assert time.monotonic() - began < 1.5 or time.monotonic() - died > 10, ("seconds until they are shown", time.monotonic() - began)
        equal(positions(server), sorted(letter.position for letter in letters_of(kafka, topic)), "the desk has what the topic has")
        first = next(letter for letter in server.letters() if letter["key"] == "k")
        equal(server.get(f"/v1/dead-letters/{first['id']}/body").body, b"body \x00\xff", "body")

        handler.answer = lambda d: 200
        made = plan(server)
        run_plan(server, made)
        equal(over(server, made)["result"]["acked"], 101, "replayed")
        until(lambda: all(letter["state"] == "replayed" for letter in server.letters()), why="the letters say so")
        again = handler.deliveries[101:]
        equal(sorted(d.key for d in again), sorted(d.key for d in handler.deliveries[:101]), "each once")
        equal(next(d for d in again if d.key == "k").body, b"body \x00\xff", "as it was")


@test
def a_replay_that_dies_again_is_a_letter_more(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url) as server:
        topic.put({"key": "k", "value": "body"})
        until(lambda: len(server.letters()) == 1, why="the letter")
        made = plan(server)
        run_plan(server, made)
        equal(over(server, made)["result"]["dead_again"], 1, "died again")
        until(lambda: len(server.letters()) == 2, why="another letter")
        equal(sorted(letter["generation"] for letter in server.letters()), [0, 1], "generations")


@test
def each_letter_is_one_over_crashes(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(4)
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url, {"instance": "one"}) as server:
        for turn in range(4):
            topic.put(*[{"key": f"k{i}", "value": f"{turn} {i}"} for i in range(250)])
            until(lambda: len(handler.deliveries) >= 250 * turn + 100, why="some were tried")
            server.kill()
            server.start()
        until(lambda: len(server.letters()) == 1000, seconds=60, why="all are at the desk")
        equal(len(set(positions(server))), 1000, "each once")
        equal(len(letters_of(kafka, topic)), 1000, "each once in the topic")


@test
def a_desk_that_lost_its_data_reads_them_again(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    with Handler(lambda d: 422) as handler:
        with serve(redrive, kafka, topic, handler.url) as server:
            topic.put(*[{"key": f"k{i}", "value": f"body {i}"} for i in range(20)])
            until(lambda: len(server.letters()) == 20, why="all are at the desk")
            before = {letter["id"] for letter in server.letters()}
        with serve(redrive, kafka, topic, handler.url) as server:
            until(lambda: len(server.letters()) == 20, why="all are at the other desk")
            equal({letter["id"] for letter in server.letters()}, before, "ids")
            equal(len(handler.deliveries), 20, "nothing was tried again")


@test
def strangers_in_the_letters_topic_are_passed_over(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url) as server:
        topic.put({"key": "k", "value": "first"})
        until(lambda: len(server.letters()) == 1, why="the letter")
        private = kafka.private(topic, "letters")
        [whole] = [record.value for record in private.read()]
        private.put({"key": "x", "value": "hello"}, {"key": None, "value": None}, {"key": "x", "value": whole[:30]}, {"key": "x", "value": b"RDL1"},
                    {"key": "x", "value": whole})
        topic.put({"key": "k", "value": "second"})
        until(lambda: len(server.letters()) == 2, why="the one behind them")
        log = server.log()
        equal(log.count("is no letter of this route"), 1, "said once")
        equal(log.count("is damaged: it cannot be shown"), 1, "said once")
        private.put({"key": "x", "value": b"RDL2 from the future"})
        until(lambda: "written by a newer Redrive" in server.log(), why="it is said")
        topic.put({"key": "k", "value": "third"})
        until(lambda: len(handler.deliveries) == 3 and topic.lag() == 0, why="consuming goes on")
        equal(len(server.letters()), 2, "the desk stands before what it does not know")


@test
def letters_that_were_cut_off_are_said(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    with Handler(lambda d: 422) as handler, serve(redrive, kafka, topic, handler.url) as server:
        topic.put({"key": "k", "value": "first"})
        until(lambda: len(server.letters()) == 1, why="the letter")
        server.stop()
        private = kafka.private(topic, "letters")
        record = private.read()[0]
        private.put(*[{"key": "x", "value": "filler"} for _ in range(10)])
        private.cut(0, private.ends()[0][1] - 2)
        server.start()
        topic.put({"key": "k", "value": "second"})
        until(lambda: len(server.letters()) == 2, why="the one behind")
        assert "letters were deleted before they were taken in" in server.log(), (record, server.log()[-2000:])


@test
def several_instances_have_one_desk(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(4)
    with Handler(lambda d: 422) as handler:
        made = kafka.route("r", topic, handler.url, **DEAD)
        runtimes = [Server(redrive, made, arguments=["--only", "runtime"], start=False, **small()) for _ in range(2)]
        with Server(redrive, made, arguments=["--only", "desk"], **small()) as desk, runtimes[0] as one, runtimes[1] as other:
            one.start()
            other.start()
            until(lambda: one.route("r")["partitions"] == other.route("r")["partitions"] == 2, seconds=60, why="each has two partitions")
            topic.put(*[{"key": f"k{i}", "value": f"body {i}"} for i in range(100)])
            until(lambda: len(desk.letters()) == 100, seconds=60, why="all are at the desk")
            equal(desk.route("r")["counts"]["received"], 0, "the desk consumes nothing")
            equal((one.letters(), other.letters()), ([], []), "the others have no desk")
            made = plan(desk)
            run_plan(desk, made)
            equal(over(desk, made)["result"]["skipped"], 100, "lanes in other processes")
            assert all(letter["state"] == "new" for letter in desk.letters()), "they stay as they are"


@test
def a_desk_alone_is_for_routes_on_kafka(redrive):
    with Handler() as handler:
        server = Server(redrive, route("r", "t", handler.url), arguments=["--only", "desk"], start=False, **small())
        with server:
            server.spawn()
            equal(server.process.wait(30), 6, "exit code")
            assert "only routes on Kafka can have their desk apart" in server.log(), server.log()


if __name__ == "__main__":
    main()
