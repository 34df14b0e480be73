/* test_inlet_random.c - random worlds of routes that read from a broker: two processes, three partitions.
 *
 * Partitions are assigned, folded in pieces, given up in time or too late, lost; batches are written late, refused, or
 * of unknown fate; processes are killed, restarted with their directory or without, reloaded; routes are paused and
 * messages revoked meanwhile. In the end every message has been acknowledged or has exactly one letter, the accounts
 * say so, and no key was ever permuted. SEED=n begins with that world, WORLDS=n says how many; both are printed. */
#include "world_broker.h"

static bool handle(void *ctx, struct rdv_call *call)
{
	struct wb *wb = ctx;
	struct wb_part *p = &wb->parts[call->partition];
	enum rdv_verdict_kind verdict = RDV_ACK;
	struct wb_message *m;
	char kind;

	pthread_mutex_lock(&wb->mutex);
	m = wb_find(p, call->offset);
	m->calls++;
	kind = m->kind;
	for (size_t i = 0; wb->by_key && m->key >= 0 && p->messages[i].offset < m->offset; i++)
		if (p->messages[i].key == m->key) /* an earlier one of its key has ended, as its handler saw it */
			HOLDS(p->messages[i].ended || p->messages[i].revoke_asked);
	pthread_mutex_unlock(&wb->mutex);
	if (kind == 's')
		usleep(15000);
	if (kind == 'r')
		verdict = RDV_REJECT;
	else if (kind == 'd')
		verdict = RDV_DROP;
	else if (kind == 'f' && call->attempt <= m->fails)
		verdict = RDV_RETRY;
	pthread_mutex_lock(&wb->mutex);
	m->acked |= verdict == RDV_ACK || verdict == RDV_DROP;
	m->ended |= verdict != RDV_RETRY || call->attempt >= ATTEMPTS;
	pthread_mutex_unlock(&wb->mutex);
	call->answer.transport = RDV_TRANSPORT_ANSWER;
	call->answer.explicit_verdict = true;
	call->answer.verdict = verdict;
	return true;
}

static uint64_t draw(struct wb *wb, uint64_t below)
{
	return rdv_random_below(&wb->random, below);
}

/* ---- processes ---- */

static struct rdv_route_options options_of(struct wb_proc *p, bool moved)
{
	struct rdv_route_options o = route_options("r", "orders", NULL);

	o.callback = (struct rdv_callback_options){handle, p->wb, 3, 30000};
	o.source = &p->maker;
	o.target = moved ? "other" : "one";
	o.lane.order = p->wb->by_key ? RDV_ORDER_KEY : RDV_ORDER_NONE;
	o.lane.retry.attempts = ATTEMPTS;
	o.lane.retry.crashes = UINT32_MAX;
	o.lane.retry.base_ms = 5;
	o.target_policy.concurrency = 4;
	if (p->number == 0)
		o.lane.dedupe = (struct rdv_dedupe_policy){.by = RDV_DEDUPE_ID, .ttl_ms = 3600000, .entries = 1000};
	return o;
}

static void start_proc(struct wb_proc *p)
{
	struct rdv_engine_options eo;
	struct rdv_route_options o = options_of(p, false);

	if (!p->dir)
		p->dir = new_dir();
	eo = engine_options(p->dir);
	eo.drain_ms = 2000;
	p->dead = false;
	p->engine = start_engine(&eo, &o, 1);
}

static void join(struct wb_proc *p);

static void stop_proc(struct wb_proc *p, bool killed, bool forgets)
{
	join(p);
	if (killed) {
		bool written = draw(p->wb, 2);

		pthread_mutex_lock(&p->wb->mutex);
		p->dead = true;
		if (p->pending && written)
			(void)!wb_apply(p->wb, p->pending);
		pthread_mutex_unlock(&p->wb->mutex);
		for (struct rdv_source_lane *l = p->wb->lanes; l; l = l->next)
			if (l->proc == p->number && l->lane)
				wb_disown(l);
	}
	rdv_engine_free(p->engine);
	p->engine = NULL;
	p->pending = NULL;
	for (struct rdv_source_lane *l = p->wb->lanes; l; l = l->next)
		if (l->proc == p->number)
			l->lane = NULL;
	if (!forgets)
		return;
	remove_dir(p->dir);
	p->dir = NULL;
}

/* ---- commands ---- */

static void *ask(void *arg)
{
	struct wb_proc *p = arg;
	struct wb_message *m = &p->wb->parts[p->part].messages[p->message];
	struct rdv_revocation r = {0};
	struct rdv_error error = {0};
	char id[64];

	if (p->command < 2) {
		(void)!rdv_engine_pause(p->engine, "r", p->command);
	} else {
		snprintf(id, sizeof id, "orders-%u-%llu", p->part, (unsigned long long)m->offset);
		if (rdv_engine_revoke(p->engine, rdv_slice_text(id), "r", rdv_slice(NULL, 0), &r, &error) ==
			    REDRIVE_OK &&
		    r.count == 1 && r.routes[0].revoked && !r.routes[0].open) {
			pthread_mutex_lock(&p->wb->mutex);
			m->revoked_surely = true;
			pthread_mutex_unlock(&p->wb->mutex);
		}
		rdv_revocation_done(&r);
	}
	atomic_store(&p->answered, true);
	return NULL;
}

static void join(struct wb_proc *p)
{
	while (p->asking && !atomic_load(&p->answered)) {
		wb_settle(p, 0);
		usleep(200);
	}
	if (p->asking)
		pthread_join(p->thread, NULL);
	p->asking = false;
}

static void command(struct wb_proc *p, int what)
{
	struct wb_part *part;

	if (p->asking && !atomic_load(&p->answered))
		return;
	join(p);
	p->part = (unsigned)draw(p->wb, PARTS);
	part = &p->wb->parts[p->part];
	if (what == 2 && !part->count)
		return;
	if (what == 2) {
		p->message = (size_t)draw(p->wb, part->count);
		pthread_mutex_lock(&p->wb->mutex);
		part->messages[p->message].revoke_asked = true;
		pthread_mutex_unlock(&p->wb->mutex);
	}
	p->command = what;
	atomic_store(&p->answered, false);
	p->asking = pthread_create(&p->thread, NULL, ask, p) == 0;
}

static void reload(struct wb_proc *p)
{
	struct rdv_route_options o = options_of(p, draw(p->wb, 2));
	struct rdv_error error = {0};

	HOLDS(rdv_engine_reload(p->engine, NULL, &o, 1, &error) == REDRIVE_OK);
}

/* ---- steps ---- */

static void produce(struct wb *wb)
{
	static const char kinds[] = "aaaaaaaaffffrsd";
	struct wb_part *p = &wb->parts[draw(wb, PARTS)];

	pthread_mutex_lock(&wb->mutex);
	for (uint64_t n = 1 + draw(wb, 6); n && p->count < MESSAGES; n--) {
		struct wb_message *m = &p->messages[p->count];
		uint64_t step = draw(wb, 5) ? 1 : 1 + draw(wb, 200);

		*m = (struct wb_message){
			.offset = p->count ? p->messages[p->count - 1].offset + step : step - 1,
			.key = (int)draw(wb, KEYS + 2),
			.kind = kinds[draw(wb, sizeof kinds - 1)],
			.fails = 1 + (unsigned)draw(wb, ATTEMPTS),
		};
		if (m->key >= KEYS)
			m->key = -1;
		p->count++;
	}
	pthread_mutex_unlock(&wb->mutex);
}

static void move_lanes(struct wb *wb, bool calm)
{
	for (unsigned i = 0; i < PARTS; i++) {
		struct rdv_source_lane *l = wb->parts[i].owner;

		if (!l)
			wb_assign(wb, i, (unsigned)draw(wb, PROCS));
		else if (l->stage == LANE_FOLDING)
			wb_fold(l, calm ? VALUES : 1 + (unsigned)draw(wb, 20));
		else
			wb_give(l, 1 + (size_t)draw(wb, 20));
	}
}

static void trouble(struct wb *wb)
{
	struct rdv_source_lane *l = wb->parts[draw(wb, PARTS)].owner;
	struct wb_proc *p = &wb->procs[draw(wb, PROCS)];
	uint64_t what = draw(wb, 100);

	if (what < 12 && l)
		wb_revoke(l, draw(wb, 2) ? (int64_t)draw(wb, 5) : 1000);
	else if (what < 20 && l && l->stage != LANE_LEFT)
		wb_lose(l);
	else if (what < 23)
		wb_settle(p, 1 + (int)draw(wb, 2));
	else if (what < 25) {
		stop_proc(p, draw(wb, 3) != 0, draw(wb, 2));
		start_proc(p);
	} else if (what < 32)
		command(p, what < 28);
	else if (what < 40)
		command(p, 2);
	else if (what < 44)
		reload(p);
}

static bool is_over(struct wb *wb)
{
	struct rdv_account sum = {0};
	uint64_t messages = 0;

	for (unsigned i = 0; i < PARTS; i++) {
		const struct wb_part *p = &wb->parts[i];

		messages += p->count;
		if (!p->owner || p->owner->stage != LANE_OPEN || p->owner->given < p->count ||
		    (p->count && p->position != p->messages[p->count - 1].offset + 1))
			return false;
	}
	for (unsigned i = 0; i < PROCS; i++) {
		struct rdv_route_status s = status_of(wb->procs[i].engine, "r");

		rdv_account_add(&sum, &s.account);
	}
	HOLDS(sum.received <= messages);
	return sum.acked + sum.dead + sum.dropped + sum.revoked == messages;
}

static bool is_to_die(const struct wb_message *m)
{
	return m->kind == 'r' || (m->kind == 'f' && m->fails >= ATTEMPTS);
}

static bool wb_has_letters(struct wb *wb)
{
	bool all = true;

	pthread_mutex_lock(&wb->mutex);
	for (unsigned i = 0; i < PARTS; i++)
		for (size_t k = 0; k < wb->parts[i].count; k++) {
			const struct wb_message *m = &wb->parts[i].messages[k];

			all = all && (m->letters == 1 || m->acked);
		}
	pthread_mutex_unlock(&wb->mutex);
	return all;
}

static void look_at_ends(struct wb *wb)
{
	for (unsigned i = 0; i < PARTS; i++)
		for (size_t k = 0; k < wb->parts[i].count; k++) {
			const struct wb_message *m = &wb->parts[i].messages[k];

			HOLDS(m->letters <= 1);
			HOLDS(m->letters == 1 || (m->acked && !m->revoked_surely));
			if (!m->revoke_asked)
				HOLDS((m->letters == 1) == is_to_die(m) && m->acked == !is_to_die(m));
		}
}

static void calm_down(struct wb *wb)
{
	int64_t until = rdv_mono_now().ms + 60000;
	bool over = false;

	for (unsigned i = 0; i < PROCS; i++) {
		join(&wb->procs[i]);
		command(&wb->procs[i], 0);
		join(&wb->procs[i]);
	}
	while (!over && rdv_mono_now().ms < until) {
		for (unsigned i = 0; i < PROCS; i++)
			wb_settle(&wb->procs[i], 0);
		wb_reap(wb);
		move_lanes(wb, true);
		for (unsigned i = 0; i < PROCS; i++) /* a lane that comes now may have been paused by its last owner */
			if (!wb->procs[i].asking)
				command(&wb->procs[i], 0);
			else if (atomic_load(&wb->procs[i].answered))
				join(&wb->procs[i]);
		usleep(2000);
		over = is_over(wb) && wb_has_letters(wb);
	}
	if (!over)
		for (unsigned i = 0; i < PARTS; i++) {
			struct wb_part *p = &wb->parts[i];
			fprintf(stderr, "part %u pos %llu of %llu owner %p stage %d given %zu of %zu\n", i,
				(unsigned long long)p->position,
				(unsigned long long)(p->count ? p->messages[p->count - 1].offset + 1 : 0),
				(void *)p->owner, p->owner ? (int)p->owner->stage : -1, p->owner ? p->owner->given : 0,
				p->count);
			for (size_t k = 0; k < p->count; k++)
				if (!p->messages[k].acked && !p->messages[k].letters)
					fprintf(stderr, "  %llu %c fails %u key %d calls %u ended %d\n",
						(unsigned long long)p->messages[k].offset, p->messages[k].kind,
						p->messages[k].fails, p->messages[k].key, p->messages[k].calls,
						p->messages[k].ended);
		}
	HOLDS(over);
	look_at_ends(wb);
}

static struct wb *new_world(uint64_t seed)
{
	struct wb *wb = calloc(1, sizeof *wb);

	pthread_mutex_init(&wb->mutex, NULL);
	rdv_random_seed(&wb->random, seed);
	wb->by_key = draw(wb, 2);
	for (unsigned i = 0; i < PROCS; i++) {
		wb->procs[i].wb = wb;
		wb->procs[i].number = i;
		wb->procs[i].maker.make = wb_make;
		start_proc(&wb->procs[i]);
	}
	return wb;
}

static void free_world(struct wb *wb)
{
	for (unsigned i = 0; i < PROCS; i++)
		stop_proc(&wb->procs[i], false, true);
	while (wb->lanes) {
		struct rdv_source_lane *next = wb->lanes->next;

		free(wb->lanes);
		wb->lanes = next;
	}
	for (unsigned i = 0; i < PARTS; i++)
		for (int64_t k = wb->parts[i].forgotten; k < wb->parts[i].count_values; k++)
			rdv_buffer_done(&wb->parts[i].values[k]);
	pthread_mutex_destroy(&wb->mutex);
	free(wb);
}

static void run_world(uint64_t seed)
{
	struct wb *wb = new_world(seed);

	for (int i = 0; i < 250; i++) {
		if (draw(wb, 3) == 0)
			produce(wb);
		for (unsigned k = 0; k < PROCS; k++)
			if (draw(wb, 3))
				wb_settle(&wb->procs[k], 0);
		if (draw(wb, 6) == 0)
			trouble(wb);
		wb_reap(wb);
		move_lanes(wb, false);
		usleep((useconds_t)draw(wb, 6000));
	}
	calm_down(wb);
	free_world(wb);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORLDS 4
#else
#define WORLDS 10
#endif

static void every_message_ends_once_whatever_becomes_of_its_lanes(void **state)
{
	uint64_t seed = number_of("SEED", (uint64_t)time(NULL) % 1000000), worlds = number_of("WORLDS", WORLDS);

	(void)state;
	for (uint64_t i = 0; i < worlds; i++) {
		fprintf(stderr, "SEED=%llu\n", (unsigned long long)(seed + i));
		run_world(seed + i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_ends_once_whatever_becomes_of_its_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
