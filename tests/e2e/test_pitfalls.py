#!/usr/bin/env python3
"""What hurt users of comparable systems, where no other test shows it from outside. ../PITFALLS.md lists all of them."""
import contextlib
import time

from lib import Handler, Reply, Server, equal, main, route, test, until

OFF = {"breaker": "off", "budget": "off"}
LATER = {"base": "1h", "min": "1h", "attempts": 5}
MIB = 1024


@test
def a_place_for_letters_that_cannot_be_used_is_refused_at_start(redrive):
    # pitfall: the dead-letter destination does not exist, and records are discarded with a log line
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}, start=False) as server:
        (server.directory / "data").mkdir(mode=0o700)
        (server.directory / "data" / "letters").write_text("no directory")
        server.spawn()
        assert server.process.wait(30) != 0, "it must not start"
        assert "letters" in server.log(), server.log()


@test
def every_letter_says_why_it_died(redrive):
    # pitfall: a letter says only "delivery count exceeded"; pitfall: the limit is reached and no destination is configured: deleted
    with Handler(lambda d: {b"reject": 422, b"exhaust": 500}[d.body]) as handler:
        with Server(redrive, route("r", "t", handler.url, retry={"base": "20ms", "min": "10ms", "attempts": 2}, **OFF)) as server:
            ids = {server.publish("t", body)["id"]: reason for body, reason in ((b"reject", "rejected"), (b"exhaust", "exhausted"))}
            held = server.request("POST", "/v1/topics/t/messages", b"x", {"Redrive-Delay": "1h"}).json()["id"]
            server.request("POST", f"/v1/messages/{held}/revoke", {"route": "r"})
            ids[held] = "revoked"
            until(lambda: len(server.letters()) == 3, why="three letters without any configuration for them")
            equal({l["message_id"]: l["reason"] for l in server.letters()}, ids, "reasons")
            counts = server.counts("r")
            equal((counts["dropped"], counts["dead"] + counts["revoked"]), (0, 3), "nothing is deleted")


@test
def a_delay_is_a_delay(redrive):
    # pitfall: a delay of one second takes ten, since it is looked at between polls
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        due = {}
        for n in range(60):
            delay = 300 + n * 37 % 1700
            sent = time.monotonic()
            id = server.request("POST", "/v1/topics/t/messages", b"%d" % n, {"Redrive-Delay": f"{delay}ms"}).json()["id"]
            due[id] = (sent + delay / 1000, time.monotonic() + delay / 1000)
        until(lambda: len(handler.deliveries) == 60, why="all delivered")
        late = sorted(d.at - due[d.id][1] for d in handler.deliveries)
        assert min(d.at - due[d.id][0] for d in handler.deliveries) > -0.002, "never early; times are whole milliseconds"
        assert late[30] < 0.25 and late[-1] < 2, f"late by {late[30]:.3f} s in the middle, {late[-1]:.3f} s at most"


@test
def waiting_holds_no_lease(redrive):
    # pitfall: the visibility timeout is shorter than the delay, and the task is handed out again at every timeout
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {"lease_for": "300ms"}}, "retry": {"attempts": 5, "cap": "1h"}, **OFF}) as server:
        def lease(wait):
            return server.request("POST", "/v1/routes/r/lease", {"max": 10, "wait_ms": wait}).json()["items"]
        id = server.publish("t", b"x")["id"]
        [first] = lease(5000)
        answered = time.monotonic()
        equal(server.request("POST", f"/v1/leases/{first['token']}/defer", {"delay_ms": 1500}).status, 200, "defer")
        equal(lease(900), [], "longer than two leases, and not handed out")
        equal(server.state(id), "waiting", "state")
        [second] = lease(5000)
        assert time.monotonic() - answered >= 1.49, "not before its time"
        equal(server.request("POST", f"/v1/leases/{second['token']}/ack", {}).status, 200, "ack")
        attempts = server.route("r")["attempts"]
        equal((attempts["timeouts"], attempts["deferrals"], attempts["first"] + attempts["retries"]), (0, 1, 2), "once per due date")


@test
def progress_beyond_a_stuck_message_is_kept(redrive):
    # pitfall: one failing message holds the committed offset; the list of what is done beyond it outgrows its place, or is lost at a restart
    with Handler(lambda d: 500 if d.body == b"stuck" else 200) as handler:
        with Server(redrive, route("r", "t", handler.url, source={"partitions": 1}, retry=LATER, **OFF)) as server:
            stuck = server.publish("t", b"stuck")["id"]
            until(lambda: server.state(stuck) == "waiting", why="waiting")
            for _ in range(5):
                server.publish_lines("t", [{"body_text": "fine"}] * 1000)
            until(lambda: server.counts("r")["acked"] == 5000, why="the others go by")
            before = len(handler.deliveries)
            server.kill()
            server.start()
            until(lambda: server.counts("r")["received"] == 5001, why="counts")
            equal(server.state(stuck), "waiting", "the stuck one")
            last = server.publish("t", b"last")["id"]
            until(lambda: server.state(last) in ("acked", "done"), why="acked")
            repeated = len(handler.deliveries) - before - 1
            assert repeated <= 64, f"{repeated} of 5,000 came again: at most what was being recorded may"


@test
def a_backlog_is_bounded_in_memory(redrive):
    # pitfall: back-pressure stops the work, polling goes on, and memory grows until the process is killed
    with Handler(lambda d: Reply(200, hang=True)) as handler, Server(redrive, route("r", "t", handler.url, concurrency=4)) as server:
        server.publish_lines("t", [{"body_text": "x"}] * 10)

        def memory():
            with open(f"/proc/{server.process.pid}/status") as f:
                return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        line = [{"body_text": "x" * 8000}] * 1000
        server.publish_lines("t", line)
        before = memory()
        for _ in range(45):
            server.publish_lines("t", line)
        grown = memory() - before
        assert grown < 240 * MIB, f"360 MB of backlog took {grown // MIB} MiB of memory: the read-ahead has a limit"
        equal(server.counts("r")["in_flight"], 4, "in flight")


@test
def what_fails_for_one_route_is_retried_for_it_alone(redrive):
    # pitfall: two groups retry by one topic, and what failed in one is repeated in the other
    with Handler(lambda d: 500) as bad, Handler() as good:
        with Server(redrive, route("a", "t", bad.url, retry={"base": "50ms", "min": "10ms", "attempts": 4}, **OFF), route("b", "t", good.url, **OFF)) as server:
            id = server.publish("t", b"x")["id"]
            until(lambda: server.state(id, "a") == "dead", why="dead on a")
            equal(server.state(id, "b") in ("acked", "done"), True, "acked on b")
            equal((len(bad.deliveries), len(good.deliveries)), (4, 1), "deliveries")
            [letter] = until(server.letters, why="letter")
            plan = server.request("POST", "/v1/replays", {"ids": [letter["id"]]}).json()
            server.request("POST", f"/v1/replays/{plan['id']}/approve", {"digest": plan["digest"]})
            bad.answer = None
            server.request("POST", f"/v1/replays/{plan['id']}/start")
            until(lambda: len(bad.deliveries) == 5, why="replayed")
            until(lambda: server.get(f"/v1/replays/{plan['id']}").json()["state"] == "finished", why="finished")
            equal(len(good.deliveries), 1, "a replay concerns the route that failed, too")


@test
def verdicts_of_a_batch_are_per_item(redrive):
    # pitfall: one item of a batch fails, and all of it is delivered again
    with Server(redrive, {"name": "r", "source": {"topic": "t", "partitions": 1}, "handler": {"lease": {}}, "retry": {"base": "50ms", "min": "10ms", "jitter": "none"}, **OFF}) as server:
        server.publish_lines("t", [{"body_text": str(n)} for n in range(6)])
        leases = until(lambda: server.request("POST", "/v1/routes/r/lease", {"max": 6, "wait_ms": 1000}).json()["items"], why="leases")
        leases.sort(key=lambda l: l["message"]["offset"])
        equal(len(leases), 6, "leases")
        verdicts = ["ack", "retry", "reject", "drop", "ack", "nonsense"]
        answer = server.request("POST", "/v1/leases", {"items": [{"token": l["token"], "verdict": v} for l, v in zip(leases, verdicts)]})
        if answer.status == 422:  # a wrong verdict is told before any is taken
            verdicts[5] = "ack"
            answer = server.request("POST", "/v1/leases", {"items": [{"token": l["token"], "verdict": v} for l, v in zip(leases, verdicts)] + [{"token": "unknown", "verdict": "ack"}]})
        equal(answer.status, 200, f"{answer}")
        statuses = [i["status"] for i in answer.json()["items"]]
        equal(statuses[:5], [200] * 5, "each has its own status")
        equal(statuses[-1] in (404, 422), True, "also the wrong one")
        [again] = until(lambda: server.request("POST", "/v1/routes/r/lease", {"max": 6, "wait_ms": 1000}).json()["items"], why="only one comes again")
        equal(again["message"]["offset"], leases[1]["message"]["offset"], "the one that failed")


if __name__ == "__main__":
    main()
