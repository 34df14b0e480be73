/* sim_log.c - see sim_log.h. */
#include "sim_log.h"
#include <assert.h>
#include <stdlib.h>

#define HEADER 40

void sim_log_init(struct sim_log *log)
{
	*log = (struct sim_log){0};
	rdv_buffer_init(&log->bytes, 0);
	sim_log_reset(log, 4096);
}

void sim_log_done(struct sim_log *log)
{
	free(log->frames);
	free(log->live);
	rdv_buffer_done(&log->bytes);
}

void sim_log_reset(struct sim_log *log, uint32_t segment_size)
{
	log->count = 0;
	log->first = 1;
	log->durable = 0;
	log->segment = log->tail = 1;
	log->offset = HEADER;
	log->segment_size = segment_size;
	rdv_buffer_clear(&log->bytes);
	if (log->live)
		memset(log->live, 0, log->live_capacity * sizeof *log->live);
}

uint32_t *sim_log_live(struct sim_log *log, uint32_t segment)
{
	if (segment >= log->live_capacity) {
		size_t capacity = segment * 2 + 64;
		log->live = realloc(log->live, capacity * sizeof *log->live);
		assert(log->live);
		memset(log->live + log->live_capacity, 0, (capacity - log->live_capacity) * sizeof *log->live);
		log->live_capacity = capacity;
	}
	return &log->live[segment];
}

uint64_t sim_log_append(struct sim_log *log, struct sim_frame *frame, struct rdv_slice payload)
{
	if (log->offset + HEADER + payload.size > log->segment_size && log->offset > HEADER) {
		log->segment++;
		log->offset = HEADER;
	}
	frame->at = (uint32_t)log->bytes.size;
	frame->size = (uint32_t)payload.size;
	frame->place = (struct rdv_place){log->segment, log->offset, (uint32_t)payload.size};
	rdv_buffer_slice(&log->bytes, payload);
	assert(!log->bytes.failed);
	log->offset += HEADER + ((uint32_t)payload.size + 7) / 8 * 8;
	if (log->count == log->capacity) {
		log->capacity = log->capacity ? log->capacity * 2 : 1024;
		log->frames = realloc(log->frames, log->capacity * sizeof *log->frames);
		assert(log->frames);
	}
	log->frames[log->count++] = *frame;
	return sim_log_last(log);
}

struct rdv_slice sim_log_payload(const struct sim_log *log, const struct sim_frame *f)
{
	return rdv_slice(log->bytes.data + f->at, f->size);
}

struct sim_frame *sim_log_find(const struct sim_log *log, struct rdv_place place)
{
	size_t low = 0, high = log->count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		struct rdv_place p = log->frames[mid].place;
		if (p.segment < place.segment || (p.segment == place.segment && p.offset < place.offset))
			low = mid + 1;
		else
			high = mid;
	}
	if (low == log->count || log->frames[low].place.segment != place.segment ||
	    log->frames[low].place.offset != place.offset)
		return NULL;
	return &log->frames[low];
}

void sim_log_drop_tail(struct sim_log *log)
{
	size_t n = 0;

	while (n < log->count && log->frames[n].place.segment == log->tail)
		n++;
	memmove(log->frames, log->frames + n, (log->count - n) * sizeof *log->frames);
	log->count -= n;
	log->first += n;
	log->tail++;
}

size_t sim_log_crash(struct sim_log *log, struct rdv_random *random, double persist)
{
	uint64_t last = sim_log_last(log), keep = log->durable;
	size_t lost;

	while (keep < last && rdv_random_unit(random) < persist)
		keep++;
	while (keep > log->durable && sim_log_frame(log, keep)->more)
		keep--;
	lost = (size_t)(last - keep);
	log->count -= lost;
	log->durable = keep;
	if (log->count) {
		struct sim_frame *f = &log->frames[log->count - 1];
		log->segment = f->place.segment;
		log->offset = f->place.offset + HEADER + (f->size + 7) / 8 * 8;
	}
	return lost;
}
