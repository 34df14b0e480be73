/* publish.c - redrive publish: one message, one per line, or a batch file.
 *
 * --lines and --ndjson send batches of at most 1,000 lines or 1 MiB; each batch is all or nothing. The line number of a
 * bad line in a file is reported as the file's, not the batch's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "../../base/text.h"
#include "../client.h"
#include "../output.h"
#include "commands.h"

#define BATCH_LINES 1000u
#define BATCH_BYTES (1u << 20)
#define BODY_READ_MAX (256u << 20)
#define HEADERS_MAX 256u /* as the server */

static const struct argp_option options[] = {
	{"key", 'k', "KEY", 0, "Key of the message; messages of one key keep their order", 1},
	{"id", RDV_OPT_ID, "ID", 0,
	 "The producer's id: a second publish of it is answered with the first one's position", 1},
	{"header", 'H', "NAME=VALUE", 0, "A header of the message; may be given several times", 1},
	{"delay", RDV_OPT_DELAY, "DURATION", 0, "Deliver it so much later, like 10s", 1},
	{"content-type", 't', "TYPE", 0, "Content type of the body", 1},
	{"null", RDV_OPT_NULL, NULL, 0, "A tombstone: no body", 1},
	{"lines", RDV_OPT_LINES, NULL, 0, "One message per line", 2},
	{"ndjson", RDV_OPT_NDJSON, NULL, 0, "A batch file, one JSON object per line", 2},
	{0},
};

struct headers {
	char *items[264]; /* the server takes 256 of the message's own; NULL-terminated */
	size_t count;
};

static void add_header(struct headers *h, const char *name, struct rdv_slice value)
{
	struct rdv_buffer line;
	rdv_buffer_init(&line, 1 << 20);
	rdv_buffer_printf(&line, "%s", name);
	rdv_buffer_text(&line, value.size ? ": " : ";"); /* curl's way to send a header without value */
	rdv_buffer_slice(&line, value);
	if (h->count + 1 < sizeof h->items / sizeof h->items[0] && !line.failed)
		h->items[h->count++] = strdup(rdv_buffer_string(&line));
	rdv_buffer_done(&line);
}

static void add_encoded(struct headers *h, const char *name, struct rdv_slice value)
{
	struct rdv_buffer encoded;
	rdv_buffer_init(&encoded, 1 << 20);
	rdv_percent_encode(&encoded, value);
	add_header(h, name, rdv_buffer_as_slice(&encoded));
	rdv_buffer_done(&encoded);
}

/* What goes into a header as it is must not end it. */
static int check_plain(const char *option, const char *value)
{
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return rdv_command_fail(2, "%s holds a control character", option);
	return 0;
}

static bool is_header_name(const char *text, size_t size)
{
	static const char allowed[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return size > 0 && size <= 250 && strspn(text, allowed) >= size;
}

static int add_given_headers(const struct rdv_invocation *in, struct headers *h)
{
	unsigned given = 0;
	for (size_t i = 0; i < in->given_count; i++) {
		if (in->given[i].key != 'H')
			continue;
		if (++given > HEADERS_MAX)
			return rdv_command_fail(2, "at most %u headers are allowed", HEADERS_MAX);
		const char *equals = strchr(in->given[i].value, '=');
		if (!equals || !is_header_name(in->given[i].value, (size_t)(equals - in->given[i].value)))
			return rdv_command_fail(2, "--header %s: write NAME=VALUE, NAME of letters, digits, - and _",
						in->given[i].value);
		char name[300];
		snprintf(name, sizeof name, "Redrive-Header-%.*s", (int)(equals - in->given[i].value),
			 in->given[i].value);
		add_encoded(h, name, rdv_slice_text(equals + 1));
	}
	return 0;
}

static int message_headers(const struct rdv_invocation *in, struct headers *h)
{
	static const struct {
		int key;
		const char *option;
	} plain[] = {{RDV_OPT_ID, "--id"}, {RDV_OPT_DELAY, "--delay"}, {'t', "--content-type"}};
	const char *value;
	for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
		if ((value = rdv_option(in, plain[i].key)) && check_plain(plain[i].option, value) != 0)
			return 2;
	if ((value = rdv_option(in, 'k')))
		add_encoded(h, "Redrive-Key", rdv_slice_text(value));
	if ((value = rdv_option(in, RDV_OPT_ID)))
		add_header(h, "Redrive-Id", rdv_slice_text(value));
	if ((value = rdv_option(in, RDV_OPT_DELAY)))
		add_header(h, "Redrive-Delay", rdv_slice_text(value));
	if ((value = rdv_option(in, 't')))
		add_header(h, "Content-Type", rdv_slice_text(value));
	if (rdv_option_given(in, RDV_OPT_NULL))
		add_header(h, "Redrive-Null", rdv_slice_text("true"));
	return add_given_headers(in, h);
}

static void messages_path(const char *topic, struct rdv_buffer *path)
{
	rdv_buffer_init(path, 1 << 16);
	rdv_buffer_text(path, "/v1/topics");
	rdv_path_add(path, topic);
	rdv_buffer_text(path, "/messages");
}

static int open_input(const struct rdv_invocation *in, FILE **out)
{
	const char *file = in->arg_count > 1 ? in->args[1] : "-";
	*out = strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
	return *out ? 0 : rdv_command_fail(1, "'%s': %s", file, strerror(errno));
}

static int read_all(FILE *f, struct rdv_buffer *body)
{
	uint8_t *room;
	rdv_buffer_init(body, BODY_READ_MAX);
	while ((room = rdv_buffer_reserve(body, 65536))) {
		size_t n = fread(room, 1, 65536, f);
		body->size += n;
		if (n == 0)
			break;
	}
	return ferror(f) || body->failed ? rdv_command_fail(1, "the body cannot be read: %s",
							    body->failed ? "too large" : strerror(errno))
					 : 0;
}

static void tell_position(const struct rdv_invocation *in, const json_t *item)
{
	if (in->json)
		rdv_print_json(item);
	else
		printf("%s%s\n", rdv_json_text(item, "id", 0),
		       json_is_true(json_object_get(item, "duplicate")) ? " (duplicate)" : "");
}

static int publish_one(struct rdv_client *c, const struct rdv_invocation *in, FILE *f)
{
	struct headers h = {{NULL}, 0};
	struct rdv_buffer body = {0}, path;
	struct rdv_response response = {0};
	messages_path(in->args[0], &path);
	int code = message_headers(in, &h);
	if (code == 0 && !rdv_option_given(in, RDV_OPT_NULL))
		code = read_all(f, &body);
	if (code == 0) {
		struct rdv_request_body request = {rdv_buffer_as_slice(&body), (const char *const *)h.items, true};
		code = rdv_client_call(c, "POST", rdv_buffer_string(&path), &request, &response);
	}
	if (code == 0)
		tell_position(in, response.json);
	for (size_t i = 0; i < h.count; i++)
		free(h.items[i]);
	rdv_response_done(&response);
	rdv_buffer_done(&body);
	rdv_buffer_done(&path);
	return code;
}

/* ---- batches ---- */

struct batch {
	struct rdv_client *client;
	const struct rdv_invocation *in;
	struct rdv_buffer path, lines;
	size_t count, before; /* lines in this batch; lines of the file before it */
	uint64_t accepted, duplicates;
};

static int send_batch(struct batch *b)
{
	static const char *const headers[] = {"Content-Type: application/x-ndjson", NULL};
	if (b->count == 0)
		return 0;
	struct rdv_request_body request = {rdv_buffer_as_slice(&b->lines), headers, true};
	struct rdv_response response;
	int code = rdv_client_call(b->client, "POST", rdv_buffer_string(&b->path), &request, &response);
	if (code && b->before)
		fprintf(stderr, "  (line numbers count from line %zu of the input; everything before it was taken)\n",
			b->before + 1);
	json_int_t accepted = rdv_json_int(response.json, "accepted");
	b->accepted += (uint64_t)accepted;
	b->duplicates += code ? 0 : b->count - (uint64_t)accepted;
	if (code == 0 && b->in->json) {
		json_dumpf(response.json, stdout, JSON_COMPACT);
		putchar('\n');
	}
	b->before += b->count;
	b->count = 0;
	rdv_buffer_clear(&b->lines);
	rdv_response_done(&response);
	return code;
}

static int line_as_json(struct batch *b, const char *line, size_t size)
{
	json_t *object = json_object();
	const char *key = rdv_option(b->in, 'k');
	struct rdv_slice text = rdv_slice(line, size);
	if (rdv_utf8_valid(text) && !memchr(line, 0, size)) {
		json_object_set_new(object, "body_text", json_stringn(line, size));
	} else {
		struct rdv_buffer encoded;
		rdv_buffer_init(&encoded, 0);
		rdv_base64_encode(&encoded, text);
		json_object_set_new(object, "body_base64", json_string(rdv_buffer_string(&encoded)));
		rdv_buffer_done(&encoded);
	}
	if (key)
		json_object_set_new(object, "key", json_string(key));
	const char *type = rdv_option(b->in, 't');
	if (type)
		json_object_set_new(object, "content_type", json_string(type));
	char *json = json_dumps(object, JSON_COMPACT);
	rdv_buffer_text(&b->lines, json ? json : "");
	free(json);
	json_decref(object);
	return 0;
}

static int publish_lines(struct rdv_client *c, const struct rdv_invocation *in, FILE *f)
{
	struct batch b = {.client = c, .in = in};
	bool ndjson = rdv_option_given(in, RDV_OPT_NDJSON);
	struct stat info;
	uint64_t total = fstat(fileno(f), &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0, done = 0;
	messages_path(in->args[0], &b.path);
	rdv_buffer_init(&b.lines, BODY_READ_MAX);
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	int code = 0;
	while (code == 0 && (size = getline(&line, &room, f)) >= 0) {
		done += (uint64_t)size;
		if (size && line[size - 1] == '\n')
			size--;
		if (ndjson)
			rdv_buffer_append(&b.lines, line, (size_t)size);
		else
			line_as_json(&b, line, (size_t)size);
		rdv_buffer_u8(&b.lines, '\n');
		if (++b.count == BATCH_LINES || b.lines.size > BATCH_BYTES) {
			code = send_batch(&b);
			if (total > BATCH_BYTES && code == 0)
				rdv_progress("publishing bytes", done, total);
		}
	}
	if (code == 0)
		code = send_batch(&b);
	if (!in->json)
		printf("accepted %llu, duplicates %llu\n", (unsigned long long)b.accepted,
		       (unsigned long long)b.duplicates);
	free(line);
	rdv_buffer_done(&b.lines);
	rdv_buffer_done(&b.path);
	return code;
}

static int run(struct rdv_invocation *in)
{
	bool lines = rdv_option_given(in, RDV_OPT_LINES) || rdv_option_given(in, RDV_OPT_NDJSON);
	if (lines && (rdv_option_given(in, RDV_OPT_ID) || rdv_option_given(in, 'H') ||
		      rdv_option_given(in, RDV_OPT_DELAY) || rdv_option_given(in, RDV_OPT_NULL)))
		return rdv_command_fail(2, "--id, --header, --delay and --null are for one message: with --ndjson each "
					   "line names its own");
	struct rdv_client *c = NULL;
	FILE *f = NULL;
	int code = open_input(in, &f);
	if (code == 0)
		code = rdv_client_open(in, &c);
	if (code == 0)
		code = lines ? publish_lines(c, in, f) : publish_one(c, in, f);
	if (f && f != stdin)
		fclose(f);
	rdv_client_close(c);
	return code;
}

const struct rdv_command rdv_command_publish = {
	.name = "publish",
	.arguments = "TOPIC [FILE|-]",
	.doc = "Publish a message, lines or a batch file; returns when it is durable",
	.options = options,
	.common = RDV_COMMON_SERVER | RDV_COMMON_OUTPUT,
	.args_min = 1,
	.args_max = 2,
	.run = run,
};
