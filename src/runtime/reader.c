/* reader.c - the body readers; see reader.h. Any number of jobs may wait: their owners (open calls, the cache, letters)
 * are bounded. Order among jobs is not kept. After stop, what was submitted has been returned. */
#include "room.h"
#include <stdlib.h>

enum redrive_status rdv_readers_init(struct rdv_readers *r, struct rdv_engine *e)
{
	*r = (struct rdv_readers){.engine = e};
	r->urgent_end = &r->urgent;
	r->later_end = &r->later;
	r->returned_end = &r->returned;
	if (pthread_mutex_init(&r->mutex, NULL))
		return REDRIVE_NO_MEMORY;
	if (pthread_cond_init(&r->work, NULL)) {
		pthread_mutex_destroy(&r->mutex);
		return REDRIVE_NO_MEMORY;
	}
	return REDRIVE_OK;
}

void rdv_readers_done(struct rdv_readers *r)
{
	pthread_cond_destroy(&r->work);
	pthread_mutex_destroy(&r->mutex);
}

void rdv_readers_submit(struct rdv_readers *r, struct rdv_job *list, struct rdv_job **end, bool urgent)
{
	struct rdv_job ***tail = urgent ? &r->urgent_end : &r->later_end;
	bool wake;

	if (!list)
		return;
	*end = NULL;
	pthread_mutex_lock(&r->mutex);
	**tail = list;
	*tail = end;
	wake = r->idle > 0;
	pthread_mutex_unlock(&r->mutex);
	if (wake)
		pthread_cond_signal(&r->work);
}

static struct rdv_job *pop(struct rdv_job **list, struct rdv_job ***end)
{
	struct rdv_job *job = *list;

	*list = job->next;
	if (!*list)
		*end = list;
	return job;
}

/* Under the mutex. */
static size_t take_batch(struct rdv_readers *r, struct rdv_job *batch[])
{
	size_t count = 0;

	while (count < RDV_READER_BATCH && r->urgent)
		batch[count++] = pop(&r->urgent, &r->urgent_end);
	while (count < RDV_READER_BATCH && r->later)
		batch[count++] = pop(&r->later, &r->later_end);
	if ((r->urgent || r->later) && r->idle)
		pthread_cond_signal(&r->work);
	return count;
}

/* A record that was appended a moment ago is found only when it has been written: a retry may be due sooner than that.
 */
static void read_again(struct rdv_readers *r, struct rdv_job *job)
{
	for (int k = 0; k < 2; k++) {
		struct rdv_read *read = &job->reads[k];

		if (!read->length || read->status != REDRIVE_NOT_FOUND ||
		    rdv_log_wait(r->log, job->ticket, RDV_READER_WAIT_MS) != REDRIVE_OK)
			continue;
		rdv_log_read_many(r->log, &read, 1);
	}
}

void rdv_reader_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = RDV_READER_PAUSE_MS * 1000000}, NULL);
}

/* Want of memory or of descriptors passes: once more after a moment. The list is changed. */
static void read_after_pause(struct rdv_readers *r, struct rdv_read *reads[], size_t count)
{
	size_t again = 0;

	for (size_t i = 0; i < count; i++)
		if (rdv_read_passes(reads[i]->status))
			reads[again++] = reads[i];
	if (!again)
		return;
	rdv_reader_pause();
	rdv_log_read_many(r->log, reads, again);
}

static void do_batch(struct rdv_readers *r, struct rdv_job *batch[], size_t count)
{
	struct rdv_read *reads[2 * RDV_READER_BATCH];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		for (int k = 0; k < 2; k++)
			if (batch[i]->reads[k].length)
				reads[wanted++] = &batch[i]->reads[k];
	if (wanted) {
		rdv_log_read_many(r->log, reads, wanted);
		read_after_pause(r, reads, wanted);
	}
	for (size_t i = 0; i < count; i++) {
		read_again(r, batch[i]);
		if (batch[i]->work)
			batch[i]->work(batch[i]);
		batch[i]->next = i + 1 < count ? batch[i + 1] : NULL;
	}
}

static void *run(void *arg)
{
	struct rdv_readers *r = arg;
	struct rdv_job *batch[RDV_READER_BATCH];

	pthread_setname_np(pthread_self(), "rdv-reader");
	pthread_mutex_lock(&r->mutex);
	for (;;) {
		size_t count = take_batch(r, batch);
		bool first;

		if (!count) {
			if (r->stopping)
				break;
			r->idle++;
			pthread_cond_wait(&r->work, &r->mutex);
			r->idle--;
			continue;
		}
		pthread_mutex_unlock(&r->mutex);
		do_batch(r, batch, count);
		pthread_mutex_lock(&r->mutex);
		first = !r->returned;
		*r->returned_end = batch[0];
		r->returned_end = &batch[count - 1]->next;
		pthread_mutex_unlock(&r->mutex);
		if (first)
			rdv_engine_wake(r->engine);
		pthread_mutex_lock(&r->mutex);
	}
	pthread_mutex_unlock(&r->mutex);
	return NULL;
}

enum redrive_status rdv_readers_start(struct rdv_readers *r, struct rdv_log *log, struct rdv_error *error)
{
	r->log = log;
	while (r->started < RDV_READER_THREADS) {
		int failed = pthread_create(&r->threads[r->started], NULL, run, r);

		if (failed)
			return rdv_error_errno(error, failed, "start a reader");
		r->started++;
	}
	return REDRIVE_OK;
}

void rdv_readers_stop(struct rdv_readers *r)
{
	pthread_mutex_lock(&r->mutex);
	r->stopping = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->mutex);
	while (r->started)
		pthread_join(r->threads[--r->started], NULL);
}

struct rdv_job *rdv_readers_take(struct rdv_readers *r)
{
	struct rdv_job *list;

	pthread_mutex_lock(&r->mutex);
	list = r->returned;
	r->returned = NULL;
	r->returned_end = &r->returned;
	pthread_mutex_unlock(&r->mutex);
	return list;
}
