/* copies.c - copies of letters for foreign readers, in the transaction of their letters.
 *
 * A copy is a courtesy: it never stands in the way of its letter. So it is made only while its topic is known to be
 * there (errand thread: before lanes open, then every 10 minutes, every 10 s while it is not), and to take a record of
 * that size; and when the broker does not take one that was sent (the topic has just gone, rights are missing), the
 * batch is sent again without copies, and there are none until the topic was looked at anew. Each is said. */
#include <inttypes.h>
#include <stdlib.h>
#include "letters.h"
#include "source_parts.h"

#define CHECK_MS (10 * 60000)
#define MISSING_MS 10000
#define OFF_MS 60000
#define UNKNOWN_MAX (1000 * 1000) /* below Kafka's default, where the topic does not tell */
#define OVERHEAD 1024             /* what the broker counts beside key, value and headers */

/* ---- errand thread ---- */

static void set_max(struct rdv_kafka_source *s, int64_t max, int64_t check_in_ms)
{
	atomic_store(&s->copies.max, max);
	atomic_store(&s->copies.check_ms, rdv_mono_now().ms + check_in_ms);
}

void rdv_kafka_copies_check(struct rdv_kafka_source *s)
{
	const char *topic = s->config.dead_topic;
	struct rdv_kafka_source_topic about;
	struct rdv_error error = {{0}};
	enum redrive_status st;

	if (!topic || rdv_mono_now().ms < atomic_load(&s->copies.check_ms))
		return;
	st = rdv_kafka_describe(s->admin, topic, RDV_KAFKA_CALL_MS, &about, &error);
	if (st == REDRIVE_OK || st == REDRIVE_FORBIDDEN) {
		s->copies.said_missing = false;
		set_max(s, st == REDRIVE_OK && about.message_max > 0 ? about.message_max : UNKNOWN_MAX, CHECK_MS);
		return;
	}
	set_max(s, st == REDRIVE_NOT_FOUND ? 0 : atomic_load(&s->copies.max), MISSING_MS);
	if (!s->copies.said_missing)
		rdv_kafka_source_say(s, 0, "dead.topic %s: %s: letters go without copies", topic, error.text);
	s->copies.said_missing = true;
}

/* ---- transaction thread ---- */

static rd_kafka_headers_t *headers_of(struct rdv_slice list)
{
	struct rdv_header h;
	uint64_t count;
	struct rdv_reader r = rdv_headers_begin(list, &count);
	rd_kafka_headers_t *out = rd_kafka_headers_new(count < 1000 ? (size_t)count : 1000);

	while (out && rdv_headers_next(&r, &h))
		rd_kafka_header_add(out, (const char *)h.name.data, (ssize_t)h.name.size,
				    h.value.size ? (const void *)h.value.data : "", (ssize_t)h.value.size);
	return out;
}

static bool fits(struct rdv_kafka_source *s, const struct rdv_letter_copy *copy)
{
	size_t size = copy->key.size + copy->value.size + copy->headers.size + OVERHEAD;
	int64_t max = atomic_load(&s->copies.max);

	if ((int64_t)size <= max)
		return true;
	rdv_kafka_source_say(
		s, 1, "a copy of %zu bytes is more than dead.topic %s takes (%" PRId64 "): the letter goes without",
		size, s->config.dead_topic, max);
	return false;
}

static enum redrive_status put(struct rdv_kafka_source *s, const struct rdv_envelope *e,
			       const struct rdv_letter_copy *copy)
{
	enum redrive_status st = rdv_kafka_step_put(s, s->config.dead_topic, RD_KAFKA_PARTITION_UA);
	struct rdv_kafka_put *p = &s->puts[s->put_count - 1];

	if (st != REDRIVE_OK)
		return st;
	p->optional = true;
	p->null_value = !copy->has_value;
	if (copy->has_key) /* it is the message's, and lies in the batch as long as this is needed */
		p->key = rdv_slice(e->key.data ? e->key.data : (const uint8_t *)"", e->key.size);
	p->headers = headers_of(rdv_buffer_as_slice(&copy->headers));
	if (!p->headers)
		return REDRIVE_NO_MEMORY;
	if (copy->has_value)
		rdv_buffer_slice(&s->arena, rdv_buffer_as_slice(&copy->value));
	return REDRIVE_OK;
}

enum redrive_status rdv_kafka_copies_put(struct rdv_kafka_source *s, const struct rdv_envelope *e,
					 struct rdv_slice body)
{
	struct rdv_letter_copy copy;
	enum redrive_status st;

	if (!s->config.dead_topic || !atomic_load(&s->copies.max))
		return REDRIVE_OK;
	st = rdv_letter_copy_make(s->config.dead_format, e, body, s->config.group, &copy);
	if (st == REDRIVE_INVALID) {
		rdv_kafka_source_say(s, 1, "a letter's headers are damaged: it goes without a copy");
		return REDRIVE_OK;
	}
	if (st == REDRIVE_OK && fits(s, &copy))
		st = put(s, e, &copy);
	rdv_letter_copy_done(&copy);
	return st;
}

void rdv_kafka_copies_off(struct rdv_kafka_source *s, const struct rdv_error *why)
{
	set_max(s, 0, OFF_MS);
	rdv_kafka_source_say(s, 0, "dead.topic %s takes no copies: %s: letters go without for a minute",
			     s->config.dead_topic, why->text);
}
