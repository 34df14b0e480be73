/* bodies.c - durable log buffers that are kept for a while, because most messages are delivered at once.
 *
 * A message's first attempt finds its body here, in the very bytes that went to disk. At most RDV_RECENT_MAX buffers
 * are kept; a new one takes the place of the one that was added first and that no open call pins.
 * When all are pinned by slow calls, the new buffer is walked but not kept, and its bodies are read from the log later.
 * Core thread. */
#include "room.h"

static struct rdv_recent *place_for(struct rdv_engine *e)
{
	struct rdv_recent *oldest = NULL;

	for (int i = 0; i < RDV_RECENT_MAX; i++) {
		struct rdv_recent *r = &e->recent[i];

		if (!r->buffer)
			return r;
		if (!r->pins && (!oldest || r->used_at < oldest->used_at))
			oldest = r;
	}
	if (oldest)
		rdv_log_buffer_unref(oldest->buffer);
	return oldest;
}

struct rdv_recent *rdv_recent_add(struct rdv_engine *e, struct rdv_log_buffer *buffer)
{
	struct rdv_recent *r = place_for(e);

	if (!r)
		return NULL;
	*r = (struct rdv_recent){.buffer = buffer, .used_at = ++e->recent_use};
	return r;
}

struct rdv_slice rdv_recent_find(struct rdv_engine *e, const struct rdv_place *place, struct rdv_recent **out)
{
	struct rdv_position at = {place->segment, place->offset};
	struct rdv_slice found;

	if (e->last_hit && e->last_hit->buffer) {
		found = rdv_log_buffer_find(e->last_hit->buffer, at);
		if (found.data) {
			*out = e->last_hit;
			return found;
		}
	}
	for (int i = 0; i < RDV_RECENT_MAX; i++) {
		struct rdv_recent *r = &e->recent[i];

		if (!r->buffer || r == e->last_hit)
			continue;
		found = rdv_log_buffer_find(r->buffer, at);
		if (found.data) {
			*out = e->last_hit = r;
			return found;
		}
	}
	return rdv_slice(NULL, 0);
}

void rdv_recent_drop_all(struct rdv_engine *e)
{
	for (int i = 0; i < RDV_RECENT_MAX; i++) {
		rdv_log_buffer_unref(e->recent[i].buffer);
		e->recent[i] = (struct rdv_recent){0};
	}
	e->last_hit = NULL;
}
