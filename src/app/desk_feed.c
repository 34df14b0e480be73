/* desk_feed.c - joins readers of letters topics to the desk: letters in, how far they are kept beside the decisions.
 *
 * A letter's truth is its letters topic until the desk has stored it and the reader's position behind it is kept in
 * control.db. The desk knows letters by their ids, so that one that comes twice is one. */
#include <stdlib.h>
#include "desk_feed.h"
#ifdef REDRIVE_KAFKA
#include "../brokers/kafka/letter_reader.h"
#include "kafka_maker.h"

struct rdv_desk_feed {
	struct rdv_desk_feed *older;
	struct rdv_desk_feeds *all;
	struct rdv_kafka_letter_reader *reader; /* owns */
	char route[101];
};

/* ---- the reader's sink: its thread ---- */

static enum redrive_status position(void *ctx, const char *topic, int32_t partition, int64_t *next)
{
	const struct rdv_desk_feed *f = ctx;
	return rdv_desk_bookmark(f->all->desk, topic, (uint32_t)partition, next);
}

static enum redrive_status keep(void *ctx, const struct rdv_kafka_letter_position *p, size_t count)
{
	const struct rdv_desk_feed *f = ctx;
	struct rdv_desk_bookmark *marks = calloc(count, sizeof *marks);
	if (!marks)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < count; i++)
		marks[i] = (struct rdv_desk_bookmark){p[i].topic, (uint32_t)p[i].partition, p[i].next};
	enum redrive_status status = rdv_desk_keep_bookmarks(f->all->desk, marks, count);
	free(marks);
	return status;
}

/* A desk's thread. */
static void stored(void *ctx, uint64_t ticket, enum redrive_status status)
{
	struct rdv_desk_feed *f = ctx;
	rdv_kafka_letter_stored(f->reader, ticket, status);
}

static enum redrive_status letter(void *ctx, const struct rdv_kafka_letter *l, uint64_t ticket)
{
	struct rdv_desk_feed *f = ctx;
	struct rdv_block *envelope = rdv_block_copy(l->envelope);
	struct rdv_block *body = l->has_body ? rdv_block_copy(l->body) : NULL;
	if (envelope && (body || !l->has_body))
		return rdv_desk_put(f->all->desk, envelope, body, stored, f, ticket);
	rdv_block_unref(envelope);
	rdv_block_unref(body);
	return REDRIVE_NO_MEMORY;
}

static void say(void *ctx, int level, const char *text)
{
	const struct rdv_desk_feed *f = ctx;
	rdv_logger_printf(f->all->logger, level, "route %s: %s", f->route, text);
}

/* ---- feeds ---- */

static void end(struct rdv_desk_feed *f)
{
	if (f->reader) {
		rdv_kafka_letter_reader_stop(f->reader);
		rdv_kafka_letter_reader_free(f->reader);
	}
	free(f);
}

static enum redrive_status add(struct rdv_desk_feeds *all, const struct rdv_route_settings *r, struct rdv_error *error)
{
	struct rdv_desk_feed *f = calloc(1, sizeof *f);
	struct rdv_kafka_options options;
	if (!f)
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "route '%s'", r->name);
	const struct rdv_kafka_letter_sink sink = {f, position, keep, letter, say};
	f->all = all;
	rdv_slice_to_text(rdv_slice_text(r->name), f->route, sizeof f->route);
	rdv_kafka_options_of(r, &options);
	enum redrive_status status = rdv_kafka_letter_reader_new(&options, &sink, &f->reader, error);
	if (status == REDRIVE_OK)
		status = rdv_kafka_letter_reader_start(f->reader, error);
	if (status != REDRIVE_OK) {
		end(f);
		return rdv_error_prefix(error, status, "route '%s'", r->name);
	}
	f->older = all->newest;
	all->newest = f;
	return REDRIVE_OK;
}

enum redrive_status rdv_desk_feeds_start(struct rdv_desk_feeds *all, const struct rdv_settings *s,
					 struct rdv_desk *desk, struct rdv_error *error)
{
	enum redrive_status status = REDRIVE_OK;
	all->desk = desk;
	for (size_t i = 0; i < s->route_count && status == REDRIVE_OK; i++)
		if (s->routes[i].source.kafka.given)
			status = add(all, &s->routes[i], error);
	return status;
}

void rdv_desk_feeds_stop(struct rdv_desk_feeds *all)
{
	while (all->newest) {
		struct rdv_desk_feed *f = all->newest;
		all->newest = f->older;
		end(f);
	}
	all->desk = NULL;
}
#else
enum redrive_status rdv_desk_feeds_start(struct rdv_desk_feeds *all, const struct rdv_settings *s,
					 struct rdv_desk *desk, struct rdv_error *error)
{
	return REDRIVE_OK; /* no route is on Kafka: the settings are refused */
}

void rdv_desk_feeds_stop(struct rdv_desk_feeds *all)
{
}
#endif
