/* fake_runtime.h - lanes as the desk sees them: a durable inbox of requests that outlives the desk.
 *
 * A request is open until it has an outcome, then finished until the desk confirms it, then forgotten. Giving a letter
 * that has a request, open or finished, is CONFLICT. Two requests of one letter at once, or an outcome that is
 * confirmed without being asked for, end the test. `decide` says what becomes of a request, from a thread of its own
 * when `automatic`. */
#ifndef RDV_TESTS_DESK_FAKE_RUNTIME_H
#define RDV_TESTS_DESK_FAKE_RUNTIME_H
#include "fixture.h"
#include "base/random.h"

struct fake_request {
	uint64_t number, plan;
	uint8_t letter[16];
	char route[101], topic[201];
	uint32_t partition;
	uint64_t offset;
	bool open, used;
	enum rdv_state outcome;
};

struct fake {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct rdv_desk *desk; /* NULL while there is none */
	struct fake_request *requests;
	size_t count, capacity, open;
	uint32_t *table;                    /* number of the request by letter; 0 = none */
	size_t cursor;                      /* of the handler thread */
	_Atomic uint64_t sends, deliveries; /* requests taken; outcomes after a delivery */
	uint8_t *sent_of;                   /* by offset: how often this message was given to a handler */
	size_t offsets;
	bool automatic, stopping, paused, gone, full;
	_Atomic unsigned pauses, resumes, cancels;
	struct rdv_random random;
	enum rdv_state always; /* the outcome; READY = random */
	pthread_t thread;
	int64_t *sent_us; /* when each send came, if not NULL */
	size_t sent_us_max;
	uint64_t order[4096]; /* offsets as they came */
	size_t order_count;
	struct rdv_desk_runtime runtime;
};

#define FAKE_TABLE (1u << 19)

/* The letter's slot: its last request, or where that would go. */
static inline uint32_t *fake_slot(struct fake *k, const uint8_t letter[16])
{
	uint32_t i = rdv_get_u32(letter) % FAKE_TABLE;
	while (k->table[i] && memcmp(k->requests[k->table[i] - 1].letter, letter, 16) != 0)
		i = (i + 1) % FAKE_TABLE;
	return &k->table[i];
}
static inline bool fake_has(struct fake *k, const uint8_t letter[16])
{
	uint32_t number = *fake_slot(k, letter);
	return number && k->requests[number - 1].used;
}

static inline enum redrive_status fake_replay(void *ctx, const struct rdv_replay_send *send)
{
	struct fake *k = ctx;
	pthread_mutex_lock(&k->mutex);
	enum redrive_status status = k->gone ? REDRIVE_NOT_FOUND : k->full ? REDRIVE_FULL : REDRIVE_OK;
	if (status == REDRIVE_OK && fake_has(k, send->letter))
		status = REDRIVE_CONFLICT;
	if (status == REDRIVE_OK) {
		if (k->count == k->capacity) {
			k->capacity = k->capacity ? k->capacity * 2 : 1024;
			k->requests = realloc(k->requests, k->capacity * sizeof *k->requests);
		}
		struct fake_request *q = &k->requests[k->count++];
		*q = (struct fake_request){.number = k->count,
					   .plan = send->plan,
					   .partition = send->partition,
					   .offset = send->offset,
					   .open = true,
					   .used = true};
		*fake_slot(k, send->letter) = (uint32_t)k->count;
		memcpy(q->letter, send->letter, 16);
		snprintf(q->route, sizeof q->route, "%s", send->route);
		snprintf(q->topic, sizeof q->topic, "%s", send->topic);
		if (k->sent_us && k->sends < k->sent_us_max)
			k->sent_us[k->sends] = rdv_mono_now_us();
		if (k->order_count < 4096)
			k->order[k->order_count++] = send->offset;
		k->sends++;
		k->open++;
		pthread_cond_broadcast(&k->changed);
	}
	pthread_mutex_unlock(&k->mutex);
	return status;
}

/* With the mutex; released while the desk is called. */
static inline void fake_end(struct fake *k, struct fake_request *q, enum rdv_state outcome)
{
	struct fake_request copy;
	q->open = false;
	q->outcome = outcome;
	k->open--;
	if (outcome == RDV_STATE_ACKED || outcome == RDV_STATE_DEAD) {
		k->deliveries++;
		if (k->sent_of && q->offset < k->offsets)
			k->sent_of[q->offset]++;
	}
	copy = *q;
	struct rdv_desk *desk = k->desk;
	if (desk)
		rdv_desk_outcome(desk, copy.plan, copy.letter, outcome, 1, copy.route, copy.topic, copy.partition,
				 copy.number);
}

static inline enum redrive_status fake_pause(void *ctx, uint64_t plan, bool paused)
{
	struct fake *k = ctx;
	pthread_mutex_lock(&k->mutex);
	k->paused = paused;
	k->pauses += paused;
	k->resumes += !paused;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mutex);
	return REDRIVE_OK;
}
static inline enum redrive_status fake_cancel(void *ctx, uint64_t plan)
{
	struct fake *k = ctx;
	pthread_mutex_lock(&k->mutex);
	k->cancels++;
	for (size_t i = 0; i < k->count; i++)
		if (k->requests[i].used && k->requests[i].open && k->requests[i].plan == plan)
			fake_end(k, &k->requests[i], RDV_STATE_READY);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mutex);
	return REDRIVE_OK;
}
static inline void fake_stored(void *ctx, const char *route, const char *topic, uint32_t partition, uint64_t request)
{
	struct fake *k = ctx;
	pthread_mutex_lock(&k->mutex);
	assert_true(request >= 1 && request <= k->count);
	assert_false(k->requests[request - 1].open);
	k->requests[request - 1].used = false;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mutex);
}
static inline enum redrive_status fake_health(void *ctx, const char *route, bool *up, bool *dedupe)
{
	struct fake *k = ctx;
	*up = true;
	*dedupe = true;
	return k->gone || strcmp(route, "gone") == 0 ? REDRIVE_NOT_FOUND : REDRIVE_OK;
}

static inline void *fake_handler(void *arg)
{
	struct fake *k = arg;
	pthread_mutex_lock(&k->mutex);
	while (!k->stopping) {
		size_t did = 0;
		while (k->cursor < k->count && !k->paused && !k->stopping) {
			struct fake_request *q = &k->requests[k->cursor++];
			if (!q->used || !q->open)
				continue;
			enum rdv_state outcome = k->always;
			if (outcome == RDV_STATE_READY)
				outcome = rdv_random_below(&k->random, 3) ? RDV_STATE_ACKED : RDV_STATE_DEAD;
			fake_end(k, q, outcome);
			if (++did % 64 == 0)
				break;
		}
		if (k->cursor == k->count || k->paused)
			pthread_cond_wait(&k->changed, &k->mutex);
	}
	pthread_mutex_unlock(&k->mutex);
	return NULL;
}

static inline void fake_init(struct fake *k)
{
	memset(k, 0, sizeof *k);
	pthread_mutex_init(&k->mutex, NULL);
	pthread_cond_init(&k->changed, NULL);
	rdv_random_seed(&k->random, 7);
	k->table = calloc(FAKE_TABLE, sizeof *k->table);
	k->runtime = (struct rdv_desk_runtime){k, fake_replay, fake_pause, fake_cancel, fake_stored, fake_health};
}
static inline void fake_start(struct fake *k)
{
	k->automatic = true;
	k->stopping = false;
	pthread_create(&k->thread, NULL, fake_handler, k);
}
static inline void fake_stop(struct fake *k)
{
	if (!k->automatic)
		return;
	pthread_mutex_lock(&k->mutex);
	k->stopping = true;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mutex);
	pthread_join(k->thread, NULL);
	k->automatic = false;
}
static inline void fake_done(struct fake *k)
{
	fake_stop(k);
	free(k->requests);
	free(k->table);
	pthread_mutex_destroy(&k->mutex);
	pthread_cond_destroy(&k->changed);
}
/* The desk is there again: what is finished and not confirmed is reported again, as after a restart. */
static inline void fake_attach(struct fake *k, struct rdv_desk *desk)
{
	pthread_mutex_lock(&k->mutex);
	k->desk = desk;
	for (size_t i = 0; desk && i < k->count; i++) {
		struct fake_request *q = &k->requests[i];
		if (q->used && !q->open)
			rdv_desk_outcome(desk, q->plan, q->letter, q->outcome, 1, q->route, q->topic, q->partition,
					 q->number);
	}
	pthread_mutex_unlock(&k->mutex);
}
static inline void fake_open(struct fake *k, struct fixture *f)
{
	struct rdv_error error = {{0}};
	if (rdv_desk_open(&f->options, &f->desk, &error) != REDRIVE_OK)
		fail_msg("open: %s", error.text);
	fake_attach(k, f->desk);
	assert_int_equal(rdv_desk_start(f->desk, &k->runtime, &error), REDRIVE_OK);
}
static inline void fake_close(struct fake *k, struct fixture *f)
{
	fake_attach(k, NULL);
	fixture_close(f);
}

/* Plans, in few words. */
static inline void fake_plan(struct fixture *f, const char *q, double rate, struct rdv_plan *out)
{
	struct rdv_error error = {{0}};
	struct rdv_plan_request r = {.q = q, .rate = rate, .author = "ann", .name = "test"};
	if (rdv_plan_create(f->desk, &r, out, &error) != REDRIVE_OK)
		fail_msg("plan: %s", error.text);
}
static inline void fake_act(struct fixture *f, struct rdv_plan *p, enum rdv_plan_verb verb)
{
	struct rdv_error error = {{0}};
	char id[64];
	memcpy(id, p->id, sizeof id);
	char digest[72];
	memcpy(digest, p->digest, sizeof digest);
	if (rdv_plan_act(f->desk, id, verb, digest, 0, "ann", p, &error) != REDRIVE_OK)
		fail_msg("verb %d: %s", verb, error.text);
}
static inline void fake_run(struct fixture *f, const char *q, double rate, struct rdv_plan *out)
{
	fake_plan(f, q, rate, out);
	fake_act(f, out, RDV_PLAN_APPROVE);
	fake_act(f, out, RDV_PLAN_START);
}
static inline void fake_check_sum(const struct rdv_plan *p)
{
	assert_int_equal(p->selected, p->acked + p->dead_again + p->skipped + p->unknown + p->not_reached);
}
/* Until the plan has reached a state, looking every few ms; the sum holds at every look. */
static inline void fake_wait(struct fixture *f, struct rdv_plan *p, enum rdv_plan_state state, int64_t most_ms)
{
	int64_t until = rdv_mono_now().ms + most_ms;
	char id[64];
	memcpy(id, p->id, sizeof id);
	for (;;) {
		assert_int_equal(rdv_plan_get(f->desk, id, p), REDRIVE_OK);
		fake_check_sum(p);
		if (p->state == state)
			return;
		if (rdv_mono_now().ms > until)
			fail_msg("plan %s is %s: acked %llu dead %llu skipped %llu unknown %llu not reached %llu", id,
				 rdv_plan_state_name(p->state), (unsigned long long)p->acked,
				 (unsigned long long)p->dead_again, (unsigned long long)p->skipped,
				 (unsigned long long)p->unknown, (unsigned long long)p->not_reached);
		usleep(5000);
	}
}
#endif
