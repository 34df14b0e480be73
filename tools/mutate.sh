#!/bin/sh
# mutate.sh [NUMBER...] - do the core's tests and the simulator notice when a rule of the core is broken?
# Copies the tree to a temporary directory, builds the core's unit tests and the simulator there, and then breaks one rule at a time by a
# one-line change (the table below), builds again and runs the tests until one fails. Prints a table.
# Exit 1 if a broken rule went unnoticed, or a change no longer fits its file. Numbers choose lines of the table.
# Not part of `make check`: each line costs a build. `make mutate` runs it.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/redrive-mutate.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# rule that is broken | file | sed expression | test expected to notice
table() {
	cat <<'TABLE'
the delay saturates instead of falling to zero|src/core/policy.c|s/llround(ms) : RDV_NEVER/llround(ms) : 0/|test_policy
jitter is added on top of the cap|src/core/policy.c|s/high = rdv_ms_add(delay, span)/high = delay/|test_policy
429 is the target's trouble, not the message's|src/core/judge.c|s/{429, 429, RDV_RETRY, RDV_KIND_INFRA}/{429, 429, RDV_REJECT, RDV_KIND_MSG}/|test_rules
an explicit verdict overrides the status|src/core/judge.c|s/return a->verdict;/return row->verdict;/|test_rules
a pattern's match is bounded|src/core/rules.c|s/#define MATCH_LIMIT 20000/#define MATCH_LIMIT 2000000000/|test_rules
a suspect is never evidence|src/core/target_verdict.c|s/if (r->was_suspect \|\| /if (/|test_target_outage
fewer than five distinct messages are no outage|src/core/evidence.h|s/#define RDV_EVIDENCE_DISTINCT 5/#define RDV_EVIDENCE_DISTINCT 1/|test_target_outage
a message counts once in the window|src/core/evidence.c|s/slice_of(e, seen->counted)->bad--;/slice_of(e, seen->counted)->bad += 0;/|test_target_outage
an ok of any attempt ends a row of bad ones|src/core/evidence.c|s/e->row_count = 0;/e->row_count += 0;/|test_target_outage
an attempt is charged only while the target is up|src/core/target_verdict.c|s/bool patient = .*/bool patient = false;/|test_target_outage
charges since the last fine slice are given back|src/core/evidence.c|s/\*since = after_last_fine_slice(e);/*since = now_ms;/|test_target_outage
no dispatch while down but one probe|src/core/target_take.c|s/if (b->probe_out \|\| /if (/|test_target_outage
the wait between probes doubles|src/core/breaker.c|s/bounded_wait(policy, rdv_ms_mul(b->wait, 2))/bounded_wait(policy, b->wait)/|test_target_outage
HALF starts at a fifth of the throughput|src/core/breaker.c|s/#define HALF_SHARE 0.2/#define HALF_SHARE 1.0/|test_target_outage
HALF goes down when half of five are bad|src/core/breaker.c|s/b->half_bad \* 2 >= total/b->half_bad > total/|test_target_outage
one suspect in flight beside other work|src/core/target_take.c|s/p->suspects > 0 \&\& !is_overdue(work)/p->suspects > 9 \&\& !is_overdue(work)/|test_target_flow
a storm begins only after a healthy hour|src/core/storm.c|s/s->hour.rejects \* 20 >= s->hour.total/s->hour.rejects > s->hour.total/|test_target_flow
a family counts distinct messages|src/core/family.c|s/if (ring\[i\].message != hit->message)/if (ring[i].message != 0)/|test_target_flow
Retry-After holds the whole target|src/core/target_take.c|s/if (p->hold_until > now.mono.ms) {/if (p->hold_until == 1) {/|test_target_flow
a retry that succeeds gives its token back|src/core/budget.c|s/b->balance += RDV_BUDGET_TOKEN;/b->balance += 0;/|test_budget
deposits expire|src/core/budget.c|s/b->balance -= expiring;/b->balance -= 0; expiring = 0;/|test_budget
of 100 grants 70 are first attempts|src/core/permits.c|s/RDV_CLASS_FIRST\] = 70/RDV_CLASS_FIRST] = 90/|test_permits
an overdue backlog is released on a ramp|src/core/target_take.c|s/if (t->permits.ramp_rate > 0 \&\& !rdv_bucket_ready/if (t->permits.ramp_rate < 0 \&\& !rdv_bucket_ready/|test_target_flow
HALF knows the throughput before the outage|src/core/evidence.c|s/(back + i)) % RDV_EVIDENCE_SECONDS/i) % RDV_EVIDENCE_SECONDS/|test_evidence
a rate's burst is a tenth of a second|src/core/permits.c|s/b->per_ms \* 100/b->per_ms * 1000/g|test_permits
a message dies after exactly its attempts|src/core/lane_verdict.c|s/x->e->charged >= r->attempts/x->e->charged > r->attempts/|test_lane
an uncharged failure advances nothing|src/core/lane_verdict.c|s/e->charged += x->charged \&\& /e->charged += /|test_lane
a deferral has its own limit|src/core/lane_verdict.c|s/s->causes.deferrals > r->deferrals/s->causes.deferrals > 100000/|test_lane
age is judged when a failure is recorded|src/core/lane_verdict.c|s/r->max_age_ms > 0 \&\&/r->max_age_ms < 0 \&\&/|test_lane
a handler's crash is no charged failure|src/core/lane_verdict.c|s/if (x->cause == RDV_CAUSE_CRASH)/if (x->cause == RDV_CAUSE_NONE)/|test_lane
a rule's own limits apply|src/core/lane_verdict.c|s/x.retry = rule ? rule : \&l->policy.retry/x.retry = \&l->policy.retry/|test_lane
drop is only for limits|src/core/lane_verdict.c|s/return reason == RDV_REASON_EXHAUSTED \|\|/return reason == RDV_REASON_REJECTED \|\| reason == RDV_REASON_EXHAUSTED \|\|/|test_lane
an ack wins over a revoke in flight|src/core/lane_verdict.c|s/if (drop \&\& x->e->revoke/if (x->e->revoke/|test_lane
a refund reaches charges of the same moment|src/core/lane_verdict.c|s/if (c->at < since.ms)/if (c->at <= since.ms)/|test_lane
a refund moves the account|src/core/lane_verdict.c|s/l->account.outage++;/l->account.outage += 0;/|test_lane
one message of a key at a time|src/core/lane_keys.c|s/if (rdv_lane_entry(l, k->turn)->state == RDV_STATE_IN_FLIGHT)/if (false)/|test_lane_order
a follower waits until the head's end is durable|src/core/lane_keys.c|s/uint32_t ref = k->blocked ? 0 : candidate(l, k);/uint32_t ref = candidate(l, k);/|test_lane_order
the smallest position goes first|src/core/order.c|s/rdv_entry_at(o->entries, \*at)->seq < e->seq/rdv_entry_at(o->entries, *at)->seq > e->seq/|test_order
a closed gate holds live messages|src/core/lane_keys.c|s/	if (k->closed)$/	if (false)/|test_lane_order
a gate is recorded|src/core/lane_keys.c|s/rdv_lane_end_record(l, RDV_RECORD_GATE/(void)at, (void)(l, RDV_RECORD_GATE/|test_lane_order
followers of that moment die|src/core/lane_state.c|s/if (e->replay \|\| e->seq < dead)/if (true)/|test_lane_order
a revoked head kills nobody|src/core/lane_state.c|s/reason != RDV_REASON_REVOKED \&\& reason != RDV_REASON_FOLLOWER/reason != RDV_REASON_FOLLOWER/|test_lane_order
a letter is asked for when dying is durable|src/core/lane.c|s/if (f.turn > turn)/if (false)/|test_lane
rule 8: too many unrecorded|src/core/lane_dispatch.c|s/l->unrecorded >= l->unrecorded_max/l->unrecorded >= UINT64_MAX/|test_lane
rule 8: too old unrecorded|src/core/lane_dispatch.c|s/return now.mono.ms - oldest_outcome(l) > UNRECORDED_AGE_MS;/return false;/|test_lane
an old clock never makes a retry late|src/core/lane_open.c|s/return left < delay ? left : delay;/return left;/|test_lane_recover
a delay passes while the process is down|src/core/lane_open.c|s/return left < delay ? left : delay;/return delay;/|test_lane_recover
suspect mode runs one at a time|src/core/lane_dispatch.c|s/(l->suspect_mode \&\& l->call_count)/(false)/|test_lane_recover
crashes in a row kill|src/core/lane_open.c|s/crashes_in_a_row(s) >= limit/crashes_in_a_row(s) > limit/|test_lane_recover
a clean stop is no crash|src/core/lane_open.c|s/if (!e->started \|\| !unclean)/if (!e->started)/|test_lane_recover
a lane's DONE follows a body that moves|src/core/lane_trim.c|s/rdv_lane_add_run(\&l->done, seq, RDV_STATE_DONE, out);/(void)out;/|test_lane_recover
calls in flight are not counted over a crash|src/core/lane.c|s/a.first -= a.first_calls;/a.first -= 0;/|test_lane_recover
a live message's key is not beside its replay|src/core/lane_keys.c|s/if (!k->turn \&\& !first_replay(l, k))/if (true)/|test_lane_order
a replay is in no account|src/core/lane_verdict.c|s/	if (!x->e->replay)$/	if (true)/|test_lane_order
a cancelled plan takes back|src/core/lane_replay.c|s/l->plans\[i\].cancelled = true;/l->plans[i].cancelled = false;/|test_lane_order
outcomes are told again after a crash|src/core/lane_open.c|s/rdv_lane_open_requests(l, out);/(void)out;/|test_lane_order
nothing is due early|src/core/schedule.c|s/if (due <= s->time) {/if (due <= s->time + 1) {/|test_schedule
the window of dedupe is bounded|src/core/dedupe.c|s/while (d->done > (limit ? limit : 1))/while (false)/|test_dedupe
a double waits for the owner|src/core/lane_dedupe.c|s/busy = i->state == RDV_DEDUPE_PROCESSING;/busy = false;/|test_lane_order
a dead owner frees its key|src/core/lane_dedupe.c|s/rdv_dedupe_finish(l->dedupe, item, i->until, l->policy.dedupe.entries);/rdv_dedupe_free(l->dedupe, item);/|test_lane_order
a position is received once|src/core/lane.c|s/if (m->seq < l->next)/if (false)/|test_lane
bodies are asked for ahead|src/core/lane_parts.h|s/#define RDV_FETCH_AHEAD_MS 1000/#define RDV_FETCH_AHEAD_MS 100000000/|test_lane
a named delay ignores min|src/core/lane_verdict.c|s/return rdv_retry_named_delay(x->retry, v->delay_ms);/return rdv_retry_named_delay(x->retry, v->delay_ms < 100 ? 100 : v->delay_ms);/|test_lane
an adopted lane's messages go first|src/core/lane_siblings.c|s/if (next \&\& precedes(s, next, l, ref))/if (false)/|sim
one call of a key over all lanes of a route|src/core/lane_siblings.c|s/if (s->folding \|\| (other \&\& is_busy(s, other)))/if (s->folding)/|sim
a closed gate holds adopted lanes, too|src/core/lane_keys.c|s/if (k->closed \|\| (l->sibling \&\& rdv_lane_gate_closed(l, k)))/if (k->closed)/|sim
what was ready steps back for an adopted lane|src/core/lane_siblings.c|s/	rdv_lane_promote_all(l, now, out);$/	(void)now;/|sim
a follower in an adopted lane dies|src/core/lane_state.c|s/if ((key = rdv_order_find(\&s->order, hash)) != 0)/if (false)/|test_lane_siblings
two lanes of a partition are two owners|src/core/dedupe.h|s/i->owner_seq == owner.seq \&\& i->owner_stream == owner.stream/i->owner_seq == owner.seq/|test_lane_siblings
an adopted lane brings its idempotency keys|src/core/lane_dedupe.c|s/	item = rdv_dedupe_claim(to, mine->key, owner_of(l, mine->owner_seq));/	return;/|sim
one call of an idempotency key at a time|src/core/lane_dedupe.c|s/		if (owner_goes_on(l, i))/		if (false)/|sim
no call of a duplicate within the window|src/core/dedupe.c|s/->until.ms <= now.ms)/->until.ms <= now.ms + 600000)/|sim
the target's rate is kept|src/core/target_take.c|s/	rdv_bucket_spend(\&t->permits.rate);/	(void)0;/|sim
a rule's own delay is kept|src/core/lane_verdict.c|s/		return v->delay_ms; .*/		return 0;/|sim
an outage costs some twenty calls|src/core/evidence.c|s/return e->last_bad >= ratio \* e->last_size.*/return false;/|sim
nothing is charged in an outage|src/core/lane_verdict.c|s/		if (c->at < since.ms)/		if (true)/|sim
an outage ends on a ramp|src/core/breaker.c|s/#define HALF_SHARE 0.2/#define HALF_SHARE 1.0/|sim
a lowered limit needs no call|src/core/lane.c|s/return e->charged >= l->policy.retry.attempts/return false \&\& e->charged >= l->policy.retry.attempts/|test_lane
TABLE
}

echo "copying and building: $work"
(cd "$here" && tar --exclude=./.git --exclude='./build*' -cf - .) | (mkdir "$work/tree" && cd "$work/tree" && tar -xf -)
# Only the two lowest rooms and the core's tests: the others cannot notice anything sooner.
root=$work/tree/meson.build
sed -i '/^rooms = \[\]/q' "$root"
cat >>"$root" <<'MESON'
subdir('src/base')
subdir('src/core')
subdir('tests/sim')
unit = []
subdir('tests/core')
foreach u : unit
  foreach f : u[1]
    executable(fs.stem(f), f, include_directories: [top, include_directories('tests')], dependencies: deps + [cmocka],
      link_with: rooms)
  endforeach
endforeach
MESON
meson setup "$work/build" "$work/tree" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
tests=$(grep -v '^#' "$work/tree/tests/core/meson.build" | grep -o 'test_[a-z0-9_]*\.c' | sed 's/\.c$//' | sort -u)

# Builds the test program $1 and runs it: 0 passed, 1 failed, 2 does not build.
run_test() {
	program=$1 options=
	[ "$1" = sim ] && program=tests/sim/sim options="--worlds 2000"
	ninja -C "$work/build" "$program" >"$work/log" 2>&1 || return 2
	(cd "$work/tree" && timeout 120 "$work/build/$program" $options) >"$work/log" 2>&1 || return 1
}

sound=
for t in $tests sim; do
	if run_test "$t"; then
		sound="$sound $t"
	else
		echo "mutate: $t fails before anything was broken, and is left out"
	fi
done
tests=$sound

# The first test that fails; the expected one is asked first.
noticed_by() {
	for t in $1 $tests; do
		case " $tests " in *" $t "*) ;; *) continue ;; esac
		result=0
		run_test "$t" || result=$?
		[ $result = 2 ] && { echo "DOES NOT BUILD"; return; }
		[ $result = 1 ] && { echo "$t"; return; }
	done
	echo "NOBODY"
}

table >"$work/table"
number=0 bad=0
printf '%3s  %-52s %-28s %s\n' '#' 'rule that was broken' 'file' 'noticed by'
while IFS= read -r line; do
	number=$((number + 1))
	case " $* " in "  " | *" $number "*) ;; *) continue ;; esac
	# The expression may hold "|" itself (\|): cut the first two fields and the last one off.
	rule=${line%%|*} rest=${line#*|}
	file=${rest%%|*} rest=${rest#*|}
	expected=${rest##*|} change=${rest%|*}
	cp "$work/tree/$file" "$work/original"
	sed -i "$(printf '%s' "$change" | sed 's/\\|/|/g')" "$work/tree/$file"
	if cmp -s "$work/original" "$work/tree/$file"; then
		who="DOES NOT FIT"
	else
		who=$(noticed_by "$expected")
	fi
	cp "$work/original" "$work/tree/$file"
	touch "$work/tree/$file"
	case $who in test_* | sim) ;; *) bad=$((bad + 1)) ;; esac
	printf '%3s  %-52s %-28s %s\n' "$number" "$rule" "$file" "$who"
done <"$work/table"
[ $bad = 0 ] || { echo "mutate: $bad of the broken rules went unnoticed"; exit 1; }
echo "mutate: every broken rule was noticed"
