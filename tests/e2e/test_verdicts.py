#!/usr/bin/env python3
"""From a handler's answer to what happens: the whole table of statuses, headers, problem bodies, rules, limits."""
import time

from lib import Handler, Reply, Server, equal, main, route, test, until

FAST = {"backoff": "fixed", "base": "100ms", "jitter": "none", "attempts": 3}
OFF = {"breaker": "off", "budget": "off", "storm": "dead"}


def settled(row):
    return row["state"] in ("acked", "done", "dropped") or (row["state"] == "dead" and row["dead_letter"])


def run(redrive, replies, deliveries, **keys):
    """One message per (body, replies); waits until each was delivered as often as wanted and is settled."""
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, **{"retry": FAST, **OFF, **keys})) as server:
        ids = {}
        for body, answers in replies.items():
            handler.script(*answers, body=body)
        for body in replies:
            ids[body] = server.publish("t", body)["id"]
        until(lambda: all(settled(server.message(id)["routes"][0]) for id in ids.values()), why="all settled")
        return ({body: server.state(id) for body, id in ids.items()}, {body: len(handler.of(id)) for body, id in ids.items()},
                {letter["message_id"]: letter for letter in server.letters()}, ids, handler)


@test
def statuses_follow_the_table(redrive):
    # pitfall: a delivery spec that is not applied to a status class
    ack, reject = [200, 201, 202, 204], [400, 404, 406, 409, 410, 415, 422, 451, 301, 302, 303, 304, 307]
    retry = [408, 425, 429, 500, 501, 502, 503, 504, 599, 401, 403, 405, 407, 421]
    replies = {b"%d" % s: [Reply(s)] for s in ack + reject + retry}
    states, counts, letters, ids, _ = run(redrive, replies, None)
    for s in ack:
        assert states[b"%d" % s] in ("acked", "done"), (s, states)
        equal(counts[b"%d" % s], 1, f"deliveries of {s}")
    for s in reject:
        equal((states[b"%d" % s], counts[b"%d" % s]), ("dead", 1), f"status {s}")
        letter = letters[ids[b"%d" % s]]
        equal((letter["reason"], letter["error"]["code"]), ("rejected", str(s)), f"letter of {s}")
    for s in retry:
        assert states[b"%d" % s] in ("acked", "done"), (s, states)
        equal(counts[b"%d" % s], 2, f"deliveries of {s}")


@test
def headers_of_the_answer_override_the_status(redrive):
    replies = {
        b"ack": [Reply(500, {"Redrive-Verdict": "ack"})], b"reject": [Reply(200, {"Redrive-Verdict": "reject"})],
        b"drop": [Reply(500, {"Redrive-Verdict": "drop"})], b"retry": [Reply(200, {"Redrive-Verdict": "retry"})],
        b"defer": [Reply(200, {"Redrive-Verdict": "defer", "Redrive-Delay": "50ms"})], b"unknown": [Reply(200, {"Redrive-Verdict": "eat"})],
    }
    states, counts, letters, ids, handler = run(redrive, replies, None)
    equal(states[b"drop"], "dropped", "drop")
    equal(states[b"reject"], "dead", "reject")
    equal({b: n for b, n in counts.items()}, {b"ack": 1, b"reject": 1, b"drop": 1, b"retry": 2, b"defer": 2, b"unknown": 1}, "deliveries")
    # pitfall: "later" counted as a failure
    equal([d.attempt for d in handler.of(ids[b"defer"])], [1, 1], "a deferral does not advance the attempt")


@test
def retry_after_and_named_delays_are_kept(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, retry={**FAST, "base": "20s"}, **OFF)) as server:
        start = time.monotonic()
        handler.script(Reply(500, {"Retry-After": "1"}), body=b"seconds")
        handler.script(Reply(500, {"Redrive-Delay": "1200ms"}), body=b"ours")
        handler.script(Reply(500, {"Redrive-Delay": "0s"}), body=b"zero")
        ids = {b: server.publish("t", b)["id"] for b in (b"seconds", b"ours", b"zero")}
        until(lambda: all(len(handler.of(id)) == 2 for id in ids.values()), why="tried again")
        waits = {b: handler.of(id)[1].at - handler.of(id)[0].at for b, id in ids.items()}
        assert 0.99 <= waits[b"seconds"] < 1.6, waits
        assert 1.19 <= waits[b"ours"] < 1.8, waits
        assert waits[b"zero"] < 0.5, waits
        # not understood, negative or past: as if absent, so the back-off counts
        for text in ("soon", "-5", "Mon, 01 Jan 2001 00:00:00 GMT"):
            handler.script(Reply(500, {"Retry-After": text}), body=text.encode())
            id = server.publish("t", text.encode())["id"]
            until(lambda: server.state(id) == "waiting", why=text)
        assert time.monotonic() - start < 15


@test
def retry_after_of_a_429_holds_the_whole_target(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, retry=FAST, **OFF)) as server:
        handler.script(Reply(429, {"Retry-After": "2"}), body=b"first")
        server.publish("t", b"first")
        until(lambda: handler.deliveries, why="the first call")
        until(lambda: server.route("r")["counts"]["waiting"] == 1, why="booked")
        server.publish("t", b"second")
        until(lambda: len(handler.deliveries) == 3, why="both")
        assert handler.deliveries[1].at - handler.deliveries[0].at >= 1.9, "nothing was sent meanwhile"


@test
def what_went_wrong_is_kept_whole(redrive):
    problem = (b'{"type": "https://x/timeouts", "title": "TimeoutException", "detail": "no answer from db \xc3\xa4", "code": "T-17", '
               b'"root_class": "SocketTimeout", "stack": "at a.b(C.java:1)\\nat d.e(F.java:2)"}')
    replies = {
        b"problem": [Reply(422, {"Content-Type": "application/problem+json"}, problem)],
        b"headers": [Reply(422, {"Redrive-Error-Class": "Bad", "Redrive-Error": "worse"})],
        b"text": [Reply(422, {"Content-Type": "text/plain"}, b"plain words")],
        b"long": [Reply(422, {}, b"x" * 200000)],
        b"bytes": [Reply(422, {}, b"\xff\xfe bad")],
        b"nothing": [Reply(422)],
    }
    _, _, letters, ids, _ = run(redrive, replies, None)
    error = {body: letters[id]["error"] for body, id in ids.items()}
    equal(error[b"problem"], {"class": "TimeoutException", "root_class": "SocketTimeout", "code": "T-17", "text": "no answer from db \u00e4",
                              "stack": "at a.b(C.java:1)\nat d.e(F.java:2)"}, "problem")
    equal((error[b"headers"]["class"], error[b"headers"]["text"], error[b"headers"]["code"]), ("Bad", "worse", "422"), "headers")
    equal(error[b"text"]["text"], "plain words", "text")
    equal(len(error[b"long"]["text"]), 1000, "length")
    assert "bad" in error[b"bytes"]["text"]
    equal(error[b"nothing"]["code"], "422", "code")
    for letter in letters.values():
        assert letter["fingerprint"].startswith("v1:"), letter


@test
def exhausted_message_dies_after_exactly_its_attempts_with_its_history(redrive):
    replies = {b"always": [Reply(500, body=b"e%d" % i) for i in range(5)]}
    states, counts, letters, ids, _ = run(redrive, replies, None)
    letter = letters[ids[b"always"]]
    equal((states[b"always"], counts[b"always"], letter["reason"]), ("dead", 3, "exhausted"), "exhausted")
    equal([(h["n"], h["verdict"], h["code"], h["text"]) for h in letter["history"]],
          [(1, "retry", "500", "e0"), (2, "retry", "500", "e1"), (3, "retry", "500", "e2")], "history")
    equal(letter["attempts"], {"failures": 3, "timeouts": 0, "crashes": 0, "shutdowns": 0, "deferrals": 0, "outage": 0}, "attempts")
    equal((letter["history_omitted"], letter["generation"], letter["state"]), (0, 0, "new"), "letter")
    assert letter["first_failed_at"] <= letter["last_failed_at"] <= letter["dead_at"]


@test
def history_keeps_the_first_and_the_last_fifteen(redrive):
    # pitfall: error headers that grow with every round until the message is too large to be dead-lettered
    retry = {"backoff": "fixed", "base": "1ms", "min": "0s", "jitter": "none", "attempts": 40}
    _, counts, letters, ids, _ = run(redrive, {b"x": [Reply(500)] * 40}, None, retry=retry)
    letter = letters[ids[b"x"]]
    equal((counts[b"x"], len(letter["history"]), letter["history_omitted"], letter["attempts"]["failures"]), (40, 16, 24, 40), "bounded")
    equal([h["n"] for h in letter["history"]], [1] + list(range(26, 41)), "first and last")


@test
def on_exhausted_drop_drops(redrive):
    # pitfall: a message is deleted at a default limit: only an explicit drop deletes
    states, _, letters, _, _ = run(redrive, {b"x": [Reply(500)] * 3}, None, retry={**FAST, "on_exhausted": "drop"})
    equal((states[b"x"], letters), ("dropped", {}), "dropped without a letter")


@test
def too_old_messages_expire(redrive):
    states, counts, letters, ids, _ = run(redrive, {b"x": [Reply(500)] * 50}, None, retry={**FAST, "attempts": 50, "max_age": "450ms"})
    equal(letters[ids[b"x"]]["reason"], "expired", "reason")
    assert 2 <= counts[b"x"] <= 5, counts


@test
def deferrals_have_their_own_limit(redrive):
    defer = Reply(200, {"Redrive-Verdict": "defer", "Redrive-Delay": "1ms"})
    _, counts, letters, ids, handler = run(redrive, {b"x": [defer] * 9}, None, retry={**FAST, "deferrals": 5})
    letter = letters[ids[b"x"]]
    equal((letter["reason"], letter["attempts"]["deferrals"], letter["attempts"]["failures"]), ("exhausted", 6, 0), "the sixth is over the limit of five")


@test
def rules_come_before_the_table(redrive):
    # pitfall: the class that is known is not the one that decides; unsupported combinations pass for success
    rules = [{"when": {"status": [409]}, "then": "ack"}, {"when": {"text": "not (yet|now)"}, "then": {"defer": "10ms"}},
             {"when": {"class": "Poison"}, "then": "reject"}, {"when": {"status": 500, "text": "once"}, "then": {"retry": {"attempts": 1}}},
             {"when": {"status": 418}, "then": "drop"}]
    replies = {b"409": [Reply(409)], b"yet": [Reply(500, body=b"not yet ready")], b"poison": [Reply(500, {"Redrive-Error-Class": "Poison"})],
               b"once": [Reply(500, body=b"only once")], b"418": [Reply(418)]}
    states, counts, letters, ids, _ = run(redrive, replies, None, rules=rules)
    equal(counts, {b"409": 1, b"yet": 2, b"poison": 1, b"once": 1, b"418": 1}, "deliveries")
    equal((states[b"418"], letters[ids[b"poison"]]["reason"], letters[ids[b"once"]]["reason"]), ("dropped", "rejected", "exhausted"), "verdicts")


@test
def slow_and_broken_answers_are_failures(redrive):
    replies = {b"slow": [Reply(delay=2.0)], b"closed": [Reply(close=True)]}
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, http={"timeout": "300ms"}, retry=FAST, **OFF)) as server:
        for body, answers in replies.items():
            handler.script(*answers, body=body)
        ids = {body: server.publish("t", body)["id"] for body in replies}
        until(lambda: all(server.state(id) in ("acked", "done") for id in ids.values()), why="acked the second time")
        equal([len(handler.of(id)) for id in ids.values()], [2, 2], "one attempt is one request")
        attempts = server.route("r")["attempts"]
        equal((attempts["timeouts"], attempts["failed"], attempts["first"], attempts["retries"], attempts["succeeded"]), (1, 2, 2, 2, 2), "attempts")


@test
def minimum_delay_keeps_a_blip_from_burning_all_attempts(redrive):
    # pitfall: a nack without delay burns all attempts within milliseconds
    with Handler(lambda d: 500) as handler, Server(redrive, route("r", "t", handler.url, retry={"backoff": "fixed", "base": "0s", "jitter": "none", "attempts": 4}, **OFF)) as server:
        id = server.publish("t", b"x")["id"]
        until(lambda: server.state(id) == "dead", why="dead")
        assert handler.of(id)[3].at - handler.of(id)[0].at >= 0.29


@test
def dedupe_acks_a_repeat_without_a_call(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, dedupe={"by": "json:/order", "ttl": "1h"}, retry=FAST, **OFF)) as server:
        handler.script(Reply(500), body=b'{"order": 1, "n": 1}')
        ids = [server.publish("t", b'{"order": 1, "n": %d}' % n)["id"] for n in (1, 2)] + [server.publish("t", b'{"order": 2}')["id"]]
        until(lambda: server.counts("r")["acked"] == 3, why="all acked")
        assert len(handler.deliveries) in (3,), handler.deliveries
        equal({d.headers["Idempotency-Key"] for d in handler.of(ids[0]) + handler.of(ids[1])}, {"1"}, "the key reaches the handler")
        server.kill()
        server.start()
        server.publish("t", b'{"order": 1, "n": 3}')
        until(lambda: server.counts("r")["acked"] == 4, why="remembered over kill -9")
        equal(len(handler.deliveries), 3, "no call")


if __name__ == "__main__":
    main()
