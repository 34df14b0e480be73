/* lane.c - birth and death of a lane, publishing, time, durability. What the parts do: lane_parts.h.
 *
 * Records of one loop turn are one batch. Everything that may only follow when they are durable (a key's next message,
 * a letter) is a follow-up of that turn: appended gives the turn its ticket, durable runs the follow-ups of all turns
 * up to it. Outcomes are counted until then (rule 8). Single thread. */
#include "lane_parts.h"
#include <assert.h>
#include <stdlib.h>

#define TICK_ENTRIES 65536  /* due messages per tick: a million due at once do not stop the world */
#define EXPIRE_ENTRIES 8192 /* dedupe keys per tick, likewise */
#define RUNS_PER_RECORD 8192

static char *copy_text(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

static uint32_t unrecorded_limit(const struct rdv_lane_options *o)
{
	struct rdv_target_status status = {0};

	if (o->unrecorded_max)
		return o->unrecorded_max;
	if (o->target)
		rdv_target_status(o->target, (struct rdv_now){{0}, {0}}, &status);
	return 2 * (uint64_t)status.limit_now > 32768 ? 2 * status.limit_now : 32768;
}

struct rdv_lane *rdv_lane_new(const struct rdv_lane_options *o)
{
	struct rdv_lane *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->route = copy_text(o->route);
	l->topic = copy_text(o->topic);
	if (!l->route || !l->topic) {
		free(l->route);
		free(l->topic);
		free(l);
		return NULL;
	}
	l->stream = o->stream;
	l->partition = o->partition;
	l->partition_stream = o->partition_stream;
	l->start = l->next = o->start;
	l->epoch = o->epoch;
	l->policy = o->policy;
	l->rules = rdv_rules_ref(o->rules);
	l->target = o->target;
	l->target_route = o->target_route;
	l->from_broker = o->from_broker;
	l->start_before_call = o->start_before_call;
	l->unrecorded_max = unrecorded_limit(o);
	l->folding = true;
	l->follower_of = RDV_NOBODY;
	rdv_random_seed(&l->random, o->seed);
	rdv_chunks_init(&l->entries, sizeof(struct rdv_entry));
	rdv_positions_init(&l->by_seq, &l->entries);
	rdv_schedule_init(&l->wheel, &l->entries);
	rdv_order_init(&l->order, &l->entries);
	rdv_dedupe_init(&l->own_dedupe);
	l->dedupe = o->dedupe ? o->dedupe : &l->own_dedupe;
	l->dedupe->lanes++;
	rdv_lane_init_requests(l);
	l->turns.item_size = sizeof(struct rdv_turn);
	l->follow_ups.item_size = sizeof(struct rdv_follow_up);
	l->charges.item_size = sizeof(struct rdv_charge);
	l->causes.item_size = sizeof(struct rdv_cause_note);
	l->revokes.item_size = sizeof(struct rdv_revoke_note);
	l->released_spill.item_size = sizeof(struct rdv_released);
	return l;
}

void rdv_lane_free(struct rdv_lane *l)
{
	if (!l)
		return;
	rdv_lane_unlink_sibling(l);
	rdv_rules_unref(l->rules);
	rdv_positions_done(&l->by_seq);
	rdv_schedule_done(&l->wheel);
	rdv_order_done(&l->order);
	l->dedupe->lanes--;
	rdv_dedupe_done(&l->own_dedupe);
	rdv_ages_done(&l->ages);
	rdv_lane_done_requests(l);
	rdv_chunks_done(&l->entries);
	free(l->calls);
	rdv_finished_done(&l->finished);
	free(l->done.items);
	free(l->started.items);
	free(l->turns.items);
	free(l->follow_ups.items);
	free(l->charges.items);
	free(l->causes.items);
	rdv_lane_forget_revoke(l, RDV_NOBODY);
	free(l->revokes.items);
	free(l->released_spill.items);
	free(l->route);
	free(l->topic);
	free(l);
}

void rdv_lane_reload(struct rdv_lane *l, const struct rdv_lane_policy *policy, struct rdv_rules *rules)
{
	enum rdv_order order = l->policy.order; /* cannot change at run time */

	l->policy = *policy;
	l->policy.order = order;
	rdv_rules_ref(rules);
	rdv_rules_unref(l->rules);
	l->rules = rules;
}

bool rdv_lane_over_limit(const struct rdv_lane *l, const struct rdv_entry *e)
{
	return e->charged >= l->policy.retry.attempts && e->charged && !e->by_rule;
}

/* ---- events ---- */

enum redrive_status rdv_lane_published(struct rdv_lane *l, struct rdv_now now, const struct rdv_published *m,
				       struct rdv_effects *out)
{
	struct rdv_entry *e;
	int64_t delay = 0;
	uint32_t ref;

	if (l->from_broker ? rdv_lane_find(l, m->seq) != 0 : m->seq < l->next)
		return REDRIVE_OK; /* known: counts once */
	ref = rdv_lane_add_entry(l, m->seq);
	if (!ref)
		return REDRIVE_NO_MEMORY;
	e = rdv_lane_entry(l, ref);
	if (m->key_hash && rdv_lane_set_key(l, e, m->key_hash) != REDRIVE_OK) {
		rdv_lane_drop_entry(l, ref);
		return REDRIVE_NO_MEMORY;
	}
	if (m->seq >= l->next)
		l->next = m->seq + 1;
	e->body_segment = m->body.segment;
	e->body_offset = m->body.offset;
	e->body_length = m->body.length;
	rdv_lane_saw_segment(l, m->body.segment);
	rdv_ages_add(&l->ages, m->seq, now.wall);
	if (m->not_before.ms > now.wall.ms)
		delay = m->not_before.ms - now.wall.ms;
	e->state = delay ? RDV_STATE_WAITING : RDV_STATE_READY;
	rdv_account_receive(&l->account, (enum rdv_state)e->state);
	if (delay)
		rdv_lane_wait(l, ref, now, delay, out);
	else
		rdv_lane_arrive(l, ref, now, out);
	return REDRIVE_OK;
}

struct rdv_mono rdv_lane_tick(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out)
{
	uint32_t ref;

	l->tick_budget = TICK_ENTRIES;
	while ((ref = rdv_lane_pop_due(l, now, out)) != 0)
		rdv_lane_arrive(l, ref, now, out);
	if (l->dedupe->oldest)
		rdv_dedupe_expire(l->dedupe, now.wall, EXPIRE_ENTRIES);
	return (struct rdv_mono){rdv_schedule_next(&l->wheel)};
}

/* ---- durability ---- */

static void flush_runs(struct rdv_lane *l, struct rdv_run_list *list, enum rdv_record type, struct rdv_effects *out)
{
	for (size_t i = 0; i < list->count; i += RUNS_PER_RECORD) {
		size_t n = list->count - i < RUNS_PER_RECORD ? list->count - i : RUNS_PER_RECORD,
		       at = rdv_lane_begin_record(out);
		rdv_runs_encode(list->items + i, n, &out->arena);
		rdv_lane_end_record(l, type, 0, at, out);
	}
	list->count = 0;
}

/* Calls in flight are left out: if the process dies, they have not been. */
void rdv_lane_write_counters(struct rdv_lane *l, struct rdv_effects *out)
{
	struct rdv_account a = l->account;
	size_t at = rdv_lane_begin_record(out);

	a.first -= a.first_calls;
	a.retries -= a.calls - a.first_calls;
	a.dead -= l->unwritten_dead;
	a.revoked -= l->unwritten_revoked;
	rdv_counters_encode(&a, &out->arena);
	if (l->target)
		rdv_counters_append_throughput(rdv_target_throughput(l->target), &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_COUNTERS, 0, at, out);
	l->counters_changed = false;
	l->counters_segment = l->head_segment;
}

void rdv_lane_flush(struct rdv_lane *l, struct rdv_effects *out)
{
	if (l->started.count)
		flush_runs(l, &l->started, RDV_RECORD_STARTED, out);
	if (l->done.count) {
		rdv_finished_add(&l->finished, l->done.items, l->done.count);
		flush_runs(l, &l->done, RDV_RECORD_DONE, out);
	}
	if (l->counters_changed)
		rdv_lane_write_counters(l, out);
	if (l->released_used || l->released_spill.count)
		rdv_lane_flush_released(l, out);
	if (l->short_of_memory)
		out->failed = true;
}

void rdv_lane_appended(struct rdv_lane *l, uint64_t ticket)
{
	assert(!l->done.count && !l->started.count); /* flush comes first */
	if (!l->appended_records)
		return;
	l->open_turn.turn = l->turn++;
	l->open_turn.ticket = ticket;
	if (!rdv_ring_push(&l->turns, &l->open_turn))
		l->short_of_memory = true;
	l->open_turn = (struct rdv_turn){0};
	l->appended_records = false;
}

static void run_follow_up(struct rdv_lane *l, const struct rdv_follow_up *f, struct rdv_now now,
			  struct rdv_effects *out)
{
	const struct rdv_entry *e;

	switch (f->kind) {
	case RDV_ONCE_KEY:
		rdv_lane_unblock_key(l, f->ref, now, out);
		break;
	case RDV_ONCE_LETTER:
		rdv_lane_say_letter(l, f->ref, f->value, out);
		break;
	case RDV_ONCE_OUTCOME:
		rdv_lane_say_outcome(l, f->value, out);
		break;
	case RDV_ONCE_RESTATE:
		e = rdv_lane_entry(l, f->ref);
		if (!e->ghost && e->todo != RDV_TODO_NONE && e->state != RDV_STATE_IN_FLIGHT)
			rdv_lane_ask_history(l, f->ref, (enum rdv_todo)e->todo, out);
		break;
	}
}

void rdv_lane_durable(struct rdv_lane *l, struct rdv_now now, uint64_t ticket, struct rdv_effects *out)
{
	uint64_t turn = 0;
	bool any = false;

	while (l->turns.count) {
		const struct rdv_turn *t = rdv_ring_at(&l->turns, 0);
		if (t->ticket > ticket)
			break;
		turn = t->turn;
		any = true;
		l->unrecorded -= t->outcomes;
		l->unrecorded_bytes -= t->bytes;
		rdv_ring_pop(&l->turns);
	}
	while (any && l->follow_ups.count) {
		const struct rdv_follow_up f = *(struct rdv_follow_up *)rdv_ring_at(&l->follow_ups, 0);
		if (f.turn > turn)
			break;
		rdv_ring_pop(&l->follow_ups);
		run_follow_up(l, &f, now, out);
	}
}

/* ---- operators ---- */

void rdv_lane_write_pause(struct rdv_lane *l, struct rdv_effects *out)
{
	size_t at = rdv_lane_begin_record(out);

	rdv_pause_encode(l->paused, &out->arena);
	rdv_lane_end_record(l, RDV_RECORD_PAUSE, 0, at, out);
	l->pause_segment = l->head_segment;
}

void rdv_lane_pause(struct rdv_lane *l, bool paused, struct rdv_effects *out)
{
	if (l->paused == paused)
		return;
	l->paused = paused;
	rdv_lane_write_pause(l, out);
}

bool rdv_lane_paused(const struct rdv_lane *l)
{
	return l->paused;
}

void rdv_lane_stop(struct rdv_lane *l)
{
	l->stopped = true;
}

void rdv_lane_move_to(struct rdv_lane *l, struct rdv_target *target, uint32_t target_route)
{
	l->target = target;
	l->target_route = target_route;
	l->stopped = false;
}

enum redrive_status rdv_lane_adopted_by(struct rdv_lane *l, const char *route, bool start_before_call)
{
	char *name = copy_text(route);

	if (!name)
		return REDRIVE_NO_MEMORY;
	free(l->route);
	l->route = name;
	l->start_before_call = start_before_call;
	return REDRIVE_OK;
}

void rdv_lane_granted_by(struct rdv_lane *l, struct rdv_target *target, uint32_t target_route)
{
	l->granted = target;
	l->granted_route = target_route;
}

void rdv_lane_close(struct rdv_lane *l, struct rdv_effects *out)
{
	size_t at;

	rdv_lane_flush(l, out);
	at = rdv_lane_begin_record(out);
	rdv_close_encode(&out->arena);
	rdv_lane_end_record(l, RDV_RECORD_CLOSE, 0, at, out);
	l->stopped = true;
}
