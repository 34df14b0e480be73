#!/usr/bin/env python3
"""Leases: what is offered is not in flight, late verdicts, what the lane decided; revoking over several routes."""
import time
from lib import Handler, Server, equal, main, route, test, until

SLOW = {"retry": {"base": "30s", "min": "10ms", "jitter": "none"}, "breaker": "off", "budget": "off"}


def lease_route(name="r", lease_for="300ms", **keys):
    return {"name": name, "source": {"topic": "t", "partitions": 1}, "handler": {"lease": {"lease_for": lease_for}}, **SLOW, **keys}


def take(server, count, name="r", **body):
    """So many leases, by message id."""
    items = []
    until(lambda: items.extend(server.request("POST", f"/v1/routes/{name}/lease", {"max": count - len(items), "wait_ms": 500, **body}).json()["items"])
          or len(items) == count, why=f"{count} leases")
    return {i["message"]["id"]: i["token"] for i in items}


def verdict(server, token, verb, **body):
    return server.request("POST", f"/v1/leases/{token}/{verb}", body)


def place(server, id, name="r"):
    return next(r for r in server.request("GET", f"/v1/messages/{id}").json()["routes"] if r["route"] == name)


@test
def late_verdicts_count_while_the_message_waits(redrive):
    # pitfall: a handler slower than its lease runs twice although it succeeded
    with Server(redrive, lease_route()) as server:
        ids = [server.publish("t", b"%d" % i)["id"] for i in range(5)]
        token = take(server, 5)
        until(lambda: server.route("r")["attempts"]["timeouts"] == 5, why="all expired")
        equal({place(server, id)["state"] for id in ids}, {"waiting"}, "back-off")
        late = [verdict(server, token[ids[0]], "ack"), verdict(server, token[ids[1]], "drop"),
                verdict(server, token[ids[2]], "reject", **{"class": "Bad", "text": "no such order"}),
                verdict(server, token[ids[3]], "retry", delay_ms=60000), verdict(server, token[ids[4]], "defer", delay_ms=90000)]
        equal([(a.status, a.json().get("state")) for a in late],
              [(200, "acked"), (200, "dropped"), (200, "dead"), (200, "waiting"), (200, "waiting")], "late, and honoured")
        counts, attempts = server.counts("r"), server.route("r")["attempts"]
        equal((counts["acked"], counts["dropped"], counts["dead"], counts["waiting"]), (1, 1, 1, 2), "counts")
        equal((attempts["first"], attempts["failed"], attempts["timeouts"]), (5, 5, 5), "an expiry stays a timeout")
        [letter] = until(lambda: server.request("GET", "/v1/dead-letters").json()["items"], why="letter")
        letter = server.request("GET", f"/v1/dead-letters/{letter['id']}").json()
        equal((letter["reason"], letter["error"]["class"], letter["error"]["text"]), ("rejected", "Bad", "no such order"), "the late error")
        for id, word in ((ids[0], "acked"), (ids[1], "dropped"), (ids[2], "died")):
            again = verdict(server, token[id], "ack")
            equal(again.status, 409, "it has ended")
            assert word in again.json()["detail"] or "dead" in again.json()["detail"], again
        # over a restart: what was said is durable, and the tokens of before are unknown
        server.kill()
        server.start()
        equal([place(server, id)["state"] for id in ids], ["acked", "dropped", "dead", "waiting", "waiting"], "after kill -9")
        equal(verdict(server, token[ids[3]], "ack").status, 404, "a token of an earlier run")


@test
def a_late_verdict_loses_to_whoever_has_the_message_and_to_death(redrive):
    with Server(redrive, lease_route(retry={"attempts": 2, "base": "50ms", "min": "10ms", "jitter": "none"})) as server:
        id = server.publish("t", b"x")["id"]
        first = take(server, 1)[id]
        second = take(server, 1, lease_for_ms=1000)[id]
        answer = verdict(server, first, "ack")
        equal(answer.status, 409, "somebody else has it")
        assert "somebody else" in answer.json()["detail"], answer
        until(lambda: place(server, id)["state"] == "dead", why="the last attempt expired, too")
        answer = verdict(server, second, "ack")
        equal(answer.status, 409, "dead")
        assert "dead" in answer.json()["detail"] or "died" in answer.json()["detail"], answer


@test
def a_late_verdict_wins_over_a_mere_offer(redrive):
    with Server(redrive, lease_route(retry={"base": "20ms", "min": "10ms", "jitter": "none"})) as server:
        id = server.publish("t", b"x")["id"]
        token = take(server, 1)[id]
        until(lambda: server.route("r")["attempts"]["timeouts"] == 1, why="expired")
        until(lambda: place(server, id)["waiting_for"] == "somebody to lease it", why="offered again")
        equal((place(server, id)["state"], place(server, id)["attempt"]), ("ready", 2), "offered")
        equal(verdict(server, token, "ack").json()["state"], "acked", "nobody has it")
        equal(server.request("POST", "/v1/routes/r/lease", {"wait_ms": 200}).json()["items"], [], "and nobody gets it")
        equal(server.counts("r")["acked"], 1, "counts")


def replayed(server, letter, late=True):
    """The lease of a letter's replay, which then has expired, if it is to be late: (plan, token)."""
    plan = server.request("POST", "/v1/replays", {"ids": [letter]}).json()
    equal(server.request("POST", f"/v1/replays/{plan['id']}/approve", {"digest": plan["digest"]}).status, 200, "approved")
    equal(server.request("POST", f"/v1/replays/{plan['id']}/start").status, 200, "started")
    [item] = until(lambda: server.request("POST", "/v1/routes/r/lease", {"wait_ms": 500}).json()["items"], why="the replay's lease")
    equal(item["message"]["replay"], plan["id"], "it is the replay's")
    until(lambda: not late or place(server, item["message"]["id"])["attempt"] == 2, why="it has expired")
    return plan["id"], item["token"]


@test
def verdicts_on_a_replay_end_the_replay_also_late(redrive):
    with Server(redrive, lease_route()) as server:
        ids = [server.publish("t", b"%d" % i)["id"] for i in range(2)]
        for token in take(server, 2).values():
            equal(verdict(server, token, "reject").json()["state"], "dead", "dead")
        letters = {l["message_id"]: l["id"] for l in until(lambda: len(server.letters()) == 2 and server.letters(), why="letters")}

        plan, token = replayed(server, letters[ids[0]])
        answer = verdict(server, token, "ack")
        equal((answer.status, answer.json().get("state")), (200, "acked"), "a late ack")
        result = until(lambda: (p := server.request("GET", f"/v1/replays/{plan}").json())["state"] == "finished" and p["result"], why="the plan ends")
        equal((result["acked"], result["dead_again"], result["unknown"]), (1, 0, 0), "acked")
        equal(server.request("GET", f"/v1/dead-letters/{letters[ids[0]]}").json()["state"], "replayed", "its letter")
        equal(verdict(server, token, "ack").status, 409, "it has ended")

        for generation, late in ((1, False), (2, True)):
            plan, token = replayed(server, letters[ids[1]], late)
            answer = verdict(server, token, "reject", text="still wrong")
            equal((answer.status, answer.json().get("state")), (200, "dead"), f"a reject, late: {late}")
            result = until(lambda: (p := server.request("GET", f"/v1/replays/{plan}").json())["state"] == "finished" and p["result"], why="the plan ends")
            equal((result["acked"], result["dead_again"]), (0, 1), "dead again")
            [again] = [l for l in server.letters() if l["generation"] == generation]
            again = server.request("GET", f"/v1/dead-letters/{again['id']}").json()
            equal((again["message_id"], again["replay"], again["error"]["text"]), (ids[1], plan, "still wrong"), "a new letter")
            letters[ids[1]] = again["id"]
        equal((server.counts("r")["dead"], server.counts("r")["acked"]), (2, 0), "a replay never changes the route's counts")


@test
def verdicts_answer_what_the_lane_decided(redrive):
    with Server(redrive, lease_route(lease_for="30s", retry={"attempts": 1})) as server:
        id = server.publish("t", b"x")["id"]
        equal(verdict(server, take(server, 1)[id], "retry").json()["state"], "dead", "that was its last attempt")
    with Server(redrive, lease_route(lease_for="30s", retry={"attempts": 1, "on_exhausted": "drop"})) as server:
        ids = [server.publish("t", b"x")["id"] for _ in range(3)]
        token = take(server, 3)
        equal(verdict(server, token[ids[0]], "retry").json()["state"], "dropped", "that was its last attempt, too")
        answer = server.request("POST", "/v1/leases", {"items": [
            {"token": token[ids[1]], "verdict": "retry"}, {"token": token[ids[2]], "verdict": "defer", "delay_ms": 60000},
            {"token": token[ids[2]], "verdict": "ack"}, {"token": "x", "verdict": "ack"}, {"token": token[ids[2]], "verdict": "eat"}, {}]})
        items = answer.json()["items"]
        equal([i["status"] for i in items], [200, 200, 409, 404, 422, 422], "statuses")
        equal([i.get("state") for i in items[:2]], ["dropped", "waiting"], "states")
        equal(server.state(ids[2]), "waiting", "as it was told")


@test
def what_nobody_has_leased_is_ready_and_revoked_at_once(redrive):
    with Server(redrive, lease_route(lease_for="30s")) as server:
        ids = [server.publish("t", b"%d" % i)["id"] for i in range(3)]
        until(lambda: place(server, ids[2])["waiting_for"] == "somebody to lease it", why="offered")
        equal({place(server, id)["state"] for id in ids}, {"ready"}, "offered is not in flight")
        r = server.route("r")
        equal((r["counts"]["ready"], r["counts"]["in_flight"], r["attempts"]["first"], r["attempts"]["in_flight"]), (3, 0, 0, 0), "counts")
        metrics = server.request("GET", "/metrics").body.decode()
        assert 'redrive_messages{route="r",topic="t",state="ready"} 3' in metrics and 'state="in_flight"} 0' in metrics, "metrics"
        begin = time.monotonic()
        answer = server.request("POST", f"/v1/messages/{ids[0]}/revoke", {"reason": "ordered twice"})
        equal((answer.status, answer.json()["routes"]), (200, [{"route": "r", "revoked": True, "state": "revoked"}]), "revoke")
        assert time.monotonic() - begin < 5, "at once"
        token = take(server, 2)
        equal(sorted(token), sorted(ids[1:]), "the revoked one is gone")
        r = server.route("r")
        equal((r["counts"]["ready"], r["counts"]["in_flight"], r["attempts"]["first"], r["attempts"]["in_flight"]), (0, 2, 2, 2), "leased")
        equal(place(server, ids[1])["waiting_for"], "the verdict of its handler", "leased")
        letter = until(lambda: server.request("GET", "/v1/dead-letters").json()["items"], why="letter")[0]
        letter = server.request("GET", f"/v1/dead-letters/{letter['id']}").json()
        equal((letter["reason"], letter["error"]["class"], letter["error"]["text"]), ("revoked", "revoked", "ordered twice"), "why")
        equal(letter["attempts"]["shutdowns"], 0, "an offer is no attempt")


@test
def revoke_acts_on_every_route_where_it_still_can(redrive):
    with Handler() as handler:
        handler.answer = lambda d: 500 if d.path == "/slow" else 200
        slow = route("slow", "t", handler.url + "slow", source={"partitions": 1}, **SLOW)
        fast = route("fast", "t", handler.url + "fast", source={"partitions": 1}, **SLOW)
        with Server(redrive, slow, fast) as server:
            id = server.publish("t", b"x")["id"]
            until(lambda: (place(server, id, "slow")["state"], place(server, id, "fast")["state"]) == ("waiting", "acked"), why="one waits, one is done")
            answer = server.request("POST", f"/v1/messages/{id}/revoke", {"reason": "wrong price"})
            equal(answer.status, 200, "revoked where it can be")
            equal(sorted((r["route"], r["revoked"], r["state"]) for r in answer.json()["routes"]),
                  [("fast", False, "acked"), ("slow", True, "revoked")], "per route")
            server.kill()
            server.start()
            equal(place(server, id, "slow")["state"], "revoked", "durable when it was answered")
            letter = until(lambda: server.request("GET", "/v1/dead-letters").json()["items"], why="letter")[0]
            letter = server.request("GET", f"/v1/dead-letters/{letter['id']}").json()
            equal((letter["error"]["text"], [a["code"] for a in letter["history"]]), ("wrong price", ["500"]), "why, and what was before")
            answer = server.request("POST", f"/v1/messages/{id}/revoke", {})
            equal((answer.status, answer.headers["Content-Type"]), (409, "application/problem+json"), "problem")
            equal(sorted((e["pointer"], e["detail"]) for e in answer.json()["errors"]), [("fast", "acked"), ("slow", "revoked")], "nowhere any more")


@test
def where_says_what_it_waits_for(redrive):
    with Handler() as handler:
        handler.answer = lambda d: 500
        with Server(redrive, route("r", "t", handler.url, order="key", source={"partitions": 1}, **SLOW)) as server:
            head, next = server.publish("t", b"a", key="k")["id"], server.publish("t", b"b", key="k")["id"]
            delayed = server.publish("t", b"c", headers={"Redrive-Delay": "1h"})["id"]
            until(lambda: place(server, head)["state"] == "waiting", why="failed")
            equal(place(server, head)["waiting_for"], "the time of its next attempt", "back-off")
            equal(place(server, next)["waiting_for"], "the earlier message of its key that it is behind", "held")
            equal(place(server, delayed)["waiting_for"], "the end of its delay", "delayed")
            due = {place(server, id)["due_at"] for id in (head, delayed) for _ in range(40)}
            equal(len(due), 2, "a due time is the same whenever it is asked for")
            server.request("POST", "/v1/routes/r/pause")
            ready = server.publish("t", b"d")["id"]
            equal((place(server, ready)["state"], place(server, ready)["waiting_for"]), ("ready", "its route to be resumed"), "paused")


@test
def the_ratio_of_successful_retries_is_of_retries(redrive):
    with Handler() as handler:
        with Server(redrive, route("r", "t", handler.url, retry={"base": "20ms", "min": "10ms", "jitter": "none"}, breaker="off", budget="off")) as server:
            handler.script(500, 200, body=b"once")
            handler.script(500, 500, 422, body=b"never")
            for body in (b"once", b"never", b"fine", b"fine"):
                server.publish("t", body)
            until(lambda: (server.counts("r")["acked"], server.counts("r")["dead"]) == (3, 1), why="all ended")
            # retries: acked, failed, rejected
            line = next(l for l in server.get("/metrics").body.decode().splitlines() if l.startswith("redrive_retry_success_ratio{"))
            equal(float(line.split()[1]), 0.333333, "one of three retries")


if __name__ == "__main__":
    main()
