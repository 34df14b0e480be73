#!/usr/bin/env python3
"""Copies of dead letters in a topic for foreign readers."""
from kafka_lib import Kafka, small
from lib import Handler, Server, equal, main, test, until


@test
def a_copy_of_a_letter_goes_to_a_topic_with_fewer_partitions(redrive):
    # pitfall: the dead-letter topic has fewer partitions than the source, and publishing there loops
    kafka = Kafka(redrive)
    topic, copies = kafka.topic(12), kafka.topic(2)
    headers = [("trace", b"t-1"), ("raw", b"\x00\xff")]
    topic.put(*[{"key": f"k{i}", "value": f"body {i}", "headers": headers, "partition": i} for i in range(12)],
              {"key": None, "value": None, "partition": 11})
    with Handler(lambda d: 422) as handler, \
            Server(redrive, kafka.route("r", topic, handler.url, storm="dead", dead={"topic": copies.name, "format": "headers"}),
                   **small()) as server:
        until(lambda: len(copies.read()) == 13, why="copies")
        found = {(r.key, r.value) for r in copies.read()}
        equal(found, {(f"k{i}".encode(), f"body {i}".encode()) for i in range(12)} | {(None, None)}, "keys and values")
        for record in copies.read():
            own = [h for h in record.headers if not h[0].startswith("redrive-")]
            equal(own, headers if record.value else [], "the message's own headers, in their order")
        until(lambda: len(server.letters()) == 13, why="the desk has them, too")


@test
def a_copy_that_cannot_be_made_holds_up_nothing(redrive):
    kafka = Kafka(redrive)
    topic, copies = kafka.topic(1), kafka.topic(1, max_message_bytes=20000)
    with Handler(lambda d: 422) as handler, \
            Server(redrive, kafka.route("r", topic, handler.url, storm="dead", dead={"topic": copies.name}), **small()) as server:
        topic.put({"key": "small", "value": "x"}, {"key": "large", "value": "x" * 40000})
        until(lambda: len(server.letters()) == 2, why="both letters")
        equal([r.key for r in copies.read()], [b"small"], "copies")
        assert "is more than dead.topic" in server.log(), server.log()
        copies.delete()
        until(lambda: copies.name not in kafka.topics(), why="the copies' topic is gone")
        topic.put({"key": "k", "value": "without"})
        until(lambda: len(server.letters()) == 3, seconds=60, why="the letter goes without")
        assert "letters go without" in server.log(), server.log()


if __name__ == "__main__":
    main()
