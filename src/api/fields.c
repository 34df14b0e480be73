/* fields.c - see fields.h. */
#include <stdlib.h>
#include "../base/quantity.h"
#include "../base/text.h"
#include "fields.h"

#define FIELD_MAX (1u << 20)
#define YEAR_9999_END 253402300799999 /* ms */

char *rdv_field_decode(struct rdv_slice raw, bool plus, size_t *size)
{
	struct rdv_buffer spaced, out;
	rdv_buffer_init(&spaced, FIELD_MAX);
	rdv_buffer_init(&out, FIELD_MAX);
	rdv_buffer_slice(&spaced, raw);
	for (size_t i = 0; plus && i < spaced.size; i++)
		if (spaced.data[i] == '+')
			spaced.data[i] = ' ';
	char *text = NULL;
	if (!spaced.failed && rdv_percent_decode(&out, rdv_buffer_as_slice(&spaced)) == REDRIVE_OK && !out.failed) {
		*size = out.size;
		text = malloc(out.size + 1);
		if (text) {
			memcpy(text, rdv_buffer_string(&out), out.size);
			text[out.size] = '\0';
		}
	}
	rdv_buffer_done(&spaced);
	rdv_buffer_done(&out);
	return text;
}

struct rdv_slice rdv_field_value(const char *text, struct rdv_buffer *out)
{
	struct rdv_slice raw = rdv_slice_text(text);
	rdv_buffer_init(out, FIELD_MAX);
	if (!strchr(text, '%'))
		return raw;
	if (rdv_percent_decode(out, raw) == REDRIVE_OK && !out->failed)
		return rdv_buffer_as_slice(out);
	rdv_buffer_done(out);
	return raw;
}

static enum redrive_status wrong_field(const char **field, const char **wrong, const char *name, const char *text)
{
	*field = name;
	*wrong = text;
	return REDRIVE_INVALID;
}

enum redrive_status rdv_field_due(const char *delay, const char *at, struct rdv_wall now, struct rdv_wall *out,
				  const char **field, const char **wrong)
{
	int64_t ms = 0;
	out->ms = 0;
	if (delay && at)
		return wrong_field(field, wrong, "Redrive-Delay",
				   "stands together with Redrive-Not-Before: give one of them");
	if (delay && rdv_duration_parse(rdv_slice_text(delay), &ms) != REDRIVE_OK)
		return wrong_field(field, wrong, "Redrive-Delay", "is no duration with a unit, like 10s or 5m");
	if (at && rdv_wall_parse(rdv_slice_text(at), out) != REDRIVE_OK)
		return wrong_field(field, wrong, "Redrive-Not-Before",
				   "is no time like 2026-11-30T12:00:00Z, up to the year 9999");
	if (ms > 0)
		out->ms = rdv_ms_add(now.ms, ms);
	if (out->ms > YEAR_9999_END)
		return wrong_field(field, wrong, delay ? "Redrive-Delay" : "Redrive-Not-Before",
				   "lies beyond the year 9999");
	return REDRIVE_OK;
}

bool rdv_field_path(const char *pattern, const char *path, struct rdv_slice params[], size_t max, size_t *count)
{
	*count = 0;
	while (*pattern == '/' && *path == '/') {
		size_t a = strcspn(pattern + 1, "/"), b = strcspn(path + 1, "/");
		if (pattern[1] == '{') {
			if (*count == max)
				return false;
			params[(*count)++] = rdv_slice(path + 1, b);
		} else if (a != b || memcmp(pattern + 1, path + 1, a) != 0) {
			return false;
		}
		pattern += 1 + a;
		path += 1 + b;
	}
	return *pattern == '\0' && *path == '\0';
}
