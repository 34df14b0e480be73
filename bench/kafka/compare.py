"""compare.py - the comparison on Kafka: which consumers go through which scenarios, and the figures with their goals.

REDRIVE_BENCH=succeed,fail chooses scenarios, REDRIVE_BENCH_CONSUMERS=bare,redrive consumers; without them, all. One run each, since
the long ones take minutes; the details have every figure."""
import os

from kafka import harness

RECOVERY_BOUND = 12.7  # s: 20,000 messages that piled up in 40 s, drained at the capacity less what arrives


def wanted(variable, names):
    given = os.environ.get(variable)
    return given.split(",") if given else list(names)


def compare(s):
    scenarios, results = harness.scenarios(s.quick), {}
    chosen = wanted("REDRIVE_BENCH", scenarios)
    consumers = [harness.CONSUMERS[name] for name in wanted("REDRIVE_BENCH_CONSUMERS", harness.CONSUMERS)]
    with harness.server() as kafka:
        for name in chosen:
            results[name] = []
            for consumer in consumers:
                if not consumer.works or name in consumer.works:
                    results[name].append(one(s, kafka, consumer, name, scenarios[name]))
    found = {name: {r["consumer"]: r for r in runs if r} for name, runs in results.items()}
    for name in chosen:
        if "redrive" in found[name]:
            ROWS[name](s, found[name]["redrive"], found)
    print(harness.table({name: [r for r in runs if r] for name, runs in results.items()}), flush=True)


def one(s, kafka, consumer, name, scenario):
    try:
        result = harness.measure(kafka, s.build, consumer, scenario)
    except (OSError, RuntimeError, ValueError, harness.subprocess.SubprocessError) as error:
        print(f"kafka: {name}, {consumer.name}: {error!r}", flush=True)
        s.failed.append(f"kafka {name} {consumer.name}")
        return None
    s.details[f"kafka {name} {consumer.name}"] = {**result, "what": scenario.what, "setting": consumer.version}
    print(f"kafka: {name}, {consumer.name}: {result['per_s']} messages/s, peak lag {result['peak_lag']}, order {result['order']}, "
          f"lost {result['lost']}", flush=True)
    return result


# ---- rows with goals ----

def against(s, title, own, found, scenario, peer, goal):
    other = found.get(scenario, {}).get(peer)
    if other:
        s.row(f"kafka: {title}", own["per_s"], "messages/s", f"{peer}, {scenario}", other["per_s"], goal)


def none_of(s, title, own, *names):
    for name in names:
        s.row(f"kafka: {title}: {name.replace('_', ' ')}", own[name], "messages" if name != "rebalances" else "", goal=0, at_most=True)


def succeed(s, own, found):
    against(s, "all succeed", own, found, "succeed", "bare", 0.8)
    against(s, "all succeed", own, found, "succeed", "inplace", None)
    against(s, "all succeed", own, found, "succeed", "parallel", None)


def fail(s, own, found):
    against(s, "10 % fail once", own, found, "succeed", "bare", 0.7)
    against(s, "10 % fail once", own, found, "fail", "parallel", 5)
    against(s, "10 % fail once", own, found, "fail", "topic", 20)
    s.row("kafka: 10 % fail once: memory", own["memory_mib"], "MiB", goal=150, at_most=True)
    none_of(s, "10 % fail once", own, "order", "lost", "dead")


def poison(s, own, found):
    for peer in ("inplace", "topic", "parallel"):
        against(s, "1 % always fail", own, found, "poison", peer, None)
    none_of(s, "1 % always fail", own, "order", "lost", "dead_and_ok")


def tenant(s, own, found):
    other = found["tenant"].get("inplace")
    if other:
        s.row("kafka: one tenant down: peak lag of in-place retry against ours", other["peak_lag"], "messages", "redrive",
              max(own["peak_lag"], 1), 40)
    s.row("kafka: one tenant down: p99 of the others against before", own["p99_down"], "ms", "before", max(own["p99_before"], 1), 1.2,
          at_most=True)
    none_of(s, "one tenant down", own, "rebalances", "order", "lost")


def outage(s, own, _):
    charged = sum(a.get("attempts", {}).get("failed", 0) for a in own["account"])
    s.row("kafka: full outage: charged attempts", charged, "attempts", goal=0, at_most=True)
    s.row("kafka: full outage: calls while it is down", own["refused"], "calls", goal=120, at_most=True)
    s.row("kafka: full outage: refused for capacity", own["over"], "calls", goal=0, at_most=True)
    s.row("kafka: full outage: open below 1,000 after its end", own["open_recovered_s"] if own["open_recovered_s"] >= 0 else 1e6, "s",
          "arithmetic bound", RECOVERY_BOUND, 2.0, at_most=True)
    none_of(s, "full outage", own, "dead", "rebalances", "lost", "order")


def fleet(title):
    def rows(s, own, found):
        s.row(f"kafka: {title}: messages that came again", own["duplicates"], "messages")
        none_of(s, title, own, "lost", "order")
    return rows


ROWS = {"succeed": succeed, "fail": fail, "poison": poison, "tenant": tenant, "outage": outage,
        "rolling": fleet("3 instances restarted in turn"), "hung": fleet("1 of 3 hangs and wakes")}
