/* txn.c - transactions of the writer handle, by rule F and rule P.
 *
 *   begin → produce all → wait for every acknowledgement → offsets → commit
 *             └── anything else than success, before commit ──┘       └─ anything but success: outcome unknown
 *                 nothing is visible, nor ever will be
 *
 * Before commit a failure costs nothing but time: the handle is destroyed, and the next one's init_transactions aborts
 * at the broker what was open and raises the epoch, so that no record of the old one can be taken for a new one. Only a
 * refused generation is aborted on the same handle: by then all records are acknowledged. Values are not copied: they
 * are the library's until they are acknowledged or the handle is destroyed, and one of the two is so whenever run
 * returns. One thread. */
#include "txn.h"
#include <stdlib.h>
#include "../../base/clock.h"
#include "writer.h"

#define SLICE_MS 50          /* of waiting for acknowledgements */
#define COMMIT_MS 500        /* a slice of commit, which resumes */
#define OFFSETS_MS 5000      /* send_offsets does not resume: it is its limit */
#define ACK_MS 5000          /* without any acknowledgement: the handle is given up */
#define SAY_MS 2000          /* waiting is trouble from here on */
#define FENCE_MARGIN_MS 1000 /* the broker's clock of a transaction may be ahead of ours */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000

enum outcome {
	DONE,
	STOPPED,      /* before commit */
	REFUSED,      /* the generation, by the broker that took the offsets */
	RETRY,        /* before commit */
	RETRY_SLOWLY, /* the same, but it takes an operator */
	FENCED,       /* before commit, by a later epoch of our id */
	TOO_LARGE,
	SPARE,   /* an optional record is not taken, before commit */
	UNKNOWN, /* commit was interrupted */
	UNKNOWN_FENCED
};

struct rdv_kafka_txn {
	struct rdv_kafka_writer writer;
	bool interrupted; /* a transaction of ours was left open since the last commit: that explains a fence */

	/* of the transaction under way */
	struct rdv_kafka_step *step;
	size_t pending; /* produced, and not acknowledged */
	int64_t began_ms, progress_ms;
	struct rdv_kafka_put *failed_put;
	rd_kafka_resp_err_t failed;
	bool is_sure; /* that it is failed_put that failed, and not another one of its batch */
};

static void drop(struct rdv_kafka_txn *t)
{
	rdv_kafka_writer_drop(&t->writer);
	t->pending = 0;
}

static void fail(struct rdv_kafka_txn *t, struct rdv_kafka_put *put, rd_kafka_resp_err_t err, bool is_sure)
{
	t->failed = err;
	t->failed_put = put;
	t->is_sure = is_sure || t->writer.single || t->step->put_count == 1;
}

static void delivered(void *ctx, const rd_kafka_message_t *m)
{
	struct rdv_kafka_txn *t = ctx;
	struct rdv_kafka_put *put = m->_private;

	t->pending--;
	t->progress_ms = rdv_mono_now().ms;
	put->offset = m->offset;
	if (m->err && !t->failed) /* later ones fail because of it */
		fail(t, put, m->err, false);
}

/* Before commit. */
static enum outcome outcome_of(const struct rdv_kafka_txn *t, enum rdv_kafka_deed deed)
{
	static const enum outcome outcomes[] = {
		[RDV_KAFKA_GO_ON] = DONE,          [RDV_KAFKA_AGAIN] = RETRY,       [RDV_KAFKA_ABORT] = RETRY,
		[RDV_KAFKA_RENEW] = RETRY,         [RDV_KAFKA_REFUSED] = REFUSED,   [RDV_KAFKA_FENCED] = REFUSED,
		[RDV_KAFKA_DENIED] = RETRY_SLOWLY, [RDV_KAFKA_STOP] = RETRY_SLOWLY, [RDV_KAFKA_TOO_LARGE] = TOO_LARGE,
	};

	return outcomes[deed] != DONE && rdv_kafka_writer_is_fenced(&t->writer) ? FENCED : outcomes[deed];
}

static rd_kafka_resp_err_t produce_one(struct rdv_kafka_txn *t, struct rdv_kafka_put *p)
{
	rd_kafka_headers_t *headers = p->headers ? rd_kafka_headers_copy(p->headers) : NULL;
	rd_kafka_resp_err_t err;

	err = rd_kafka_producev(t->writer.handle, RD_KAFKA_V_TOPIC(p->topic), RD_KAFKA_V_PARTITION(p->partition),
				RD_KAFKA_V_MSGFLAGS(0), RD_KAFKA_V_KEY(p->key.data, p->key.size),
				RD_KAFKA_V_VALUE((void *)(uintptr_t)p->value.data, p->value.size),
				RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(p), RD_KAFKA_V_END);
	if (err && headers)
		rd_kafka_headers_destroy(headers);
	if (!err)
		t->pending++;
	return err;
}

/* Does only what is optional lack its acknowledgement? */
static bool only_optional_lacks(const struct rdv_kafka_txn *t)
{
	for (size_t i = 0; i < t->step->put_count; i++)
		if (t->step->puts[i].offset < 0 && !t->step->puts[i].optional)
			return false;
	return true;
}

/* Serves acknowledgements for a moment; false: there is no sense in going on. */
static bool wait_a_moment(struct rdv_kafka_txn *t)
{
	struct rdv_kafka_writer *w = &t->writer;
	int64_t idle;

	rd_kafka_poll(w->handle, SLICE_MS);
	idle = rdv_mono_now().ms - t->progress_ms;
	if (idle > SAY_MS && !w->said) {
		rdv_error_set(&w->why, REDRIVE_OK, "%zu records are not acknowledged", t->pending);
		rdv_kafka_writer_say(w);
	}
	return !t->failed && idle <= ACK_MS && !rdv_kafka_writer_is_stopped(w);
}

static enum outcome wait_for_all(struct rdv_kafka_txn *t)
{
	struct rdv_kafka_writer *w = &t->writer;

	t->progress_ms = rdv_mono_now().ms;
	while (t->pending && wait_a_moment(t))
		;
	if (t->failed) {
		const struct rdv_kafka_put *put = t->failed_put;

		rdv_error_set(&w->why, REDRIVE_OK, "a record of %zu bytes for %s [%d]: %s",
			      put->key.size + put->value.size, put->topic, (int)put->partition,
			      rd_kafka_err2str(t->failed));
		if (put->optional && !rdv_kafka_is_fence(t->failed) && !rdv_kafka_writer_is_fenced(w))
			return SPARE;
		return rdv_kafka_is_fence(t->failed) ? FENCED
						     : outcome_of(t, rdv_kafka_deed_of(t->failed, false, false, false));
	}
	if (rdv_kafka_writer_is_stopped(w))
		return STOPPED;
	if (!t->pending)
		return DONE;
	rdv_error_set(&w->why, REDRIVE_OK, "%zu records were not acknowledged within %d s", t->pending, ACK_MS / 1000);
	if (only_optional_lacks(t))
		return SPARE;
	return outcome_of(t, RDV_KAFKA_RENEW);
}

static enum outcome produce_all(struct rdv_kafka_txn *t)
{
	t->failed = RD_KAFKA_RESP_ERR_NO_ERROR;
	for (size_t i = 0; i < t->step->put_count; i++)
		t->step->puts[i].offset = -1;
	t->progress_ms = rdv_mono_now().ms;
	for (size_t i = 0; i < t->step->put_count && !t->failed; i++) {
		struct rdv_kafka_put *put = &t->step->puts[i];
		rd_kafka_resp_err_t err;

		while ((err = produce_one(t, put)) == RD_KAFKA_RESP_ERR__QUEUE_FULL && wait_a_moment(t))
			;
		if (err == RD_KAFKA_RESP_ERR__STATE) /* one before it has failed: its report says why */
			wait_for_all(t);
		if (err && !t->failed)
			fail(t, put, err, true);
	}
	return wait_for_all(t);
}

static enum outcome send_offsets(struct rdv_kafka_txn *t)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)t->step->moved_count);
	rd_kafka_error_t *error;

	for (size_t i = 0; i < t->step->moved_count; i++) {
		const struct rdv_kafka_moved *m = &t->step->moved[i];

		rd_kafka_topic_partition_list_add(list, m->topic, m->partition)->offset = m->offset;
	}
	error = rd_kafka_send_offsets_to_transaction(t->writer.handle, list, t->step->group, OFFSETS_MS);
	rd_kafka_topic_partition_list_destroy(list);
	return outcome_of(t, rdv_kafka_writer_judge(&t->writer, "send_offsets", error));
}

static enum outcome commit(struct rdv_kafka_txn *t)
{
	struct rdv_kafka_writer *w = &t->writer;

	for (;;) {
		rd_kafka_error_t *error = rd_kafka_commit_transaction(w->handle, COMMIT_MS);
		enum rdv_kafka_deed deed = rdv_kafka_writer_judge(w, "commit", error);

		if (deed == RDV_KAFKA_GO_ON)
			return DONE;
		if (deed != RDV_KAFKA_AGAIN || rdv_kafka_writer_is_stopped(w))
			return rdv_kafka_writer_is_fenced(w) ? UNKNOWN_FENCED : UNKNOWN;
		if (rdv_mono_now().ms - t->began_ms > SAY_MS && !w->said)
			rdv_kafka_writer_say(w);
		rdv_kafka_writer_pause(w, 1);
	}
}

static enum outcome transact(struct rdv_kafka_txn *t)
{
	rd_kafka_error_t *error = rd_kafka_begin_transaction(t->writer.handle);
	enum outcome outcome = outcome_of(t, rdv_kafka_writer_judge(&t->writer, "begin", error));

	t->began_ms = rdv_mono_now().ms;
	if (outcome == DONE)
		outcome = produce_all(t);
	if (outcome == DONE)
		outcome = send_offsets(t);
	if (outcome == DONE)
		outcome = commit(t);
	return outcome;
}

/* What is open at the broker would keep its readers waiting: it is ended now, not at the next run. */
static enum redrive_status renew(struct rdv_kafka_txn *t, enum redrive_status status, struct rdv_error *error)
{
	struct rdv_error why = t->writer.why;

	drop(t);
	if (rdv_kafka_writer_prepare(&t->writer, false))
		return REDRIVE_CLOSED;
	return rdv_error_set(error, status, "%s", why.text);
}

/* Has a transaction of ours expired, or was one left open? Then the fence is our own. */
static bool explains_fence(const struct rdv_kafka_txn *t)
{
	return t->interrupted || rdv_mono_now().ms - t->began_ms >= t->writer.lifetime_ms - FENCE_MARGIN_MS;
}

/* TIMEOUT: the step is to be run again. */
static enum redrive_status again(struct rdv_kafka_txn *t, int64_t pause)
{
	rdv_kafka_writer_say(&t->writer);
	drop(t);
	t->interrupted = true;
	rdv_kafka_writer_pause(&t->writer, pause);
	return REDRIVE_TIMEOUT;
}

static enum redrive_status refuse_record(struct rdv_kafka_txn *t, struct rdv_error *error)
{
	if (!t->is_sure) {
		t->writer.single = true; /* for good: batches of this size do not pass here */
		return again(t, 0);
	}
	drop(t);
	t->interrupted = true;
	t->step->too_large = (size_t)(t->failed_put - t->step->puts);
	return rdv_error_set(error, REDRIVE_TOO_LARGE, "%s", t->writer.why.text);
}

/* What run answers; TIMEOUT: the step is to be run again. */
static enum redrive_status settle(struct rdv_kafka_txn *t, enum outcome outcome, int64_t pause, struct rdv_error *error)
{
	switch (outcome) {
	case DONE:
		t->interrupted = false;
		return REDRIVE_OK;
	case REFUSED:
		if (t->pending || !rdv_kafka_writer_abort(&t->writer))
			return renew(t, REDRIVE_CONFLICT, error);
		return rdv_error_set(error, REDRIVE_CONFLICT, "%s", t->writer.why.text);
	case FENCED:
		if (explains_fence(t))
			return again(t, pause);
		drop(t);
		return rdv_error_set(error, REDRIVE_BUSY, "%s", t->writer.why.text);
	case UNKNOWN:
		return renew(t, REDRIVE_FAILED, error);
	case UNKNOWN_FENCED: /* the broker has ended it already */
		drop(t);
		return rdv_error_set(error, REDRIVE_FAILED, "%s", t->writer.why.text);
	case TOO_LARGE:
		return refuse_record(t, error);
	case SPARE:
		drop(t);
		t->interrupted = true;
		return rdv_error_set(error, REDRIVE_REFUSED, "%s", t->writer.why.text);
	case STOPPED:
		drop(t);
		return REDRIVE_CLOSED;
	default:
		return again(t, outcome == RETRY_SLOWLY ? PAUSE_MAX_MS : pause);
	}
}

static enum redrive_status check_step(const struct rdv_kafka_step *step, struct rdv_error *error)
{
	int32_t generation;

	if (!step->moved_count)
		return rdv_error_set(error, REDRIVE_INTERNAL, "a transaction without an offset is not fenced");
	for (size_t i = 0; i < step->moved_count; i++)
		if (step->moved[i].offset < 0) /* the library leaves such ones out without a word */
			return rdv_error_set(error, REDRIVE_INTERNAL, "an offset of %s [%d] below 0",
					     step->moved[i].topic, (int)step->moved[i].partition);
	return rdv_kafka_generation(step->group, &generation, error);
}

enum redrive_status rdv_kafka_txn_run(struct rdv_kafka_txn *t, struct rdv_kafka_step *step,
				      void (*trouble)(void *ctx, const char *why), void *ctx, struct rdv_error *error)
{
	enum redrive_status status = check_step(step, error);
	int64_t pause = PAUSE_MIN_MS;

	if (status)
		return status;
	t->step = step;
	t->writer.trouble = trouble;
	t->writer.trouble_ctx = ctx;
	do {
		status = rdv_kafka_writer_prepare(&t->writer, false);
		if (!status)
			status = settle(t, transact(t), pause, error);
		pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
	} while (status == REDRIVE_TIMEOUT);
	rdv_kafka_writer_over(&t->writer);
	if (error && status)
		rdv_kafka_config_scrub(t->writer.config, error->text);
	t->step = NULL;
	return status;
}

enum redrive_status rdv_kafka_txn_warm(struct rdv_kafka_txn *t, struct rdv_error *error)
{
	enum redrive_status status;

	t->writer.trouble = NULL;
	status = rdv_kafka_writer_prepare(&t->writer, true);
	rdv_kafka_writer_over(&t->writer);
	return status == REDRIVE_REFUSED ? rdv_error_set(error, status, "%s", t->writer.why.text) : status;
}

struct rdv_kafka_txn *rdv_kafka_txn_new(const struct rdv_kafka_config *c, const char *id, const _Atomic bool *stop)
{
	struct rdv_kafka_txn *t = calloc(1, sizeof *t);

	if (!t || rdv_kafka_writer_init(&t->writer, c, id, stop)) {
		free(t);
		return NULL;
	}
	t->writer.reports = (struct rdv_kafka_reports){delivered, t};
	return t;
}

void rdv_kafka_txn_free(struct rdv_kafka_txn *t)
{
	if (!t)
		return;
	rdv_kafka_writer_done(&t->writer);
	free(t);
}
