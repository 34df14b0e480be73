/* fuzz_request.c - the parts of an HTTP request: Host, Origin, path, query value, header value, due time, token. The
 * input is cut at line feeds into these fields. Properties: nothing crashes; a foreign host is never allowed; what was
 * encoded decodes to itself; a due time never lies before now or beyond the year 9999. */
#include <stdlib.h>
#include "api/exchange.h"
#include "api/fields.h"
#include "base/text.h"

#define CHECK(c)                                                                                                       \
	do {                                                                                                           \
		if (!(c))                                                                                              \
			abort();                                                                                       \
	} while (0)

static void check_host(const char *host)
{
	static const char *const none[] = {NULL};
	bool allowed = rdv_host_allowed(host, none, 0);
	if (allowed)
		CHECK(strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "127.0.0.1", 9) == 0 ||
		      strncmp(host, "[::1]", 5) == 0);
	if (rdv_origin_allowed(host, none, 0))
		CHECK(strncasecmp(host, "http", 4) == 0);
}

static void check_escapes(const char *text, size_t size)
{
	struct rdv_buffer encoded, value;
	size_t got = 0;
	rdv_buffer_init(&encoded, 0);
	rdv_url_encode(&encoded, rdv_slice(text, size));
	char *back = rdv_field_decode(rdv_buffer_as_slice(&encoded), false, &got);
	CHECK(back && got == size && memcmp(back, text, size) == 0);
	free(back);
	rdv_buffer_done(&encoded);
	free(rdv_field_decode(rdv_slice(text, size), true, &got));
	rdv_field_value(text, &value);
	rdv_buffer_done(&value);
}

static void check_due(const char *delay, const char *at)
{
	const struct rdv_wall now = {1796000000000};
	struct rdv_wall due;
	const char *field, *wrong;
	if (rdv_field_due(*delay ? delay : NULL, *at ? at : NULL, now, &due, &field, &wrong) == REDRIVE_OK)
		CHECK(due.ms <= 253402300799999 && (due.ms == 0 || *at || due.ms > now.ms));
	else
		CHECK(field && wrong);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *fields[6], *copy = malloc(size + 1);
	size_t count = 0;
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	char *rest = copy;
	for (; count < 6; count++) {
		fields[count] = rest;
		char *end = strchr(rest, '\n');
		if (end) {
			*end = '\0';
			rest = end + 1;
		} else {
			rest += strlen(rest);
		}
	}
	struct rdv_slice params[3];
	size_t n;
	check_host(fields[0]);
	for (size_t i = 0; i < rdv_operation_count; i++)
		if (rdv_field_path(rdv_operations[i].path, fields[1], params, 3, &n))
			CHECK(n <= 3);
	check_escapes(fields[2], strlen(fields[2]));
	check_due(fields[3], fields[4]);
	struct rdv_tokens none = {NULL, 0};
	CHECK(rdv_tokens_find(&none, rdv_slice_text(fields[5])) == NULL);
	free(copy);
	return 0;
}
