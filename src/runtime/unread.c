/* unread.c - messages whose bodies cannot be read now.
 *
 * Want of memory or descriptors passes: the message is asked for again after a while, for ever. A device that fails to
 * give the bytes may recover, too; but when it has failed one message over a quarter of an hour, that message ends as
 * damaged: a letter with its coordinates and no body, as for a wrong checksum. Each time the wait doubles, up to a
 * minute; nobody is charged, and people are told. A few messages are remembered, until they are read or have ended
 * otherwise (revoked, discarded); more than that wait the longest time, until there is room. Core thread. */
#include "room.h"

#define LONGEST_WAIT 60 /* times the first one */
#define TRIES_MAX 20u   /* 1 s doubling to 1 min: some 15 minutes */
#define SAY_EVERY_MS 10000
#define REVIEW_MS 1000

static struct rdv_unread *find(struct rdv_engine *e, const struct rdv_flight *f)
{
	for (size_t i = 0; i < e->unread_count; i++)
		if (e->unread[i].strand == f->strand && e->unread[i].offset == f->call.offset)
			return &e->unread[i];
	return NULL;
}

static void say(struct rdv_engine *e, const struct rdv_flight *f)
{
	atomic_fetch_add(&e->unread_total, 1);
	if (e->unread_said_ms && e->now.mono.ms - e->unread_said_ms < SAY_EVERY_MS)
		return;
	e->unread_said_ms = e->now.mono.ms;
	rdv_engine_say(e, 1, "route %s: message %s-%u-%llu could not be read: it is tried again", f->info->name,
		       f->info->topic, f->call.partition, (unsigned long long)f->call.offset);
}

int64_t rdv_unread_wait(struct rdv_engine *e, const struct rdv_flight *f, bool device)
{
	struct rdv_unread *u = find(e, f);
	int64_t wait = e->options.unread_wait_ms, longest = LONGEST_WAIT * wait;

	say(e, f);
	if (!u && e->unread_count == RDV_UNREAD_MAX)
		return longest;
	if (!u) {
		u = &e->unread[e->unread_count++];
		*u = (struct rdv_unread){.strand = f->strand, .offset = f->call.offset};
	}
	atomic_store(&e->unread_now, (unsigned)e->unread_count);
	u->tries += device;
	u->waits++;
	if (u->tries >= TRIES_MAX) {
		rdv_engine_say(e, 0, "route %s: message %s-%u-%llu cannot be read: it ends as damaged", f->info->name,
			       f->info->topic, f->call.partition, (unsigned long long)f->call.offset);
		rdv_unread_forget(e, f);
		return -1;
	}
	for (unsigned i = 1; i < u->waits && wait < longest; i++)
		wait *= 2;
	return wait < longest ? wait : longest;
}

static void forget(struct rdv_engine *e, struct rdv_unread *u)
{
	*u = e->unread[--e->unread_count];
	atomic_store(&e->unread_now, (unsigned)e->unread_count);
}

void rdv_unread_forget(struct rdv_engine *e, const struct rdv_flight *f)
{
	struct rdv_unread *u = find(e, f);

	if (u)
		forget(e, u);
}

void rdv_unread_drop(struct rdv_engine *e, const struct rdv_strand *s)
{
	for (size_t i = e->unread_count; i-- > 0;)
		if (e->unread[i].strand == s)
			forget(e, &e->unread[i]);
}

static bool is_live(struct rdv_engine *e, const struct rdv_unread *u)
{
	static const bool live[RDV_STATE_COUNT] = {
		[RDV_STATE_READY] = true, [RDV_STATE_IN_FLIGHT] = true, [RDV_STATE_WAITING] = true,
		[RDV_STATE_HELD] = true,  [RDV_STATE_REPLAYING] = true,
	};
	struct rdv_where where;

	return u->strand->lane && rdv_lane_where(u->strand->lane, e->now, u->offset, &where) == REDRIVE_OK &&
	       live[where.state];
}

void rdv_unread_review(struct rdv_engine *e)
{
	if (!e->unread_count || e->now.mono.ms < e->unread_review_ms)
		return;
	e->unread_review_ms = e->now.mono.ms + REVIEW_MS;
	for (size_t i = e->unread_count; i-- > 0;)
		if (!is_live(e, &e->unread[i]))
			forget(e, &e->unread[i]);
}
