#!/usr/bin/env python3
"""The shortest way through: publish over HTTP, delivered, acked; retried; dead; and over a kill -9."""
from lib import Handler, Reply, Server, equal, main, route, test, until


@test
def published_message_is_delivered_and_acked(redrive):
    with Handler() as handler, Server(redrive, route("orders", "order.create", handler.url)) as server:
        answer = server.publish("order.create", b'{"order": 17}', key="o-17", headers={"Content-Type": "application/json"})
        equal(answer["duplicate"], False, "duplicate")
        until(lambda: server.state(answer["id"]) in ("acked", "done"), why="acked")
        [delivery] = handler.deliveries
        equal(delivery.body, b'{"order": 17}', "body")
        equal((delivery.id, delivery.key, delivery.attempt), (answer["id"], "o-17", 1), "id, key, attempt")
        equal(delivery.headers["Content-Type"], "application/json", "content type")
        equal(server.counts("orders")["acked"], 1, "acked")
        equal(server.stop(), 0, "exit code after SIGTERM")


@test
def failed_delivery_is_retried_with_the_next_attempt_number(redrive):
    retry = {"backoff": "fixed", "base": "100ms", "jitter": "none"}
    with Handler() as handler, Server(redrive, route("orders", "order.create", handler.url, retry=retry)) as server:
        handler.script(Reply(503), Reply(500))
        id = server.publish("order.create", b"x")["id"]
        until(lambda: server.state(id) in ("acked", "done"), why="acked after two failures")
        equal([delivery.attempt for delivery in handler.of(id)], [1, 2, 3], "attempts")


@test
def rejected_message_is_a_dead_letter_with_its_body(redrive):
    with Handler(lambda delivery: 422) as handler, Server(redrive, route("orders", "order.create", handler.url)) as server:
        id = server.publish("order.create", b"\x00poison\xff", key="k")["id"]
        [letter] = until(server.letters, why="a letter")
        equal((letter["message_id"], letter["reason"], letter["route"]), (id, "rejected", "orders"), "letter")
        equal(server.get(f"/v1/dead-letters/{letter['id']}/body").body, b"\x00poison\xff", "body")
        equal(server.state(id), "dead", "state")
        equal(len(handler.deliveries), 1, "deliveries")


@test
def acknowledged_publish_survives_kill_9(redrive):
    with Handler() as handler:
        handler.down()
        with Server(redrive, route("orders", "order.create", handler.url)) as server:
            ids = [server.publish("order.create", b"%d" % i)["id"] for i in range(20)]
            server.kill()
            handler.up()
            server.start()
            until(lambda: server.counts("orders")["acked"] == 20, why="all acked")
            equal({delivery.id for delivery in handler.deliveries}, set(ids), "delivered ids")


if __name__ == "__main__":
    main()
