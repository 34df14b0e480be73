#!/usr/bin/env python3
"""redrive kafka topics: what an administrator sees, without a server."""
import json
import subprocess
import tempfile
from pathlib import Path

from kafka_lib import Kafka
from lib import config, equal, main, route, test

URL = "http://127.0.0.1:1/"


def run(redrive, routes, *arguments):
    """Exit code, standard output and error of `redrive kafka topics` with these routes' file."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "redrive.yaml"
        file.write_text(config(*routes))
        done = subprocess.run([redrive, "kafka", "topics", *arguments, str(file)], capture_output=True, text=True, timeout=120,
                              check=False)
    return done.returncode, done.stdout, done.stderr


@test
def topics_are_checked_created_and_checked_again(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(3)
    routes = [kafka.route("ops", topic, URL), route("other", "embedded", URL)]
    code, out, _ = run(redrive, routes, "--check")
    equal((code, out.count("is missing (--create mends it)")), (6, 3), "code and findings before")
    code, out, err = run(redrive, routes, "--create")
    equal((code, out, err), (0, f"route ops, topic {topic.name}: good, 3 partitions\n", ""), "created")
    equal(run(redrive, routes, "--check")[0], 0, "code after")
    topic.grow(5)
    code, out, _ = run(redrive, routes, "--check", "-o", "json")
    [item] = json.loads(out)["items"]
    equal(code, 6, "code after the source has grown")
    equal((item["route"], item["topic"], item["partitions"]), ("ops", topic.name, 5), "item")
    equal([f["what"] for f in item["findings"]], ["has 3 partitions, must have 5"] * 3, "findings")
    equal([f["topic"] for f in item["findings"]], [item["private"][k] for k in ("journal", "inbox", "letters")], "private topics")
    equal(run(redrive, routes, "--create")[0], 0, "code of growing them")
    equal({kafka.topics()[name] for name in item["private"].values()}, {5}, "partitions")


@test
def what_create_does_not_mend_is_said(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    routes = [kafka.route("ops", topic, URL)]
    equal(run(redrive, routes, "--create")[0], 0, "created")
    _, out, _ = run(redrive, routes, "--check", "-o", "json")
    journal = json.loads(out)["items"][0]["private"]["journal"]
    kafka.run("alter", journal, "cleanup.policy=compact", "retention.ms=-1", "segment.bytes=67108864", "max.message.bytes=9000000")
    for verb in ("--create", "--check"):
        code, out, _ = run(redrive, routes, verb)
        equal((code, out), (6, f"route ops, topic {topic.name}: {journal} cleanup.policy is compact, must be delete\n"), verb)


@test
def a_pattern_is_what_it_matches_now(redrive):
    kafka = Kafka(redrive)
    first, second = kafka.topic(1), kafka.topic(2)
    routes = [kafka.route("p", f"^({first.name}|{second.name})$$", URL)]
    code, out, _ = run(redrive, routes, "--check", "-o", "json")
    equal((code, [item["topic"] for item in json.loads(out)["items"]]), (6, sorted([first.name, second.name])), "topics")
    code, _, err = run(redrive, [kafka.route("p", "^there-is-none-", URL)], "--check")
    equal((code, "no topic of the cluster matches" in err), (3, True), "code and text")


@test
def commands_are_printed_for_the_principal(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(2)
    code, out, _ = run(redrive, [kafka.route("ops", topic, URL, kafka={"create_topics": False})], "--print", "--principal",
                       "User:redrive")
    lines = out.splitlines()
    equal((code, len(lines)), (0, 10), "code and lines")
    equal([line.split()[0] for line in lines[1:]], ["kafka-topics.sh"] * 3 + ["kafka-acls.sh"] * 6, "tools")
    equal(kafka.topics().keys() & {line.split("--topic ")[1].split()[0] for line in lines[1:4]}, set(), "topics made by printing")


@test
def what_cannot_be_is_said_with_its_exit_code(redrive):
    kafka = Kafka(redrive)
    topic = kafka.topic(1)
    routes = [kafka.route("ops", topic, URL)]
    for arguments, code, text in (((), 2, "one of --print"), (("--check", "--create"), 2, "one of --print"),
                                  (("--check", "--principal", "x"), 2, "goes with --print"),
                                  (("--check", "--route", "nobody"), 3, "has no route 'nobody' with a source on Kafka")):
        found, _, err = run(redrive, routes, *arguments)
        equal((found, text in err), (code, True), f"{arguments}: {err}")
    found, _, err = run(redrive, [kafka.route("ops", "there.is.none", URL)], "--create")
    equal((found, err), (3, "redrive: route 'ops', topic 'there.is.none': the topic 'there.is.none' does not exist\n"), "no topic")
    equal("there.is.none" in kafka.topics(), False, "asking made it")
    away = kafka.route("ops", topic, URL, kafka={"brokers": "127.0.0.1:1"})
    found, _, err = run(redrive, [away], "--check")
    equal((found, "127.0.0.1:1" in err), (4, True), f"no cluster: {err}")


if __name__ == "__main__":
    main()
