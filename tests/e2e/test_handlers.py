#!/usr/bin/env python3
"""Exec and lease handlers, signatures, and a target that several routes share."""
import base64
import json
import os
import time

from lib import Handler, Reply, Server, equal, main, quote, route, test, until

FAST = {"backoff": "fixed", "base": "100ms", "jitter": "none", "attempts": 3, "crashes": 2}


def exec_server(redrive, script, **keys):
    server = Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"exec": {"command": ["./handle"], "timeout": "1s", **keys.pop("exec", {})}},
                              "retry": FAST, "breaker": "off", "budget": "off", **keys}, start=False)
    file = server.directory / "handle"
    file.write_text("#!/bin/sh\n" + script)
    file.chmod(0o755)
    return server.start()


@test
def exec_gets_body_and_metadata(redrive):
    with exec_server(redrive, 'cat > "out.$REDRIVE_OFFSET.$REDRIVE_PARTITION"; env | grep ^REDRIVE_ | sort > env.txt; echo "$X" > x.txt\n', exec={"env": {"X": "y z"}}) as server:
        id = server.publish("t", b"\x00body", key="k\u00e4", id="evt", headers={"Redrive-Header-A": "1"})["id"]
        until(lambda: server.state(id) in ("acked", "done"), why="acked")
        files = list(server.directory.glob("out.*"))
        equal([f.read_bytes() for f in files], [b"\x00body"], "body")
        env = dict(line.split("=", 1) for line in (server.directory / "env.txt").read_text().splitlines())
        equal((env["REDRIVE_MESSAGE_ID"], env["REDRIVE_ROUTE"], env["REDRIVE_TOPIC"], env["REDRIVE_KEY"], env["REDRIVE_ATTEMPT"], env["REDRIVE_IDEMPOTENCY_KEY"]),
              (id, "r", "t", "k%C3%A4", "1", "evt"), "environment")
        equal(json.loads(env["REDRIVE_HEADERS"]), [["A", "1"]], "headers")
        equal((server.directory / "x.txt").read_text(), "y z\n", "configured variable")


@test
def exit_codes_follow_the_table(redrive):
    with exec_server(redrive, 'code=$(cat); echo "Broken: exit $code" >&2; exit $code\n') as server:
        wanted = {0: "acked", 64: "rejected", 65: "rejected", 74: "rejected", 78: "rejected", 1: "exhausted", 75: "exhausted", 79: "exhausted", 255: "exhausted"}
        ids = {code: server.publish("t", b"%d" % code)["id"] for code in wanted}
        until(lambda: len(server.letters()) == 8, why="letters")
        reasons = {l["message_id"]: l for l in server.letters()}
        for code, reason in wanted.items():
            if code == 0:
                assert server.state(ids[0]) in ("acked", "done")
                continue
            letter = reasons[ids[code]]
            equal((letter["reason"], letter["error"]["code"], letter["error"]["class"]), (reason, str(code), "Broken"), f"exit {code}")
            equal(letter["attempts"]["failures"], 1 if reason == "rejected" else 3, f"failures of exit {code}")


@test
def killed_and_hanging_commands_are_crashes_and_timeouts(redrive):
    # pitfall: one message kills every consumer, and the attempt is not counted
    with exec_server(redrive, 'read what; case $what in crash) kill -SEGV $$ ;; hang) trap "" TERM; sleep 71 & wait; sleep 71 ;; esac\n') as server:
        crash = server.publish("t", b"crash\n")["id"]
        until(lambda: server.state(crash) == "dead" and server.letters(), why="crashed")
        [letter] = server.letters()
        equal((letter["reason"], letter["attempts"]["crashes"], letter["attempts"]["failures"]), ("crashed", 2, 0), "crash")
        hang = server.publish("t", b"hang\n")["id"]
        group = until(lambda: [int(p) for p in os.popen("pgrep -x -f 'sleep 71'").read().split()], why="the command runs")
        until(lambda: server.route("r")["attempts"]["timeouts"] >= 1, seconds=20, why="a timeout")
        until(lambda: not any(os.path.exists(f"/proc/{p}") for p in group), seconds=15, why="its whole group is gone, though it ignores TERM")
        server.request("POST", f"/v1/messages/{hang}/revoke", {"route": "r"})


@test
def leases_are_taken_answered_extended_and_expire(redrive):
    # pitfall: a handler slower than its lease runs twice although it succeeded
    handler = {"lease": {"lease_for": "1s"}}
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": handler, "retry": FAST, "breaker": "off", "budget": "off"}) as server:
        def take(**body):
            answer = server.request("POST", "/v1/routes/r/lease", body)
            equal(answer.status, 200, "lease")
            return answer.json()["items"]

        begin = time.monotonic()
        equal(take(wait_ms=300), [], "nothing there")
        assert 0.28 <= time.monotonic() - begin < 2
        ids = [server.publish("t", b"m%d" % i, key="k")["id"] for i in range(6)]
        items = []
        until(lambda: items.extend(take(max=10, wait_ms=1000)) or len(items) == 6, why="six leases")
        by = {i["message"]["id"]: i for i in items}
        first = by[ids[0]]
        equal((base64.b64decode(first["message"]["body_base64"]), first["message"]["key"], first["message"]["attempt"]), (b"m0", "k", 1), "message")
        verdict = lambda id, verb, **body: server.request("POST", f"/v1/leases/{by[id]['token']}/{verb}", body)
        equal(verdict(ids[0], "ack").json()["state"], "acked", "ack")
        equal(verdict(ids[0], "ack").status in (404, 409), True, "twice")
        equal(verdict(ids[1], "reject", **{"class": "Bad", "text": "words"}).json()["state"], "dead", "reject")
        equal(verdict(ids[2], "retry", delay_ms=50).json()["state"], "waiting", "retry")
        equal(verdict(ids[3], "drop").json()["state"], "dropped", "drop")
        equal(verdict(ids[4], "extend", lease_for_ms=20000).status, 200, "extend")
        equal(server.request("POST", "/v1/leases/nonsense/ack").status, 404, "unknown token")
        equal(verdict(ids[4], "eat").status, 422, "unknown verdict")
        many = server.request("POST", "/v1/leases", {"items": [{"token": by[ids[4]]["token"], "verdict": "ack"}, {"token": "x", "verdict": "ack"}]}).json()
        equal([i["status"] for i in many["items"]], [200, 404], "many")
        # the sixth expires: a timeout, followed by the back-off; a late verdict finds it waiting
        until(lambda: server.route("r")["attempts"]["timeouts"] == 1, why="expired")
        again = []
        until(lambda: again.extend(take(max=10, wait_ms=500)) or len(again) == 2, why="the retried and the expired one again")
        equal(sorted(i["message"]["attempt"] for i in again), [2, 2], "attempts")
        equal(verdict(ids[5], "ack").status, 409, "late: another has it")
        for i in again:
            equal(server.request("POST", f"/v1/leases/{i['token']}/ack").status, 200, "ack")
        until(lambda: server.counts("r")["acked"] == 4, why="acked")
        equal(server.counts("r")["dead"], 1, "dead")
        equal(server.request("POST", "/v1/routes/r/lease", {"max": 0}).status, 422, "max 0")
        equal(server.request("POST", "/v1/routes/none/lease", {}).status, 404, "no such route")


@test
def waiting_pull_gets_a_message_at_once(redrive):
    import threading
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}) as server:
        got = []
        threads = [threading.Thread(target=lambda: got.append((server.request("POST", "/v1/routes/r/lease", {"wait_ms": 10000}).json()["items"], time.monotonic())))
                   for _ in range(5)]
        for t in threads:
            t.start()
        time.sleep(0.3)
        begin = time.monotonic()
        for i in range(5):
            server.publish("t", b"%d" % i)
        for t in threads:
            t.join()
        equal(sorted(len(items) for items, _ in got), [1] * 5, "one each")
        assert max(at for _, at in got) - begin < 3, "long before the deadline"


@test
def a_drain_does_not_wait_for_what_nobody_has_leased(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}) as server:
        id = server.publish("t", b"x")["id"]
        until(lambda: server.request("GET", f"/v1/messages/{id}").json()["routes"][0]["waiting_for"] == "somebody to lease it", why="offered")
        begin = time.monotonic()
        equal(server.stop(), 0, "exit code")
        assert time.monotonic() - begin < 5, "not the whole drain of 30 s"
        server.start()
        items = server.request("POST", "/v1/routes/r/lease", {"wait_ms": 5000}).json()["items"]
        equal([i["message"]["attempt"] for i in items], [1], "offered again, same attempt")


@test
def signature_of_standard_webhooks(redrive):
    import hashlib
    import hmac
    secret = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
    with Handler() as handler:
        server = Server(redrive, route("r", "t", handler.url, http={"sign": {"secret_file": "secret.txt"}, "cloudevents": True}), start=False)
        (server.directory / "secret.txt").write_text("whsec_" + secret + "\n")
        with server.start():
            id = server.publish("t", b"signed", headers={"Content-Type": "text/plain"})["id"]
            until(lambda: handler.deliveries, why="delivered")
            h = handler.deliveries[0].headers
            signed = f"{h['webhook-id']}.{h['webhook-timestamp']}.signed".encode()
            want = base64.b64encode(hmac.new(base64.b64decode(secret), signed, hashlib.sha256).digest()).decode()
            equal(h["webhook-signature"], "v1," + want, "signature")
            equal((h["ce-specversion"], h["ce-id"]), ("1.0", id), "CloudEvents")


@test
def routes_of_one_origin_share_their_target(redrive):
    with Handler(lambda d: 503) as handler:
        with Server(redrive, route("a", "t", handler.url + "a"), route("b", "u", handler.url + "b"), 
                    {"name": "c", "source": {"topic": "u"}, "handler": {"http": {"url": handler.url + "c"}, "target": "alone"}}) as server:
            for i in range(40):
                server.publish("t", b"%d" % i)
            until(lambda: server.route("a")["breaker"]["state"] == "down", why="down")
            equal(server.route("b")["breaker"]["state"], "down", "shared")
            equal(server.route("c")["breaker"]["state"], "up", "apart by name")


if __name__ == "__main__":
    main()
