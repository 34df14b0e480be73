#!/usr/bin/env python3
"""kill -9 at random moments under load: what was acknowledged is delivered, attempts and due times survive, order holds, the account adds up.

KILLS sets how often (default 15; the full run has 200)."""
import os
import random
import threading
import time

from lib import Handler, Reply, Server, equal, main, request, route, test, until

KILLS = int(os.environ.get("KILLS", "15"))


class Publisher:
    """Publishes one message a time on several threads through restarts; remembers what was answered 201."""

    def __init__(self, server, threads=4):
        self.server, self.stopping, self.lock = server, threading.Event(), threading.Lock()
        self.may_go = threading.Event()  # cleared: nothing new for now
        self.may_go.set()
        self.acknowledged, self.next = {}, 0
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        n = 0
        while not self.stopping.is_set():
            if not self.may_go.wait(0.1):
                continue
            n += 1
            body = f"{number}-{n}"
            try:
                answer = request(self.server.port, "POST", "/v1/topics/t/messages", body.encode(), {"Redrive-Key": f"k{number}-{n % 7}"}, timeout=5)
                if answer.status == 201:
                    with self.lock:
                        self.acknowledged[answer.json()["id"]] = body
            except OSError:
                time.sleep(0.005)
            except Exception:
                time.sleep(0.005)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


@test
def nothing_is_lost_over_kill_9(redrive):
    # pitfall: delayed messages lost or stuck after a node died; pitfall: the counter is back at 0 after a restart
    seed = int(os.environ.get("SEED", str(int(time.time()))))
    dice = random.Random(seed)
    print(f"# seed {seed}, {KILLS} kills", flush=True)

    def answer(d):
        # a twelfth fail once, by their own attempt number: it must have survived
        if hash_of(d.body) % 12 == 0 and d.attempt == 1:
            return 500
        return Reply(200, delay=0.002)

    with Handler(answer) as handler, Server(redrive, route("r", "t", handler.url, order="key", breaker="off", budget="off",
                                                           retry={"backoff": "fixed", "base": "300ms", "attempts": 3}), limits={"disk_free": "64MiB"}) as server:
        publisher = Publisher(server)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.05, 0.6))
            server.kill()
            server.start()
        publisher.stop()
        # each key is handled one message after the other, and a failing one holds it for 300 ms
        until(lambda: live(server) == 0, seconds=60 + len(publisher.acknowledged) / 200, why="all settled")
        counts = server.counts("r")
        equal(counts["dead"], 0, "dead")
        delivered = {}
        for d in handler.deliveries:
            delivered.setdefault(d.id, []).append(d)
        missing = [id for id in publisher.acknowledged if id not in delivered]
        equal(missing, [], "acknowledged but never delivered")
        for id, body in publisher.acknowledged.items():
            equal({d.body.decode() for d in delivered[id]}, {body}, "body")
            if hash_of(body.encode()) % 12 == 0:
                assert any(d.attempt == 2 for d in delivered[id]), ("attempt 2 never came", id)
            assert max(d.attempt for d in delivered[id]) <= 2, delivered[id]
        check_order(handler)
        check_never_early(handler)
        equal(counts["acked"], counts["received"], "acked")
        print(f"# {len(publisher.acknowledged)} acknowledged, {counts['received']} received, {len(handler.deliveries)} deliveries", flush=True)


def live(server):
    counts = server.counts("r")
    return counts["ready"] + counts["waiting"] + counts["held"] + counts["in_flight"]


def hash_of(body):
    value = 7
    for byte in body:
        value = (value * 31 + byte) % 1000003
    return value


def check_order(handler):
    """Per key the deliveries go up in offset, or are rewound after a kill: never is one skipped that was not delivered before."""
    keys = {}
    for d in handler.deliveries:
        keys.setdefault((d.headers["Redrive-Partition"], d.key), []).append(int(d.headers["Redrive-Offset"]))
    for key, offsets in keys.items():
        seen = []
        for offset in offsets:
            if offset in seen:
                continue
            assert not seen or offset > max(seen), (key, offsets)
            seen.append(offset)


def check_never_early(handler):
    failed = {}
    for d in handler.deliveries:
        if d.attempt == 2 and d.id in failed:
            assert d.at - failed[d.id] >= 0.29, (d, d.at - failed[d.id])
        if hash_of(d.body) % 12 == 0 and d.attempt == 1:
            failed[d.id] = d.at


@test
def due_times_survive_a_restart(redrive):
    # pitfall: replaying a log at start uses the start as now, so delays grow by the down time
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        start = time.monotonic()
        ids = [server.request("POST", "/v1/topics/t/messages", b"x", {"Redrive-Delay": f"{n}s"}).json()["id"] for n in (8, 10)]
        due = [server.message(id)["routes"][0]["due_at"] for id in ids]
        server.kill()
        time.sleep(1)
        server.start()
        equal([server.message(id)["routes"][0]["due_at"][:21] for id in ids], [d[:21] for d in due], "due times")
        until(lambda: len(handler.deliveries) == 2, why="delivered")
        waits = [d.at - start for d in handler.deliveries]
        assert 7.99 <= waits[0] < 10 and 9.99 <= waits[1] < 12, waits


@test
def sigterm_drains_and_counts_no_attempt(redrive):
    # pitfall: a close commits what was fetched; pitfall: a deploy counts like a handler failure
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, concurrency=4), arguments=["--drain", "1s"]) as server:
        handler.script(Reply(200, delay=0.3), body=b"ends")
        handler.script(Reply(200, hang=True), body=b"hangs")
        ids = {b: server.publish("t", b)["id"] for b in (b"ends", b"hangs")}
        until(lambda: len(handler.deliveries) == 2, why="both in flight")
        begin = time.monotonic()
        equal(server.stop(), 0, "exit code")
        assert 0.9 < time.monotonic() - begin < 5
        handler.release()
        server.start()
        until(lambda: server.state(ids[b"hangs"]) in ("acked", "done"), why="delivered again")
        equal([d.attempt for d in handler.of(ids[b"hangs"])], [1, 1], "the same attempt number")
        equal(len(handler.of(ids[b"ends"])), 1, "what ended in time is not repeated")
        equal(server.route("r")["attempts"]["shutdowns"], 1, "shutdowns")


@test
def a_paused_route_stays_paused(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        equal(server.request("POST", "/v1/routes/r/pause").json()["state"], "paused", "pause")
        server.publish("t", b"x")
        server.kill()
        server.start()
        equal(server.route("r")["state"], "paused", "after kill -9")
        time.sleep(0.3)
        equal(handler.deliveries, [], "nothing is delivered")
        server.request("POST", "/v1/routes/r/resume")
        until(lambda: handler.deliveries, why="delivered after resume")


@test
def the_account_holds_at_every_look(redrive):
    # pitfall: a failed attempt ends nowhere: neither retried nor dead
    seconds = float(os.environ.get("ACCOUNT_SECONDS", "10"))

    def answer(d):
        n = hash_of(d.body) % 20
        return Reply({0: 500, 1: 422, 2: 429, 3: 503, 4: 204}.get(n, 200) if d.attempt < 3 or n == 1 else 200,
                     {"Redrive-Verdict": "defer", "Redrive-Delay": "10ms"} if n == 5 and d.attempt == 1 and hash_of(d.body + d.id.encode()) % 2 else
                     {"Redrive-Verdict": "drop"} if n == 6 else {}, delay=0.001)

    def settle_defer(d):
        return answer(d)

    with Handler(settle_defer) as handler, Server(redrive, route("r", "t", handler.url, order="key", concurrency=16,
                                                                 retry={"base": "50ms", "attempts": 4, "cap": "1s", "deferrals": 3}, storm="dead")) as server:
        publisher = Publisher(server, 2)
        end = time.monotonic() + seconds
        looks = 0
        while time.monotonic() < end:
            found = server.route("r")
            check_account(found)
            # few keys, in order, with retries between: without a bound what waits would grow as long as this runs
            (publisher.may_go.clear if found["counts"]["ready"] + found["counts"]["held"] > 500 else publisher.may_go.set)()
            check_metrics(server.get("/metrics").body.decode())
            looks += 1
        publisher.stop()
        until(lambda: live(server) == 0, seconds=60, why="all settled")
        check_account(server.route("r"))
        print(f"# {looks} looks, {server.counts('r')['received']} messages", flush=True)


def check_account(found):
    c, a = found["counts"], found["attempts"]
    equal(c["received"], c["acked"] + c["ready"] + c["waiting"] + c["held"] + c["in_flight"] + c["dead"] + c["dropped"] + c["revoked"], f"account {c}")
    ended = a["succeeded"] + a["failed"] + a["rejected"] + a["dropped"] + a["crashes"] + a["shutdowns"] + a["deferrals"] + a["outage"]
    equal(a["first"] + a["retries"], ended + c["in_flight"], f"attempts {a} in flight {c['in_flight']}")


def check_metrics(text):
    value = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, number = line.rsplit(" ", 1)
            value[name] = float(number)
    states = sum(v for k, v in value.items() if k.startswith("redrive_messages{"))
    [received] = [v for k, v in value.items() if k.startswith("redrive_messages_received_total{")]
    equal(states, received, "messages by state against received, in one scrape")


if __name__ == "__main__":
    main()
