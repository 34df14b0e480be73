/* http_events.c - CloudEvents 1.0 attributes as ce- headers (HTTP protocol binding 1.0.2, binary mode).
 *
 * The message's own headers "ce_NAME" or "ce-NAME" (as brokers carry events) become ce-NAME; what of the
 * required attributes they lack is filled: id = the message id, source = /topics/TOPIC, type = the topic, time
 * = when it was published, and partitionkey = the key. datacontenttype is Content-Type. Values are
 * percent-encoded as section 3.1.3.2 of the binding says: everything but 0x21-0x7e, and '"' and '%'. A name
 * that is no attribute name (lower-case letters and digits) is left out: it is still there as Redrive-Header-. */
#include "http_request.h"

static const char *const filled[] = {"specversion", "id", "source", "type", "time", "partitionkey"};
enum { SPECVERSION, ID, SOURCE, TYPE, TIME, KEY, FILLED };

static void add_value(struct rdv_buffer *out, struct rdv_slice value)
{
	for (size_t i = 0; i < value.size; i++) {
		uint8_t c = value.data[i];

		if (c < 0x21 || c > 0x7e || c == '"' || c == '%')
			rdv_buffer_printf(out, "%%%02X", c);
		else
			rdv_buffer_append(out, &value.data[i], 1);
	}
}

static void add(struct rdv_http_request *r, struct rdv_slice name, const char *prefix, struct rdv_slice value)
{
	char line[64] = "ce-";

	rdv_slice_to_text(name, line + 3, sizeof line - 3);
	rdv_http_request_begin(r, line);
	rdv_buffer_text(&r->text, prefix);
	add_value(&r->text, value);
	rdv_http_request_end(r);
}

/* The attribute's name behind "ce_" or "ce-", empty when it is none. */
static struct rdv_slice attribute(struct rdv_slice name)
{
	if (name.size < 4 || name.size > 40 || (name.data[0] | 0x20) != 'c' || (name.data[1] | 0x20) != 'e' ||
	    (name.data[2] != '_' && name.data[2] != '-'))
		return (struct rdv_slice){0};
	name = rdv_slice(name.data + 3, name.size - 3);
	for (size_t i = 0; i < name.size; i++)
		if (!(name.data[i] >= 'a' && name.data[i] <= 'z') && !(name.data[i] >= '0' && name.data[i] <= '9'))
			return (struct rdv_slice){0};
	return name;
}

static void add_carried(struct rdv_http_request *r, struct rdv_slice headers, bool has[FILLED])
{
	uint64_t count;
	struct rdv_reader in = rdv_headers_begin(headers, &count);
	struct rdv_header h;

	while (rdv_headers_next(&in, &h)) {
		struct rdv_slice name = attribute(h.name);

		if (!name.size)
			continue;
		for (size_t i = 0; i < FILLED; i++)
			has[i] = has[i] || rdv_slice_is(name, filled[i]);
		add(r, name, "", h.value);
	}
}

void rdv_http_events_add(struct rdv_http_request *r, const struct rdv_call *call, const struct rdv_body *body,
			 struct rdv_slice message_id)
{
	bool has[FILLED] = {false};
	char time[25];

	add_carried(r, body->headers, has);
	rdv_wall_format(body->produced_at, time);
	has[KEY] = has[KEY] || (body->flags & RDV_BODY_NULL_KEY);
	if (!has[SPECVERSION])
		add(r, rdv_slice_text("specversion"), "", rdv_slice_text("1.0"));
	if (!has[ID])
		add(r, rdv_slice_text("id"), "", message_id);
	if (!has[SOURCE])
		add(r, rdv_slice_text("source"), "/topics/", rdv_slice_text(call->topic));
	if (!has[TYPE])
		add(r, rdv_slice_text("type"), "", rdv_slice_text(call->topic));
	if (!has[TIME])
		add(r, rdv_slice_text("time"), "", rdv_slice_text(time));
	if (!has[KEY])
		add(r, rdv_slice_text("partitionkey"), "", body->key);
}
