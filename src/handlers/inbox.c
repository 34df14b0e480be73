/* inbox.c - see inbox.h. The mutex is held for a few instructions, and while the thread is woken. */
#include "inbox.h"

void rdv_inboxes_init(struct rdv_inboxes *in, void (*wake)(void *ctx), void *ctx)
{
	*in = (struct rdv_inboxes){.wake = wake, .ctx = ctx};
	pthread_mutex_init(&in->mutex, NULL);
}

void rdv_inboxes_done(struct rdv_inboxes *in)
{
	pthread_mutex_destroy(&in->mutex);
}

void rdv_inboxes_stop(struct rdv_inboxes *in)
{
	pthread_mutex_lock(&in->mutex);
	in->stopping = true;
	in->wake(in->ctx);
	pthread_mutex_unlock(&in->mutex);
}

static void take(struct rdv_served *s)
{
	s->taken = s->inbox;
	s->taken_end = s->inbox ? s->inbox_end : &s->taken;
	s->inbox = NULL;
	s->inbox_end = &s->inbox;
	s->cut = s->cut_wanted;
	s->freed = s->free_wanted;
	s->listed = false;
	s->next_taken = s->next_dirty;
}

struct rdv_served *rdv_inboxes_take(struct rdv_inboxes *in, bool *stopping)
{
	struct rdv_served *list;

	pthread_mutex_lock(&in->mutex);
	list = in->dirty;
	in->dirty = NULL;
	*stopping = in->stopping;
	for (struct rdv_served *s = list; s; s = s->next_taken)
		take(s);
	pthread_mutex_unlock(&in->mutex);
	return list;
}

void rdv_served_init(struct rdv_served *s, struct rdv_inboxes *in, const struct rdv_handler_ops *ops,
		     struct rdv_sink sink)
{
	s->base = (struct rdv_handler){ops, sink};
	s->inboxes = in;
	s->inbox_end = &s->inbox;
	s->taken_end = &s->taken;
}

/* Under the mutex. */
static void touch(struct rdv_served *s)
{
	struct rdv_inboxes *in = s->inboxes;

	if (!s->listed) {
		s->listed = true;
		s->next_dirty = in->dirty;
		in->dirty = s;
	}
	in->wake(in->ctx);
}

void rdv_served_submit(struct rdv_handler *base, struct rdv_call *list)
{
	struct rdv_served *s = (struct rdv_served *)base;
	struct rdv_call *last = list;

	if (!list)
		return;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&s->inboxes->mutex);
	*s->inbox_end = list;
	s->inbox_end = &last->next;
	touch(s);
	pthread_mutex_unlock(&s->inboxes->mutex);
}

void rdv_served_cut(struct rdv_handler *base)
{
	struct rdv_served *s = (struct rdv_served *)base;

	pthread_mutex_lock(&s->inboxes->mutex);
	s->cut_wanted = true;
	touch(s);
	pthread_mutex_unlock(&s->inboxes->mutex);
}

void rdv_served_free(struct rdv_handler *base)
{
	struct rdv_served *s = (struct rdv_served *)base;
	struct rdv_inboxes *in = s->inboxes; /* the thread may be faster than the unlock */

	pthread_mutex_lock(&in->mutex);
	s->free_wanted = true;
	touch(s);
	pthread_mutex_unlock(&in->mutex);
}
