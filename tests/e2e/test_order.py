#!/usr/bin/env python3
"""Order by key at the real boundary: one at a time, the rest held, others flow; and what happens when the first dies."""
import time

from lib import Handler, Reply, Server, config, equal, main, quote, route, test, until

FAST = {"backoff": "fixed", "base": "200ms", "jitter": "none", "attempts": 2}


@test
def a_failing_message_holds_its_key_and_nobody_else(redrive):
    # pitfall: nack of message 0 of a key, and 1, 2, 3 are handled first
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", retry={**FAST, "attempts": 5})) as server:
        handler.script(500, 500, body=b"a0")
        for i in range(4):
            server.publish("t", b"a%d" % i, key="a")
            server.publish("t", b"b%d" % i, key="b")
        until(lambda: server.counts("r")["acked"] == 8, why="all acked")
        a = [d.body for d in handler.deliveries if d.key == "a"]
        b = [d.body for d in handler.deliveries if d.key == "b"]
        equal(a, [b"a0", b"a0", b"a0", b"a1", b"a2", b"a3"], "key a")
        equal(b, [b"b0", b"b1", b"b2", b"b3"], "key b")
        last_b = max(d.at for d in handler.deliveries if d.key == "b")
        assert last_b < [d.at for d in handler.deliveries if d.key == "a"][2], "b did not wait for a"


@test
def continue_goes_on_after_a_death(redrive):
    # pitfall: an ordered key that was dead-lettered is never delivered again
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", retry=FAST)) as server:
        handler.script(422, body=b"0")
        for i in range(3):
            server.publish("t", b"%d" % i, key="k")
        until(lambda: server.counts("r")["acked"] == 2, why="the rest acked")
        equal(server.counts("r")["dead"], 1, "dead")


@test
def follow_kills_those_that_wait_and_lets_later_ones_flow(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", after_dead="follow", retry=FAST)) as server:
        handler.script(500, 500, body=b"0")
        ids = [server.publish("t", b"%d" % i, key="k")["id"] for i in range(4)]
        letters = until(lambda: len(server.letters()) == 4 and server.letters(), why="four letters")
        by_id = {l["message_id"]: l for l in letters}
        equal([by_id[id]["reason"] for id in ids], ["exhausted", "follower", "follower", "follower"], "reasons")
        equal({by_id[id]["cause"] for id in ids[1:]}, {by_id[ids[0]]["id"]}, "cause")
        later = server.publish("t", b"later", key="k")["id"]
        until(lambda: server.state(later) in ("acked", "done"), why="a later one flows")
        equal({d.body for d in handler.deliveries}, {b"0", b"later"}, "followers were never called")


@test
def hold_keeps_the_key_until_released(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", after_dead="hold", retry=FAST)) as server:
        handler.script(422, body=b"0")
        ids = [server.publish("t", b"%d" % i, key="k /1")["id"] for i in range(3)]
        until(lambda: server.state(ids[0]) == "dead", why="dead")
        until(lambda: server.state(ids[2]) == "held", why="held")
        server.kill()
        server.start()
        late = server.publish("t", b"late", key="k /1")["id"]
        time.sleep(0.3)
        equal([server.state(id) for id in ids[1:] + [late]], ["held"] * 3, "held over a restart, new ones too")
        equal(server.message(ids[1])["routes"][0]["behind"], ids[0], "behind the letter")
        equal(server.request("POST", "/v1/routes/r/keys/" + quote("k /1") + "/release").status, 200, "release")
        until(lambda: server.counts("r")["acked"] == 3, why="all go on")
        equal([d.body for d in handler.deliveries], [b"0", b"1", b"2", b"late"], "in order")
        equal(server.request("POST", "/v1/routes/r/keys/nobody/release").status, 404, "no such gate")


@test
def hold_ends_when_the_letter_is_replayed_and_acked(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", after_dead="hold", retry=FAST)) as server:
        handler.script(422, body=b"0")
        ids = [server.publish("t", b"%d" % i, key="k")["id"] for i in range(3)]
        [letter] = until(server.letters, why="a letter")
        plan = server.request("POST", "/v1/replays", {"ids": [letter["id"]], "rate": "100/s"}).json()
        equal(server.request("POST", f"/v1/replays/{plan['id']}/approve", {"digest": plan["digest"]}).status, 200, "approve")
        equal(server.request("POST", f"/v1/replays/{plan['id']}/start").status, 200, "start")
        until(lambda: server.counts("r")["acked"] == 2, why="the others go on")
        equal([d.body for d in handler.deliveries], [b"0", b"0", b"1", b"2"], "the letter kept its place")


@test
def delayed_messages_block_nobody_until_due(redrive):
    # pitfall: a long delay at the head blocks short ones
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key")) as server:
        server.publish("t", b"later", key="k", headers={"Redrive-Delay": "1500ms"})
        server.publish("t", b"now", key="k")
        server.publish("t", b"sooner", key="k", headers={"Redrive-Delay": "300ms"})
        until(lambda: len(handler.deliveries) == 3, why="all")
        equal(handler.bodies(), [b"now", b"sooner", b"later"], "by due time")


@test
def keys_spread_over_partitions_and_stay_there(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, source={"partitions": 8})) as server:
        where = {k: {server.publish("t", b"x", key=f"k{k}")["partition"] for _ in range(3)} for k in range(40)}
        assert all(len(p) == 1 for p in where.values()), where
        assert len(set.union(*where.values())) >= 6, where
        server.kill()
        server.start()
        equal({k: {server.publish("t", b"x", key=f"k{k}")["partition"]} for k in range(40)}, where, "after a restart")
        server.write_config(server.config_file.read_text().replace('"partitions": 8', '"partitions": 4'))
        server.stop()
        server.spawn()
        code = server.process.wait(20)
        assert code != 0, code
        assert "8" in server.log() and "4" in server.log(), server.log()[-300:]


def in_order(handler, keys):
    """What was answered 200, by key: never a smaller number after a larger one, but for what a kill rewound."""
    for key in keys:
        acked = [int(d.body) for d in list(handler.deliveries) if d.key == key and d.answered == 200]
        equal(list(dict.fromkeys(acked)), sorted(set(acked)), f"key {key}: {acked}")


@test
def an_adopted_lane_keeps_the_order_of_its_keys_with_the_new_one(redrive):
    keys = ["a", "b", "c", None]
    healthy = []

    def answer(delivery):
        delivery.answered = 200 if healthy or (delivery.key == "b" and int(delivery.body) < 6) else 500
        return Reply(delivery.answered, delay=0.005)

    def publish(server, first, last):
        for i in range(first, last):
            for key in keys:
                server.publish("t", b"%d" % i, key=key)

    with Handler(answer) as handler:
        rest = {"order": "key", "source": {"partitions": 2}, "breaker": "off", "retry": {**FAST, "attempts": 1000}}
        with Server(redrive, route("old", "t", handler.url, **rest)) as server:
            publish(server, 0, 6)
            server.kill()
            server.write_config(config(route("new", "t", handler.url, **rest)))
            server.start()
            publish(server, 6, 9)
            equal(server.route("old")["orphan"], True, "what the old name left")
            until(lambda: any(d.key == "a" and int(d.body) >= 6 for d in handler.deliveries), why="new ones of the key go")
            equal(server.cli("routes", "adopt", "old", "new").returncode, 0, "adopt")
            adopted = len(handler.deliveries)
            until(lambda: any(int(d.body) == 0 and d.key == "a" for d in handler.deliveries[adopted:]), why="the oldest goes")
            server.kill()
            server.start()
            publish(server, 9, 12)
            id = server.publish("t", b"12", key="a")["id"]
            status = until(lambda: server.message(id)["routes"][0]["state"] == "held" and server.message(id)["routes"][0], why="held")
            assert status["behind"], f"where says why it waits: {status}"
            before = len(handler.deliveries)
            healthy.append(True)
            until(lambda: len({(d.key, d.body) for d in handler.deliveries if d.key == "a" and d.answered == 200}) >= 4, why="some")
            server.kill()
            server.start()
            until(lambda: (lambda c: c["received"] == 49 and c["acked"] == 49)(server.counts("new")), why="all acked")
            in_order(handler, keys[:3])
            first = next(d for d in handler.deliveries[before:] if d.key == "a")
            equal(first.body, b"0", "the oldest of the key is the first to go")


if __name__ == "__main__":
    main()
