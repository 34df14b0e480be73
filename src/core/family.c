/* family.c - sixteen slots, each a ring of (message, time).
 *
 * The slot not hit for longest gives way, so a burst stays however many other fingerprints pass by, as long as
 * fewer than sixteen do between two of its hits. What always holds: a ring holds distinct messages. */
#include "family.h"
#include <stdlib.h>

#define SLOTS 16
#define RING_MAX 256

struct hit {
	uint64_t message;
	int64_t at;
};

struct slot {
	uint64_t fingerprint; /* 0 = free */
	int64_t last;         /* mono ms */
	uint32_t used, next;
	bool family;
};

struct rdv_families {
	uint32_t size, every; /* ring's length; one of `every` messages is kept */
	struct slot slots[SLOTS];
	struct hit hits[]; /* SLOTS rings of `size` */
};

static struct rdv_families *families_new(uint32_t count)
{
	uint32_t every = (count + RING_MAX - 1) / RING_MAX, size = (count + every - 1) / every;
	struct rdv_families *f = calloc(1, sizeof *f + sizeof f->hits[0] * SLOTS * size);

	if (f != NULL) {
		f->size = size;
		f->every = every;
	}
	return f;
}

void rdv_families_free(struct rdv_families *f)
{
	free(f);
}

static struct slot *find_slot(struct rdv_families *f, uint64_t fingerprint)
{
	struct slot *oldest = &f->slots[0];

	for (int i = 0; i < SLOTS; i++) {
		if (f->slots[i].fingerprint == fingerprint)
			return &f->slots[i];
		if (f->slots[i].fingerprint == 0 || (oldest->fingerprint != 0 && f->slots[i].last < oldest->last))
			oldest = &f->slots[i];
	}
	*oldest = (struct slot){.fingerprint = fingerprint};
	return oldest;
}

static bool kept(const struct rdv_families *f, uint64_t message)
{
	return f->every == 1 || (message * 0x9E3779B97F4A7C15u >> 32) % f->every == 0;
}

/* Adds a message to the slot's ring. It counts once, at its first failure within the time; an older one of it is struck
 * out in its place, which keeps the ring in the order of time. */
static void add_hit(struct rdv_families *f, struct slot *s, const struct hit *hit, int64_t within_ms)
{
	struct hit *ring = &f->hits[(size_t)(s - f->slots) * f->size];

	for (uint32_t i = 0; i < s->used; i++) {
		if (ring[i].message != hit->message)
			continue;
		if (hit->at - ring[i].at <= within_ms)
			return;
		ring[i].message = 0;
	}
	ring[s->next] = *hit;
	s->next = s->next + 1 == f->size ? 0 : s->next + 1;
	s->used += s->used < f->size;
}

static bool is_dense(const struct rdv_families *f, const struct slot *s, int64_t now_ms, int64_t within_ms)
{
	const struct hit *ring = &f->hits[(size_t)(s - f->slots) * f->size];

	return s->used == f->size && now_ms - ring[s->next].at <= within_ms; /* next = the oldest, once full */
}

struct rdv_family_answer rdv_family_see(struct rdv_families **f, const struct rdv_family *policy, int64_t now_ms,
					uint64_t fingerprint, uint64_t message)
{
	struct rdv_family_answer answer = {false, false};
	struct slot *s;

	if (policy->count == 0 || fingerprint == 0)
		return answer;
	if (*f == NULL)
		*f = families_new(policy->count);
	if (*f == NULL)
		return answer;
	s = find_slot(*f, fingerprint);
	if (s->family && now_ms - s->last > policy->within_ms)
		*s = (struct slot){.fingerprint = fingerprint};
	s->last = now_ms;
	if (!s->family) {
		if (kept(*f, message))
			add_hit(*f, s, &(struct hit){message, now_ms}, policy->within_ms);
		answer.began = s->family = is_dense(*f, s, now_ms, policy->within_ms);
	}
	answer.member = s->family;
	return answer;
}
