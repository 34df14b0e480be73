/* fuzz_query.c - the dead-letter query: never crashes; a mistake has a position inside the text; what is understood is
 * understood again when it is written anew from what was parsed. */
#include <stdio.h>
#include <stdlib.h>
#include "desk/desk.h"

#define CHECK(c)                                                                                                       \
	do {                                                                                                           \
		if (!(c))                                                                                              \
			abort();                                                                                       \
	} while (0)

static void quote(struct rdv_buffer *out, const char *name, struct rdv_slice value)
{
	rdv_buffer_text(out, name);
	rdv_buffer_u8(out, '"');
	for (size_t i = 0; i < value.size; i++) {
		if (value.data[i] == '"' || value.data[i] == '\\')
			rdv_buffer_u8(out, '\\');
		rdv_buffer_u8(out, value.data[i]);
	}
	rdv_buffer_text(out, "\" ");
}

static void write_time(struct rdv_buffer *out, struct rdv_wall t)
{
	char text[25];
	if (!t.ms)
		return;
	rdv_wall_format(t, text);
	rdv_buffer_text(out, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_query q, again;
	struct rdv_error error = {{0}};
	size_t position = 0;
	enum redrive_status status = rdv_query_parse(rdv_slice(data, size), &q, &position, &error);
	CHECK(status == REDRIVE_OK || status == REDRIVE_INVALID || status == REDRIVE_NO_MEMORY);
	if (status != REDRIVE_OK) {
		CHECK(position >= 1 && position <= size + 1);
		CHECK(error.text[0]);
		return 0;
	}
	struct rdv_buffer text;
	rdv_buffer_init(&text, 0);
	if (q.route)
		quote(&text, "route:", rdv_slice_text(q.route));
	if (q.has_key)
		quote(&text, "key:", rdv_slice(q.key, q.key_size));
	if (q.reason != RDV_REASON_NONE)
		quote(&text, "reason:", rdv_slice_text(rdv_reason_name(q.reason)));
	if (q.dead_from.ms || q.dead_to.ms) {
		rdv_buffer_text(&text, "dead:");
		write_time(&text, q.dead_from);
		rdv_buffer_text(&text, "..");
		write_time(&text, q.dead_to);
	}
	/* Near the end of year 9999 the end of a day is clamped; such a text need not come back. */
	if (q.dead_to.ms < 253402214400000) {
		CHECK(rdv_query_parse(rdv_buffer_as_slice(&text), &again, &position, &error) == REDRIVE_OK);
		CHECK((q.route != NULL) == (again.route != NULL) && (!q.route || strcmp(q.route, again.route) == 0));
		CHECK(q.has_key == again.has_key && q.key_size == again.key_size);
		CHECK(!q.has_key || memcmp(q.key, again.key, q.key_size) == 0);
		CHECK(q.reason == again.reason && q.dead_from.ms == again.dead_from.ms &&
		      q.dead_to.ms == again.dead_to.ms);
		rdv_query_done(&again);
	}
	rdv_buffer_done(&text);
	rdv_query_done(&q);
	return 0;
}
