/* writer.c - the handle under the transactions: see writer.h.
 *
 * init_transactions and abort resume when they are called again, so that short slices lose nothing. An attempt that
 * fails is repeated without end, with growing pauses; what takes an operator (rights, configuration) with long ones. */
#include "writer.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../base/clock.h"

#define INIT_MS 2000
#define ABORT_MS 5000
#define ABORT_SLICE_MS 500
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000
#define LIFETIME_MS 15000

enum redrive_status rdv_kafka_writer_init(struct rdv_kafka_writer *w, const struct rdv_kafka_config *c, const char *id,
					  const _Atomic bool *stop)
{
	const char *lifetime = rdv_kafka_config_setting(c, "transaction.timeout.ms");

	*w = (struct rdv_kafka_writer){
		.config = c,
		.stop = stop,
		.id = strdup(id),
		.lifetime_ms = lifetime ? atoll(lifetime) : LIFETIME_MS,
	};
	return w->id ? REDRIVE_OK : REDRIVE_NO_MEMORY;
}

void rdv_kafka_writer_done(struct rdv_kafka_writer *w)
{
	rdv_kafka_writer_drop(w);
	free(w->id);
	w->id = NULL;
}

bool rdv_kafka_writer_is_stopped(const struct rdv_kafka_writer *w)
{
	return atomic_load_explicit(w->stop, memory_order_relaxed);
}

void rdv_kafka_writer_pause(const struct rdv_kafka_writer *w, int64_t ms)
{
	const struct timespec slice = {.tv_nsec = 20 * 1000000};

	for (int64_t until = rdv_mono_now().ms + ms; !rdv_kafka_writer_is_stopped(w) && rdv_mono_now().ms < until;)
		nanosleep(&slice, NULL);
}

void rdv_kafka_writer_say(struct rdv_kafka_writer *w)
{
	struct rdv_error text = w->why;
	char complaint[256];

	if (w->handle && rdv_kafka_complaint(w->handle, complaint))
		rdv_error_add(&text, REDRIVE_OK, complaint);
	rdv_kafka_config_scrub(w->config, text.text);
	w->said = true;
	if (w->trouble)
		w->trouble(w->trouble_ctx, text.text);
	else if (w->config->say)
		w->config->say(w->config->say_ctx, 1, text.text);
}

void rdv_kafka_writer_over(struct rdv_kafka_writer *w)
{
	if (w->said && w->trouble)
		w->trouble(w->trouble_ctx, NULL);
	w->said = false;
}

void rdv_kafka_writer_drop(struct rdv_kafka_writer *w)
{
	rdv_kafka_close(w->handle);
	w->handle = NULL;
	w->ready = false;
}

enum rdv_kafka_deed rdv_kafka_writer_judge(struct rdv_kafka_writer *w, const char *call, rd_kafka_error_t *error)
{
	enum rdv_kafka_deed deed = rdv_kafka_deed_of_error(error);

	if (error)
		rdv_error_set(&w->why, REDRIVE_OK, "%s: %s", call, rd_kafka_error_string(error));
	rd_kafka_error_destroy(error);
	return deed;
}

bool rdv_kafka_is_fence(rd_kafka_resp_err_t code)
{
	return code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH ||
	       code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
}

bool rdv_kafka_writer_is_fenced(const struct rdv_kafka_writer *w)
{
	return rdv_kafka_is_fence(rd_kafka_fatal_error(w->handle, NULL, 0));
}

/* One slice of getting a handle that is ready. */
static enum rdv_kafka_deed prepare_once(struct rdv_kafka_writer *w)
{
	enum rdv_kafka_deed deed;

	if (!w->handle) {
		enum rdv_kafka_role role = w->single ? RDV_KAFKA_SINGLE : RDV_KAFKA_WRITER;
		enum redrive_status status = rdv_kafka_open(w->config, role, w->id, &w->reports, &w->handle, &w->why);

		if (status)
			return status == REDRIVE_REFUSED ? RDV_KAFKA_STOP : RDV_KAFKA_RENEW;
	}
	deed = rdv_kafka_writer_judge(w, "init_transactions", rd_kafka_init_transactions(w->handle, INIT_MS));
	w->ready = deed == RDV_KAFKA_GO_ON;
	return deed;
}

enum redrive_status rdv_kafka_writer_prepare(struct rdv_kafka_writer *w, bool may_refuse)
{
	int64_t pause = PAUSE_MIN_MS;

	for (;;) {
		enum rdv_kafka_deed deed;

		if (rdv_kafka_writer_is_stopped(w))
			return REDRIVE_CLOSED;
		if (w->ready)
			return REDRIVE_OK;
		deed = prepare_once(w);
		if (deed == RDV_KAFKA_GO_ON)
			continue;
		if (deed == RDV_KAFKA_STOP && may_refuse)
			return REDRIVE_REFUSED;
		rdv_kafka_writer_say(w);
		if (deed != RDV_KAFKA_AGAIN)
			rdv_kafka_writer_drop(w);
		if (deed == RDV_KAFKA_DENIED || deed == RDV_KAFKA_STOP)
			pause = PAUSE_MAX_MS;
		rdv_kafka_writer_pause(w, pause);
		pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
	}
}

bool rdv_kafka_writer_abort(struct rdv_kafka_writer *w)
{
	int64_t until = rdv_mono_now().ms + ABORT_MS;
	enum rdv_kafka_deed deed;

	do {
		rd_kafka_error_t *error = rd_kafka_abort_transaction(w->handle, ABORT_SLICE_MS);

		deed = rdv_kafka_deed_of_error(error);
		rd_kafka_error_destroy(error);
	} while (deed == RDV_KAFKA_AGAIN && !rdv_kafka_writer_is_stopped(w) && rdv_mono_now().ms < until);
	return deed == RDV_KAFKA_GO_ON;
}
