#!/usr/bin/env python3
"""Dead letters and replays: listed, paged, planned, approved, rated, killed in the middle, and adding up."""
import contextlib
import http.client
import os
import sqlite3
import threading
import time

from lib import Handler, Reply, Server, equal, main, route, test, until

ONE = {"attempts": 1}


def dead(server, count, topic="t", key=None):
    ids = [i for n in range(0, count, 500) for i in
           [x["id"] for x in server.publish_lines(topic, [{"key": key(m) if key else None, "body": m} for m in range(n, min(n + 500, count))])["items"]]]
    until(lambda: server.counts("r")["dead"] == count and len(all_letters(server)) == count, seconds=60, why=f"{count} letters")
    return ids


def all_letters(server, query=""):
    items, cursor = [], ""
    while True:
        page = server.get(f"/v1/dead-letters?limit=1000{query}{cursor}").json()
        items += page["items"]
        if not page["next"]:
            return items
        cursor = "&cursor=" + page["next"]


def plan(server, **body):
    answer = server.request("POST", "/v1/replays", {"rate": "1000/s", **body})
    equal(answer.status, 201, f"plan {answer}")
    return answer.json()


def act(server, id, verb, status=200, **body):
    answer = server.request("POST", f"/v1/replays/{id}/{verb}", body)
    equal(answer.status, status, f"{verb}: {answer}")
    return answer.json()


def result(server, id):
    p = server.get(f"/v1/replays/{id}").json()
    r = p["result"]
    equal(p["selected"], r["acked"] + r["dead_again"] + r["skipped"] + r["unknown"] + r["not_reached"], f"sum of {r}")
    return p


def over(server, id, seconds=60):
    until(lambda: result(server, id)["state"] in ("finished", "stopped", "cancelled"), seconds=seconds, why="the plan ends")
    return result(server, id)


def reject_all(server, count, lines=1000):
    """So many letters by leases: much faster than by a handler."""
    for n in range(0, count, lines):
        server.publish_lines("t", [{"body": n + m} for m in range(lines)])
        left = lines
        while left:
            items = server.request("POST", "/v1/routes/r/lease", {"max": lines, "wait_ms": 5000}).json()["items"]
            answer = server.request("POST", "/v1/leases", {"items": [{"token": i["token"], "verdict": "reject"} for i in items]})
            equal(answer.status, 200, f"{answer}")
            left -= len(items)


class Pinger(threading.Thread):
    """One connection that is kept, and one request on it after the other until the end; the longest time of one."""
    def __init__(self, server, method, path, ending):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.method, self.path, self.ending, self.longest, self.count, self.bad = method, path, ending, 0, 0, None
        self.start()

    def run(self):
        while not self.ending.is_set() and not self.bad:
            begin = time.monotonic()
            self.connection.request(self.method, self.path, body=b"x" if self.method == "POST" else None)
            answer = self.connection.getresponse()
            answer.read()
            self.longest, self.count = max(self.longest, time.monotonic() - begin), self.count + 1
            self.bad = answer.status if answer.status not in (200, 201) else None
            time.sleep(0.005)
        self.connection.close()


@test
def a_large_plan_is_made_while_others_are_answered_at_once(redrive):
    # pitfall: a long question of one client holds up everybody else's
    count = 10000 if os.environ.get("ASAN_OPTIONS") or os.environ.get("TSAN_OPTIONS") else 50000
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}, "breaker": "off", "budget": "off", "storm": "dead"},
                {"name": "s", "source": {"topic": "u"}, "handler": {"lease": {}}}) as server:
        reject_all(server, count)
        until(lambda: server.counts("r")["dead"] == count, seconds=60, why="letters")
        ending = threading.Event()
        asked = (("GET", "/healthz"), ("POST", "/v1/topics/u/messages"), ("GET", "/v1/routes"), ("POST", "/v1/routes/r/pause"))
        pingers = [Pinger(server, *asked[n % 4], ending) for n in range(16)]
        time.sleep(0.3)
        before = max(p.longest for p in pingers)
        begin = time.monotonic()
        made = [None] * 5  # more than there are workers

        def make(n):
            made[n] = plan(server, q="route:r")
        makers = [threading.Thread(target=make, args=(n,)) for n in range(len(made))]
        for m in makers:
            m.start()
        for m in makers:
            m.join()
        took = time.monotonic() - begin
        ending.set()
        for p in pingers:
            p.join()
        equal([m["selected"] for m in made], [count] * len(made), "selected")
        equal([p.bad for p in pingers], [None] * len(pingers), "every answer is good")
        longest = max(p.longest for p in pingers)
        print(f"# {len(made)} plans of {count} letters took {took:.2f} s; the longest of {sum(p.count for p in pingers)} requests meanwhile "
              f"{1000 * longest:.0f} ms, before {1000 * before:.0f} ms")
        # made on the threads of the connections, plans of 30,000 letters held a request up for 1.9 s
        slow = 4 if os.environ.get("ASAN_OPTIONS") or os.environ.get("TSAN_OPTIONS") else 1
        assert longest < slow * max(1.0, 3 * before), f"a request took {longest:.2f} s while plans were made, which took {took:.2f} s"


@test
def letters_are_listed_filtered_and_paged(redrive):
    with Handler(lambda d: 422 if d.key == "bad" else 500) as handler, Server(redrive, route("r", "t", handler.url, retry=ONE, breaker="off", storm="dead"),
                                                                              route("other", "u", handler.url + "x", retry=ONE, breaker="off", storm="dead")) as server:
        for i in range(6):
            server.publish("t", b"%d" % i, key="bad" if i % 2 else "worse")
        server.publish("u", b"u", key="bad")
        until(lambda: len(server.letters()) == 7, why="letters")
        equal(len(server.letters("&q=route:r")), 6, "route")
        equal(len(server.letters("&q=route:r%20reason:rejected")), 3, "reason")
        equal(len(server.letters("&q=key:bad")), 4, "key")
        equal(len(server.letters("&q=reason:exhausted%20key:worse")), 3, "both")
        equal(server.letters("&q=dead:2001-01-01..2001-01-02"), [], "days")
        equal(len(server.letters("&from=2001-01-01T00:00:00Z")), 7, "from")
        equal(server.letters("&to=2001-01-01T00:00:00Z"), [], "to")
        newest = [l["id"] for l in server.letters()]
        oldest = [l["id"] for l in server.letters("&sort=dead_at")]
        equal(oldest, newest[::-1], "sort")
        page = server.get("/v1/dead-letters?limit=3").json()
        server.publish("t", b"new", key="bad")
        until(lambda: len(server.letters()) == 8, why="a new one")
        rest = server.get(f"/v1/dead-letters?limit=100&cursor={page['next']}").json()
        equal([l["id"] for l in page["items"] + rest["items"]], newest, "stable while new letters arrive")
        letter = server.get(f"/v1/dead-letters/{newest[0]}")
        equal(letter.status, 200, "by id")
        body = server.get(f"/v1/dead-letters/{newest[0]}/body")
        assert "attachment" in body.headers["Content-Disposition"] and body.headers["X-Content-Type-Options"] == "nosniff"
        equal(server.get("/v1/dead-letters/aaaaaaaaaaaaaaaaaaaaaaaaaa").status, 404, "unknown")
        equal(server.get("/v1/dead-letters/../../etc/passwd").status, 404, "path")
        server.kill()
        server.start()
        equal(len(server.letters()), 8, "after kill -9")


@test
def a_plan_runs_only_as_approved(redrive):
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead")) as server:
        dead(server, 20)
        p = plan(server, q="route:r", name="x")
        equal((p["state"], p["selected"]), ("draft", 20), "draft")
        assert p["digest"] and p["preflight"], p
        dead_before = len(handler.deliveries)
        server.publish("t", b"more")  # dies later: not in the frozen set
        until(lambda: server.counts("r")["dead"] == 21, why="one more")
        act(server, p["id"], "start", 409)
        act(server, p["id"], "approve", 409, digest="sha256:0")
        act(server, p["id"], "approve", digest=p["digest"])
        handler.answer = None
        act(server, p["id"], "start")
        act(server, p["id"], "start", 409)
        final = over(server, p["id"])
        equal((final["state"], final["result"]["acked"], final["selected"]), ("finished", 20, 20), "result")
        equal(len(handler.deliveries) - dead_before, 21, "only the set")
        equal({d.headers["Redrive-Replay"] for d in handler.deliveries[dead_before + 1:]}, {p["id"]}, "replays are marked")
        equal({d.attempt for d in handler.deliveries[dead_before + 1:]}, {1}, "start at 1")
        counts = server.counts("r")
        equal((counts["dead"], counts["acked"]), (21, 0), "the route's counts do not change")
        states = {l["state"] for l in all_letters(server)}
        equal(states, {"replayed", "new"}, "letters stay, replayed")
        again = plan(server, q="route:r")
        equal(again["selected"], 1, "what is replayed is not selected again")
        equal(server.request("POST", "/v1/replays", {"ids": ["zzz"]}).status in (404, 422), True, "unknown letters")


@test
def each_verb_of_a_plan_is_audited_once(redrive):
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead")) as server:
        dead(server, 2)
        id, digest = (p := plan(server, q="route:r"))["id"], p["digest"]
        act(server, id, "approve", digest=digest)
        act(server, id, "rate", rate="100/s")
        act(server, id, "start")
        over(server, id)
        equal(server.stop(), 0, "exit code")
        with contextlib.closing(sqlite3.connect(server.directory / "data" / "control.db")) as db:
            lines = db.execute("SELECT action, who FROM audit WHERE target = ? ORDER BY seq", (id,)).fetchall()
        equal(lines, [("replay.plan", "local"), ("replay.approve", "local"), ("replay.rate", "local"), ("replay.start", "local"), ("replay.end", "")], "audit")


@test
def what_dies_again_is_a_new_letter(redrive):
    # pitfall: poison reaches the reader of the dead letters and is sent to them again for ever: a replay is an explicit act, once
    # pitfall: the same message fails, is replayed, fails again: headers grow without bound
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead")) as server:
        [id] = dead(server, 1)
        [first] = all_letters(server)
        for generation in (1, 2):
            p = plan(server, ids=[all_letters(server)[0]["id"]])
            act(server, p["id"], "approve", digest=p["digest"])
            act(server, p["id"], "start")
            equal(over(server, p["id"])["result"]["dead_again"], 1, "dead again")
            until(lambda: len(all_letters(server)) == generation + 1, why="a new letter")
            newest = all_letters(server)[0]
            equal((newest["generation"], newest["message_id"], newest["replay"], newest["state"]), (generation, id, p["id"], "new"), "new letter")
        old = server.get(f"/v1/dead-letters/{first['id']}").json()
        equal(old["state"], "replayed", "the old one")
        assert old["next"], old
        equal(server.counts("r")["dead"], 1, "counted once")


@test
def rate_pause_resume_and_cancel_act_at_once(redrive):
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead", concurrency=32)) as server:
        dead(server, 400)
        handler.answer = None
        before = len(handler.deliveries)
        p = plan(server, q="route:r", rate="50/s")
        act(server, p["id"], "approve", digest=p["digest"])
        act(server, p["id"], "start")
        until(lambda: len(handler.deliveries) - before >= 20, why="running")
        a = (time.monotonic(), len(handler.deliveries))
        time.sleep(2)
        rate = (len(handler.deliveries) - a[1]) / (time.monotonic() - a[0])
        assert 40 <= rate <= 60, rate
        act(server, p["id"], "pause")
        time.sleep(0.5)
        paused = len(handler.deliveries)
        time.sleep(1)
        assert len(handler.deliveries) - paused <= 1, "nothing is sent while paused"
        equal(result(server, p["id"])["state"], "paused", "state")
        act(server, p["id"], "resume")
        act(server, p["id"], "rate", rate="500/s")
        until(lambda: len(handler.deliveries) - paused > 30, seconds=5, why="faster")
        act(server, p["id"], "cancel")
        final = over(server, p["id"])
        equal(final["state"], "cancelled", "state")
        assert final["result"]["not_reached"] > 0, final
        time.sleep(0.5)
        end = len(handler.deliveries)
        time.sleep(0.5)
        equal(len(handler.deliveries), end, "nothing more")
        until(lambda: result(server, p["id"])["result"]["acked"] == len(handler.deliveries) - before, why="acked are those delivered")


@test
def a_killed_replay_goes_on_and_adds_up(redrive):
    count = 600
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead", order="key", concurrency=16)) as server:
        dead(server, count, key=lambda m: f"k{m % 50}")
        handler.answer = lambda d: 422 if int(d.body) % 7 == 0 else Reply(200, delay=0.002)
        before = len(handler.deliveries)
        p = plan(server, q="route:r", rate="300/s")
        act(server, p["id"], "approve", digest=p["digest"])
        act(server, p["id"], "start")
        for n in range(3):
            until(lambda: len(handler.deliveries) - before > (n + 1) * 100, why="progress")
            server.kill()
            server.start()
        final = over(server, p["id"])
        again = len([m for m in range(count) if m % 7 == 0])
        equal(final["state"], "finished", "it went on by itself")
        equal((final["result"]["acked"], final["result"]["dead_again"]), (count - again, again), f"result {final['result']}")
        outcomes = {}
        cursor = ""
        while True:
            page = server.get(f"/v1/replays/{p['id']}/letters?limit=500{cursor}").json()
            for item in page["items"]:
                outcomes[item["outcome"]] = outcomes.get(item["outcome"], 0) + 1
            if not page["next"]:
                break
            cursor = "&cursor=" + page["next"]
        equal(outcomes, {"acked": count - again, "dead_again": again}, "each letter's outcome")
        equal(len(all_letters(server)), count + again, "one new letter for each that died again")


@test
def replay_never_runs_beside_live_messages_of_its_key(redrive):
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url, storm="dead")) as server:
        dead(server, 5, key=lambda m: "k")
        running, bad = [], []

        def slow(d):
            running.append(d)
            if len([x for x in running if x.done_at is None]) > 1:
                bad.append(d)
            return Reply(200, delay=0.05)
        handler.answer = slow
        p = plan(server, q="route:r")
        act(server, p["id"], "approve", digest=p["digest"])
        act(server, p["id"], "start")
        for i in range(10):
            server.publish("t", b"live", key="k")
        over(server, p["id"])
        until(lambda: server.counts("r")["acked"] == 10, why="live ones acked")
        replays = [d for d in handler.deliveries if d.headers["Redrive-Replay"]]
        equal(len(replays), 5, "replayed")
        for a in replays:  # even with order: none no call of the key runs at the same time as a replayed one
            for b in handler.deliveries[5:]:
                if a is not b and a.done_at and b.done_at:
                    assert a.done_at <= b.at + 0.02 or b.done_at <= a.at + 0.02, (a, b)


if __name__ == "__main__":
    main()
