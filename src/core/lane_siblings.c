/* lane_siblings.c - lanes of one route and partition, its own and those that it has adopted, as one order.
 *
 * Siblings are a ring. Each keeps its own messages, keys and records; who of a key goes next is decided over all of
 * them, by what the siblings' keys say at that moment:
 *
 *   in flight, or an end that is not durable, in any of them ──▶ nothing of the key goes        (G1, G4)
 *   else the smallest position of all, the older lane's first when two have the same            (G2)
 *   a gate that is closed in any of them is closed for all                                      (G3)
 *
 * Nothing of this is recorded: the ring follows from the lanes' routes, and the rest from what each lane recovers;
 * while one of them is not open yet, nothing goes. Whatever may let a key go on in one lane promotes it in all of them.
 * A lane without siblings pays for one comparison. Internal to the lane; single thread. */
#include "lane_parts.h"
#include <assert.h>

/* The sibling's key of that hash, if it has one. */
static const struct rdv_key *key_in(const struct rdv_lane *l, uint64_t hash)
{
	uint32_t key = rdv_order_find(&l->order, hash);

	return key ? rdv_order_key(&l->order, key) : NULL;
}

static bool is_busy(const struct rdv_lane *l, const struct rdv_key *k)
{
	return k->blocked || (k->turn && rdv_lane_entry(l, k->turn)->state == RDV_STATE_IN_FLIGHT);
}

bool rdv_lane_gate_closed(const struct rdv_lane *l, const struct rdv_key *k)
{
	bool closed = k->closed;

	for (const struct rdv_lane *s = l->sibling; s && s != l && !closed; s = s->sibling) {
		const struct rdv_key *other = key_in(s, k->hash);
		closed = other && other->closed;
	}
	return closed;
}

/* Does `a` in lane x go before `b` in lane y? */
static bool precedes(const struct rdv_lane *x, uint32_t a, const struct rdv_lane *y, uint32_t b)
{
	uint64_t first = rdv_lane_entry(x, a)->seq, second = rdv_lane_entry(y, b)->seq;

	return first != second ? first < second : x->stream < y->stream;
}

bool rdv_lane_siblings_let(const struct rdv_lane *l, const struct rdv_key *k, uint32_t ref)
{
	for (const struct rdv_lane *s = l->sibling; s != l; s = s->sibling) {
		const struct rdv_key *other = s->folding ? NULL : key_in(s, k->hash);
		uint32_t next;

		if (s->folding || (other && is_busy(s, other)))
			return false;
		next = other ? rdv_lane_next_of_key(s, other) : 0;
		if (next && precedes(s, next, l, ref))
			return false;
	}
	return true;
}

void rdv_lane_promote_siblings(struct rdv_lane *l, uint64_t hash, struct rdv_now now, struct rdv_effects *out)
{
	for (struct rdv_lane *s = l->sibling; s != l; s = s->sibling) {
		uint32_t key = s->folding ? 0 : rdv_order_find(&s->order, hash);

		if (!key)
			continue;
		rdv_lane_promote_here(s, key, now, out);
		s->stirred = true;
	}
}

static bool all_open(const struct rdv_lane *l)
{
	for (const struct rdv_lane *s = l->sibling; s && s != l; s = s->sibling)
		if (s->folding)
			return false;
	return !l->folding;
}

void rdv_lane_promote_all(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_lane *s = l;

	if (!all_open(l))
		return;
	do {
		for (uint32_t key = 0; (key = rdv_order_each(&s->order, key)) != 0;)
			rdv_lane_promote(s, key, now, out);
		s->stirred = true;
		s = s->sibling;
	} while (s && s != l);
}

bool rdv_lane_add_sibling(struct rdv_lane *l, struct rdv_lane *to, struct rdv_now now, struct rdv_effects *out)
{
	assert(!l->sibling && l != to);
	if (l->policy.order != RDV_ORDER_KEY || to->policy.order != RDV_ORDER_KEY)
		return false;
	l->sibling = to->sibling ? to->sibling : to;
	to->sibling = l;
	rdv_lane_promote_all(l, now, out);
	return true;
}

struct rdv_lane *rdv_lane_unlink_sibling(struct rdv_lane *l)
{
	struct rdv_lane *before = l->sibling;

	if (!before)
		return NULL;
	while (before->sibling != l)
		before = before->sibling;
	before->sibling = l->sibling == before ? NULL : l->sibling;
	l->sibling = NULL;
	return before;
}

void rdv_lane_leave_siblings(struct rdv_lane *l, struct rdv_now now, struct rdv_effects *out)
{
	struct rdv_lane *others = rdv_lane_unlink_sibling(l);

	if (!others)
		return;
	rdv_lane_promote_all(l, now, out);
	rdv_lane_promote_all(others, now, out);
}

/* A turn is one lane's alone. (An end that is not durable yet may come in beside a call: with a lane that is adopted.)
 */
bool rdv_lane_check_siblings(const struct rdv_lane *l, const struct rdv_key *k)
{
	for (const struct rdv_lane *s = l->sibling; s && s != l; s = s->sibling) {
		const struct rdv_key *other = key_in(s, k->hash);
		if (other && k->turn && other->turn)
			return false;
	}
	return true;
}
