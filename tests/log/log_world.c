/* log_world.c - see log_world.h. */
#include "log/log_world.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "log/internal.h"

enum { HEAD = 20 }; /* operation 8, key 4, deletes 4, size 4 */

void world_init(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	w->files = rdv_faulty_new(seed);
	rdv_random_seed(&w->random, seed * 7 + 1);
}

void world_done(struct world *w)
{
	rdv_log_close(w->log);
	rdv_faulty_free(w->files);
}

static void fill(uint8_t *out, uint64_t op, uint32_t key, bool deletes, uint32_t size)
{
	uint32_t i;

	rdv_put_u64(out, op);
	rdv_put_u32(out + 8, key);
	rdv_put_u32(out + 12, deletes);
	rdv_put_u32(out + 16, size);
	for (i = HEAD; i < size; i++)
		out[i] = (uint8_t)(op * 31 + i * 7);
}

static bool intact(const struct rdv_slice payload, uint64_t *op)
{
	uint32_t i;

	if (payload.size < HEAD)
		return false;
	*op = rdv_get_u64(payload.data);
	for (i = HEAD; i < payload.size; i++)
		if (payload.data[i] != (uint8_t)(*op * 31 + i * 7))
			return false;
	return true;
}

static void set_key(struct world *w, uint32_t key, uint64_t op, bool deletes, struct rdv_position at, uint32_t size)
{
	if (w->latest[key])
		rdv_log_live(w->log, w->place[key].segment, -1, -(int64_t)w->size[key]);
	w->latest[key] = deletes ? 0 : op;
	w->place[key] = at;
	w->size[key] = size;
	if (!deletes)
		rdv_log_live(w->log, at.segment, 1, size);
}

static enum redrive_status fold(void *ctx, const struct rdv_frame *frame, struct rdv_error *error)
{
	struct world *w = ctx;
	uint64_t op;
	uint32_t key;

	(void)error;
	if (w->last_frame && frame->number != w->last_frame + 1)
		w->wrong = "a gap between frames";
	w->last_frame = frame->number;
	if (frame->payload.size < frame->hint_len || !intact(frame->payload, &op)) {
		w->wrong = "bytes that nobody wrote";
		return REDRIVE_OK;
	}
	key = rdv_get_u32(frame->payload.data + 8);
	if (op == 0 || op > w->ops_made || key >= WORLD_KEYS || w->ops[op].key != key || frame->seq != key ||
	    frame->length != rdv_get_u32(frame->payload.data + 16)) {
		w->wrong = "a frame that nobody wrote";
		return REDRIVE_OK;
	}
	if (op > w->seen_max)
		w->seen_max = op;
	set_key(w, key, op, rdv_get_u32(frame->payload.data + 12), frame->position, frame->length);
	return REDRIVE_OK;
}

enum redrive_status world_open(struct world *w)
{
	struct rdv_log_options options = {.dir = "/d",
					  .files = &rdv_faulty_ops,
					  .files_ctx = w->files,
					  .segment_size = WORLD_SEGMENT,
					  .buffer_size = 16 << 10,
					  .capacity = 64ull << 20};
	enum redrive_status status;

	memset(w->latest, 0, sizeof w->latest);
	w->seen_max = w->last_frame = 0;
	w->wrong = NULL;
	memset(&w->error, 0, sizeof w->error);
	status = rdv_log_open(&options, fold, w, &w->log, &w->opened, &w->error);
	if (status == REDRIVE_OK) {
		w->log->hint_after_ms = 0;
		w->log->fill_rate = 1ull << 40;
		w->hinted += (uint32_t)w->opened.hints_used;
	}
	return status;
}

enum redrive_status world_append(struct world *w, uint32_t count, bool batch, uint32_t max_size)
{
	uint32_t sizes[512], i;
	size_t total = 0;
	enum redrive_status status;
	uint64_t ticket;

	assert(count > 0 && count <= 512);
	if (w->ops_made + count > WORLD_OPS)
		return REDRIVE_OK;
	for (i = 0; i < count; i++)
		total += sizes[i] =
			w->equal_sizes ? 216 : HEAD + (uint32_t)rdv_random_below(&w->random, max_size - HEAD);
	status = rdv_log_begin(w->log, RDV_LOG_OUTCOME, total, count, 0);
	if (status != REDRIVE_OK)
		return status;
	for (i = 0; i < count; i++) {
		uint64_t op = ++w->ops_made;
		uint32_t key = (uint32_t)rdv_random_below(&w->random, WORLD_KEYS);
		bool deletes = rdv_random_below(&w->random, 3) == 0;
		struct rdv_frame frame = {.type = 3, .stream = 9, .seq = key, .length = sizes[i], .hint_len = HEAD};
		uint8_t *out = rdv_log_put(w->log, &frame);

		assert(out);
		fill(out, op, key, deletes, sizes[i]);
		w->ops[op] = (struct world_op){key, deletes, batch && i + 1 < count};
		set_key(w, key, op, deletes, frame.position, sizes[i]);
		w->tickets[op] = frame.number;
	}
	rdv_log_end(w->log, batch, &ticket);
	return REDRIVE_OK;
}

static void note_acked(struct world *w)
{
	uint64_t durable = rdv_log_durable_ticket(w->log);

	while (w->acked < w->ops_made && w->tickets[w->acked + 1] <= durable)
		w->acked++;
}

enum redrive_status world_commit(struct world *w)
{
	enum redrive_status status;
	bool did;

	status = rdv_log_commit(w->log, 0, &did, &w->error);
	note_acked(w);
	return status;
}

enum redrive_status world_maintain(struct world *w, int pieces)
{
	bool did = true;

	while (did && pieces-- > 0) {
		enum redrive_status status = rdv_log_maintain(w->log, &did, &w->error);

		if (status != REDRIVE_OK)
			return status;
	}
	return REDRIVE_OK;
}

static enum redrive_status append_again(struct world *w, const struct rdv_frame *frame, uint64_t *ticket)
{
	struct rdv_frame copy = *frame;
	uint32_t key = (uint32_t)frame->seq;
	enum redrive_status status;
	uint8_t *out;

	if (!w->latest[key] || w->place[key].segment != frame->position.segment ||
	    w->place[key].offset != frame->position.offset)
		return REDRIVE_OK;
	status = rdv_log_begin(w->log, RDV_LOG_OUTCOME, frame->length, 1, 0);
	if (status != REDRIVE_OK)
		return status;
	out = rdv_log_put(w->log, &copy);
	assert(out);
	memcpy(out, frame->payload.data, frame->length);
	rdv_log_end(w->log, false, ticket);
	set_key(w, key, w->latest[key], false, copy.position, copy.length);
	return REDRIVE_OK;
}

enum redrive_status world_trim(struct world *w)
{
	struct rdv_log_space space;
	struct rdv_position from = {0, 0};
	uint64_t ticket = 0;
	uint32_t next = 1;

	rdv_log_space(w->log, &space);
	if (space.tail >= w->log->durable_end.segment)
		return REDRIVE_OK;
	from.segment = space.tail;
	while (space.tail_live > 0 && next) {
		struct rdv_block *block;
		struct rdv_frame frame;
		size_t cursor = 0;
		enum redrive_status status = rdv_log_scan(w->log, from, 9000, &block, &next);

		while (status == REDRIVE_OK && rdv_log_scan_next(w->log, block, from, &cursor, &frame))
			status = append_again(w, &frame, &ticket);
		rdv_block_unref(block);
		if (status != REDRIVE_OK)
			return status;
		from.offset = next;
	}
	rdv_log_drop_tail(w->log, ticket);
	w->trims++;
	return REDRIVE_OK;
}

enum redrive_status world_step(struct world *w)
{
	switch (rdv_random_below(&w->random, 10)) {
	case 0:
	case 1:
	case 2:
		return world_append(w, 1 + (uint32_t)rdv_random_below(&w->random, 20), true, 700);
	case 3:
		return world_append(w, 1 + (uint32_t)rdv_random_below(&w->random, 5), false, 300);
	case 4:
		return world_append(w, 1 + (uint32_t)rdv_random_below(&w->random, 4), true, 30000);
	case 5:
		return world_trim(w);
	case 6:
	case 7:
		return world_maintain(w, 1 + (int)rdv_random_below(&w->random, 4));
	default:
		return world_commit(w);
	}
}

const char *world_read_back(struct world *w)
{
	struct rdv_read reads[WORLD_KEYS], *list[WORLD_KEYS];
	const char *wrong = NULL;
	size_t count = 0, i;
	uint64_t op;
	uint32_t key;

	for (key = 0; key < WORLD_KEYS; key++) {
		if (!w->latest[key])
			continue;
		reads[count] =
			(struct rdv_read){.position = w->place[key], .length = w->size[key], .cookie = &w->latest[key]};
		list[count] = &reads[count];
		count++;
	}
	rdv_log_read_many(w->log, list, count);
	for (i = 0; i < count; i++) {
		if (reads[i].status != REDRIVE_OK)
			wrong = "a live record cannot be read";
		else if (!intact(rdv_block_slice(reads[i].block), &op) || op != *(uint64_t *)reads[i].cookie)
			wrong = "a live record reads back as another";
		rdv_block_unref(reads[i].block);
	}
	return wrong;
}

/* The recovered table must be the one after operation seen_max. */
static const char *judge(struct world *w)
{
	uint64_t wanted[WORLD_KEYS] = {0}, op;

	if (w->wrong)
		return w->wrong;
	for (op = 1; op <= w->ops_made; op++) {
		bool last = op == w->ops_made || !w->ops[op].more;

		if (op > w->seen_max && op <= w->acked) {
			/* Its frame may have been trimmed, if it was a deletion or overwritten: then a later state
			 * would show. */
			return "an acknowledged operation is missing";
		}
		if (op == w->seen_max && !last)
			return "half of a batch";
		if (op <= w->seen_max)
			wanted[w->ops[op].key] = w->ops[op].deletes ? 0 : op;
	}
	return memcmp(wanted, w->latest, sizeof wanted) == 0 ? NULL : "the recovered table is another one";
}

const char *world_crash(struct world *w, bool power)
{
	enum redrive_status status;
	const char *wrong;
	uint64_t op;

	rdv_log_close(w->log);
	w->log = NULL;
	if (power)
		rdv_faulty_power_loss(w->files);
	else
		rdv_faulty_process_death(w->files);
	status = world_open(w);
	if (status != REDRIVE_OK)
		return w->error.text[0] ? w->error.text : "open failed";
	wrong = judge(w);
	if (wrong)
		return wrong;
	w->ops_made = w->acked = w->seen_max;
	for (op = 1; op <= w->ops_made; op++)
		w->tickets[op] = 0;
	return world_read_back(w);
}
