/* test_exec.c - real processes: what they get, how they end, what they leave behind. */
#include "kit.h"
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/text.h"

struct exec_world {
	struct rdv_exec_pool *pool;
	struct rdv_handler *handler;
	struct kit_sink sink;
	char dir[64];
};

static void open_dir(struct exec_world *w)
{
	strcpy(w->dir, "/tmp/redrive-exec-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
}

static void open_with(struct exec_world *w, struct rdv_exec_options options)
{
	*w = (struct exec_world){.pool = NULL};
	open_dir(w);
	options.dir = options.dir ? options.dir : w->dir;
	options.timeout_ms = options.timeout_ms ? options.timeout_ms : 20000;
	assert_int_equal(rdv_exec_pool_new(&w->pool, NULL), REDRIVE_OK);
	assert_int_equal(rdv_exec_new(w->pool, &options, kit_sink(&w->sink), &w->handler, NULL), REDRIVE_OK);
}

/* A shell script as the handler. */
static void open_script(struct exec_world *w, const char *script, struct rdv_exec_options options)
{
	const char *const command[] = {"sh", "-c", script};

	options.command = command;
	options.command_count = 3;
	open_with(w, options);
}

static void remove_dir(const char *dir)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static void close_world(struct exec_world *w)
{
	w->handler->ops->free(w->handler);
	rdv_exec_pool_free(w->pool);
	remove_dir(w->dir);
}

static struct rdv_call *run_script(const char *script, const struct rdv_body *m)
{
	struct exec_world w;
	struct rdv_call *c;

	open_script(&w, script, (struct rdv_exec_options){0});
	c = kit_send(w.handler, &w.sink, kit_call(8812, m));
	close_world(&w);
	return c;
}

/* What the script wrote into the file `out` of its directory; NUL-terminated, malloc'ed. */
static char *read_out(const struct exec_world *w, size_t *size)
{
	char path[128], *text = calloc(1, 1 << 20);
	FILE *f;

	snprintf(path, sizeof path, "%s/out", w->dir);
	f = fopen(path, "rb");
	assert_non_null(f);
	*size = fread(text, 1, (1 << 20) - 1, f);
	fclose(f);
	return text;
}

static char *script_output(const char *script, struct rdv_call *c, struct rdv_exec_options options, size_t *size)
{
	struct exec_world w;
	char *out;

	open_script(&w, script, options);
	c = kit_send(w.handler, &w.sink, c);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
	assert_int_equal(c->answer.exit_code, 0);
	kit_free(c);
	out = read_out(&w, size);
	close_world(&w);
	return out;
}

static void exit_codes_become_the_verdicts_of_the_table(void **state)
{
	static const struct {
		const char *script;
		int code;
		enum rdv_verdict_kind verdict;
		enum rdv_kind kind;
	} table[] = {
		{"exit 0", 0, RDV_ACK, RDV_KIND_OK},        {"exit 75", 75, RDV_RETRY, RDV_KIND_INFRA},
		{"exit 64", 64, RDV_REJECT, RDV_KIND_MSG},  {"exit 74", 74, RDV_REJECT, RDV_KIND_MSG},
		{"exit 76", 76, RDV_REJECT, RDV_KIND_MSG},  {"exit 78", 78, RDV_REJECT, RDV_KIND_MSG},
		{"exit 1", 1, RDV_RETRY, RDV_KIND_APP},     {"exit 79", 79, RDV_RETRY, RDV_KIND_APP},
		{"exit 255", 255, RDV_RETRY, RDV_KIND_APP},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_call *c = run_script(table[i].script, NULL);
		struct rdv_verdict v;

		assert_int_equal(c->answer.transport, RDV_TRANSPORT_ANSWER);
		assert_int_equal(c->answer.exit_code, table[i].code);
		rdv_rules_judge(NULL, "r", &c->answer, &v);
		if (v.kind != table[i].verdict || v.evidence != table[i].kind)
			fail_msg("%s: %s, %s", table[i].script, rdv_verdict_name(v.kind), rdv_kind_name(v.evidence));
		kit_free(c);
	}
}

/* pitfall: one message crashes its worker */
static void death_by_a_signal_is_a_crash(void **state)
{
	struct rdv_call *c = run_script("kill -SEGV $$", NULL);
	struct rdv_verdict v;

	assert_int_equal(c->answer.transport, RDV_TRANSPORT_SIGNAL);
	assert_true(kit_text_is(c->answer.failure.code, "signal 11"));
	rdv_rules_judge(NULL, "r", &c->answer, &v);
	assert_int_equal(v.cause, RDV_CAUSE_CRASH);
	kit_free(c);
}

static void standard_error_becomes_class_text_and_stack(void **state)
{
	struct rdv_call *c =
		run_script("echo 'OrderInvalid: no such item' >&2; echo ' at line 3' >&2; echo ignored; exit 65", NULL);

	assert_true(kit_text_is(c->answer.failure.class, "OrderInvalid"));
	assert_true(kit_text_is(c->answer.failure.text, "OrderInvalid: no such item\n at line 3"));
	assert_true(kit_text_is(c->answer.failure.stack, "OrderInvalid: no such item\n at line 3"));
	kit_free(c);
}

static void a_flood_on_both_outputs_is_bounded_and_its_end_is_kept(void **state)
{
	struct rdv_call *c = run_script("yes out | head -c 10000000; yes err | head -c 10000000 >&2; echo 'Last: word' "
					">&2; printf '\\377' >&2; exit 1",
					NULL);

	assert_true(kit_text_is(c->answer.failure.class, "Last"));
	assert_true(c->answer.failure.text.size <= 1002);
	assert_true(rdv_utf8_valid(c->answer.failure.text));
	assert_true(c->answer.failure.stack.size <= RDV_ERROR_STACK_BYTES);
	kit_free(c);
}

static void the_body_is_on_standard_input_byte_for_byte(void **state)
{
	size_t size = 500000, out_size;
	uint8_t *bytes = malloc(size);
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY, .body = rdv_slice(bytes, size)};
	char *out;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * 13 + (i >> 9));
	out = script_output("cat /dev/stdin > out", kit_call(1, &m), (struct rdv_exec_options){0}, &out_size);
	assert_int_equal(out_size, size);
	assert_memory_equal(out, bytes, size);
	free(out);
	free(bytes);
}

static void a_process_that_does_not_read_its_input_is_no_failure(void **state)
{
	size_t size = 4 << 20;
	uint8_t *bytes = calloc(1, size);
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY, .body = rdv_slice(bytes, size)};
	struct rdv_call *c = run_script("exit 0", &m);

	assert_int_equal(c->answer.exit_code, 0);
	kit_free(c);
	c = run_script("exec 0<&-; head -c 100 /dev/zero > /dev/null; exit 3", &m);
	assert_int_equal(c->answer.exit_code, 3);
	kit_free(c);
	free(bytes);
}

static void the_environment_names_the_message(void **state)
{
	struct rdv_header items[] = {{rdv_slice_text("n"), rdv_slice_text("v \"q\"")},
				     {rdv_slice_text("bin"), rdv_slice("\xff", 1)},
				     {rdv_slice_text("nul"), rdv_slice("a\0b", 3)}};
	struct rdv_pair pairs[] = {{"SHOP", "x"}, {"PATH", "/usr/bin:/bin"}};
	struct rdv_buffer headers;
	struct rdv_body m = {.key = rdv_slice("k\0%\n", 4), .content_type = rdv_slice_text("text/plain")};
	struct rdv_call *c;
	json_t *list;
	size_t size;
	char *out, *line;

	rdv_buffer_init(&headers, 0);
	rdv_headers_encode(&headers, items, 3);
	m.headers = rdv_buffer_as_slice(&headers);
	c = kit_call(8812, &m);
	c->attempt = 4;
	c->first_failed_at.ms = 1796053126123;
	c->replay = "p-1";
	setenv("REDRIVE_TOKEN", "secret", 1);
	setenv("SHOP", "ours", 1);
	out = script_output("env > out", c, (struct rdv_exec_options){.env = pairs, .env_count = 2}, &size);
	unsetenv("REDRIVE_TOKEN");
	unsetenv("SHOP");
	assert_non_null(strstr(out, "REDRIVE_MESSAGE_ID=order.create-2-8812\n"));
	assert_non_null(strstr(out, "REDRIVE_ROUTE=orders\n"));
	assert_non_null(strstr(out, "REDRIVE_TOPIC=order.create\n"));
	assert_non_null(strstr(out, "REDRIVE_PARTITION=2\n"));
	assert_non_null(strstr(out, "REDRIVE_OFFSET=8812\n"));
	assert_non_null(strstr(out, "REDRIVE_KEY=k%00%25%0A\n"));
	assert_non_null(strstr(out, "REDRIVE_ATTEMPT=4\n"));
	assert_non_null(strstr(out, "REDRIVE_EPOCH=7\n"));
	assert_non_null(strstr(out, "REDRIVE_REPLAY=p-1\n"));
	assert_non_null(strstr(out, "REDRIVE_FIRST_FAILED_AT=2026-11-30T15:38:46.123Z\n"));
	assert_non_null(strstr(out, "REDRIVE_IDEMPOTENCY_KEY=order.create-2-8812\n"));
	assert_non_null(strstr(out, "REDRIVE_CONTENT_TYPE=text/plain\n"));
	assert_non_null(strstr(out, "SHOP=x\n"));
	assert_null(strstr(out, "SHOP=ours"));
	assert_null(strstr(out, "secret"));
	assert_null(strstr(out, "REDRIVE_NULL"));
	line = strstr(out, "REDRIVE_HEADERS=");
	assert_non_null(line);
	list = json_loads(strndupa(line + 16, strcspn(line + 16, "\n")), JSON_ALLOW_NUL, NULL);
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(json_string_value(json_array_get(json_array_get(list, 0), 1)), "v \"q\"");
	assert_string_equal(json_string_value(json_array_get(json_array_get(list, 1), 1)), "%FF");
	assert_int_equal(json_string_length(json_array_get(json_array_get(list, 2), 1)), 3);
	json_decref(list);
	rdv_buffer_done(&headers);
	free(out);
}

/* pitfall: a tombstone breaks the error path of a consumer */
static void null_keys_empty_keys_and_tombstones_are_told_apart(void **state)
{
	struct rdv_body m = {.flags = RDV_BODY_NULL_KEY | RDV_BODY_TOMBSTONE};
	static const char script[] =
		"{ echo \"${REDRIVE_KEY-none}|${REDRIVE_NULL-no}|${REDRIVE_HEADERS}\"; wc -c; } > out";
	size_t size;
	char *out = script_output(script, kit_call(1, &m), (struct rdv_exec_options){0}, &size);

	assert_string_equal(out, "none|true|[]\n0\n");
	free(out);
	m.flags = 0;
	out = script_output(script, kit_call(1, &m), (struct rdv_exec_options){0}, &size);
	assert_string_equal(out, "|no|[]\n0\n");
	free(out);
}

static void a_child_has_only_its_three_descriptors_and_no_blocked_signals(void **state)
{
	int leak = open("/dev/null", O_RDONLY); /* not close-on-exec, as some library's may be */
	struct rdv_http_pool *http;
	size_t size;
	char *out;

	assert_int_equal(rdv_http_pool_new(&http, NULL), REDRIVE_OK);
	out = script_output("ls /proc/self/fd | wc -l > out; grep SigBlk /proc/self/status >> out", kit_call(1, NULL),
			    (struct rdv_exec_options){0}, &size);
	assert_string_equal(out, "4\nSigBlk:\t0000000000000000\n"); /* 0, 1, 2 and what ls itself opened */
	free(out);
	rdv_http_pool_free(http);
	close(leak);
}

static pid_t pid_in(const char *out)
{
	return (pid_t)atoi(out);
}

static bool is_gone(pid_t pid)
{
	char path[64], state[256] = "";
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return true;
	if (!fgets(state, sizeof state, f))
		state[0] = '\0';
	fclose(f);
	return strstr(state, ") Z ") != NULL; /* whose parent has not yet looked */
}

static void a_process_that_ignores_term_is_killed_with_its_children(void **state)
{
	struct exec_world w;
	struct rdv_call *c;
	size_t size;
	char *out;

	open_script(&w, "trap '' TERM; sleep 1000 & echo $! > out; echo 'Stuck: here' >&2; wait; wait; sleep 1000",
		    (struct rdv_exec_options){.timeout_ms = 300, .kill_after_ms = 200});
	c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
	assert_in_range(c->answer.took_ms, 499, 20000);
	assert_true(kit_text_is(c->answer.failure.class, "Stuck"));
	out = read_out(&w, &size);
	while (!is_gone(pid_in(out)))
		sched_yield();
	kit_free(c);
	free(out);
	close_world(&w);
}

static void a_process_that_ends_itself_on_term_is_a_timeout_all_the_same(void **state)
{
	struct exec_world w;
	struct rdv_call *c;

	open_script(&w, "trap 'exit 0' TERM; while :; do sleep 0.01; done",
		    (struct rdv_exec_options){.timeout_ms = 200});
	c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
	assert_in_range(c->answer.took_ms, 199, 4999);
	kit_free(c);
	close_world(&w);
}

static void term_reaches_the_whole_group_and_what_ignores_it_is_killed_at_the_end(void **state)
{
	static const char script[] =
		"(trap 'echo term >> out; exit' TERM; echo ready >> out; while :; do sleep 0.01; done) &\n"
		"(trap '' TERM; echo ready >> out; exec sleep 1000) &\n"
		"echo $! > stubborn; trap 'while ! grep -q term out; do sleep 0.01; done; exit 0' TERM; wait; wait";
	struct exec_world w;
	struct rdv_call *c;
	char path[128], text[16] = "", *out;
	size_t size;
	FILE *f;

	open_script(&w, script, (struct rdv_exec_options){.timeout_ms = 1000, .kill_after_ms = 60000});
	c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_TIMEOUT);
	assert_true(c->answer.took_ms < 50000);
	out = read_out(&w, &size);
	assert_non_null(strstr(out, "term"));
	snprintf(path, sizeof path, "%s/stubborn", w.dir);
	f = fopen(path, "r");
	assert_non_null(fgets(text, sizeof text, f));
	fclose(f);
	for (int64_t until = rdv_mono_now().ms + 20000; !is_gone(pid_in(text)); sched_yield())
		assert_true(rdv_mono_now().ms < until);
	free(out);
	kit_free(c);
	close_world(&w);
}

static void a_descendant_that_keeps_the_pipes_open_does_not_hold_up_the_call(void **state)
{
	struct exec_world w;
	struct rdv_call *c;
	size_t size;
	char *out;

	open_script(&w, "(while :; do echo noise; sleep 0.001; done) >&2 & echo $! > out; exit 7",
		    (struct rdv_exec_options){0});
	c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
	assert_int_equal(c->answer.exit_code, 7);
	assert_true(c->answer.took_ms < 10000);
	out = read_out(&w, &size);
	kill(pid_in(out), SIGKILL);
	kit_free(c);
	free(out);
	close_world(&w);
}

static void cut_ends_a_process_that_ignores_term(void **state)
{
	struct exec_world w;
	struct rdv_call *c;
	int64_t before = rdv_mono_now().ms;

	open_script(&w, "trap '' TERM; sleep 1000; sleep 1000",
		    (struct rdv_exec_options){.timeout_ms = 600000, .kill_after_ms = 600000});
	w.handler->ops->submit(w.handler, kit_call(1, NULL));
	w.handler->ops->cut(w.handler);
	c = kit_wait(&w.sink, 1);
	assert_int_equal(c->answer.transport, RDV_TRANSPORT_SHUTDOWN);
	assert_true(rdv_mono_now().ms - before < 20000);
	kit_free(c);
	close_world(&w);
}

static void a_command_that_cannot_start_says_why(void **state)
{
	static const struct {
		const char *command, *word;
	} table[] = {{"redrive-no-such-command", "No such file"},
		     {"./not-there", "No such file"},
		     {"/etc/passwd", "Permission denied"}};

	for (size_t i = 0; i < 3; i++) {
		const char *const command[] = {table[i].command};
		struct exec_world w;
		struct rdv_call *c;

		open_with(&w, (struct rdv_exec_options){.command = command, .command_count = 1});
		c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_OTHER);
		assert_non_null(memmem(c->answer.failure.text.data, c->answer.failure.text.size, table[i].word,
				       strlen(table[i].word)));
		kit_free(c);
		close_world(&w);
	}
}

static void a_relative_command_is_found_in_its_directory(void **state)
{
	static const char *const command[] = {"./handle", "arg one"};
	struct exec_world w;
	struct rdv_call *c;
	char path[128], *out;
	size_t size;
	FILE *f;

	open_with(&w, (struct rdv_exec_options){.command = command, .command_count = 2});
	snprintf(path, sizeof path, "%s/handle", w.dir);
	f = fopen(path, "w");
	fputs("#!/bin/sh\nprintf '%s' \"$1\" > out\n", f);
	fclose(f);
	chmod(path, 0755);
	c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
	assert_int_equal(c->answer.exit_code, 0);
	out = read_out(&w, &size);
	assert_string_equal(out, "arg one");
	free(out);
	kit_free(c);
	close_world(&w);
}

static void options_that_cannot_work_are_refused(void **state)
{
	static const char *const command[] = {"true"}, *const none[] = {""};
	static const struct rdv_pair ours = {"REDRIVE_KEY", "x"}, odd = {"A=B", "x"}, empty = {"", "x"};
	const struct rdv_exec_options table[] = {
		{.command = command, .command_count = 0},
		{.command = none, .command_count = 1},
		{.command = command, .command_count = 1, .dir = "/no/such/place"},
		{.command = command, .command_count = 1, .env = &ours, .env_count = 1},
		{.command = command, .command_count = 1, .env = &odd, .env_count = 1},
		{.command = command, .command_count = 1, .env = &empty, .env_count = 1},
	};
	struct rdv_exec_pool *pool;
	struct rdv_handler *h;
	struct kit_sink sink;

	assert_int_equal(rdv_exec_pool_new(&pool, NULL), REDRIVE_OK);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct rdv_error error = {""};

		assert_int_equal(rdv_exec_new(pool, &table[i], kit_sink(&sink), &h, &error), REDRIVE_INVALID);
		assert_true(error.text[0] != '\0');
	}
	rdv_exec_pool_free(pool);
}

static void an_ignored_sigchld_costs_no_exit_status(void **state)
{
	void (*before)(int) = signal(SIGCHLD, SIG_IGN); /* as inherited from a careless parent */
	struct rdv_call *c = run_script("exit 3", NULL);

	assert_int_equal(c->answer.exit_code, 3);
	kit_free(c);
	signal(SIGCHLD, before);
}

static void running_out_of_descriptors_fails_the_call_and_nothing_else(void **state)
{
	static const char *const command[] = {"true"};
	struct rlimit before, few;
	struct exec_world w;
	struct rdv_call *c;

	open_with(&w, (struct rdv_exec_options){.command = command, .command_count = 1});
	getrlimit(RLIMIT_NOFILE, &before);
	for (rlim_t more = 0; more < 4; more++) { /* each of the descriptors a process needs is the one too many once */
		few = before;
		few.rlim_cur = (rlim_t)kit_open_fds() + more;
		setrlimit(RLIMIT_NOFILE, &few);
		c = kit_send(w.handler, &w.sink, kit_call(1, NULL));
		setrlimit(RLIMIT_NOFILE, &before);
		assert_int_equal(c->answer.transport, RDV_TRANSPORT_OTHER);
		kit_free(c);
	}
	c = kit_send(w.handler, &w.sink, kit_call(2, NULL));
	assert_int_equal(c->answer.exit_code, 0);
	kit_free(c);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_codes_become_the_verdicts_of_the_table),
		cmocka_unit_test(death_by_a_signal_is_a_crash),
		cmocka_unit_test(standard_error_becomes_class_text_and_stack),
		cmocka_unit_test(a_flood_on_both_outputs_is_bounded_and_its_end_is_kept),
		cmocka_unit_test(the_body_is_on_standard_input_byte_for_byte),
		cmocka_unit_test(a_process_that_does_not_read_its_input_is_no_failure),
		cmocka_unit_test(the_environment_names_the_message),
		cmocka_unit_test(null_keys_empty_keys_and_tombstones_are_told_apart),
		cmocka_unit_test(a_child_has_only_its_three_descriptors_and_no_blocked_signals),
		cmocka_unit_test(a_process_that_ignores_term_is_killed_with_its_children),
		cmocka_unit_test(a_process_that_ends_itself_on_term_is_a_timeout_all_the_same),
		cmocka_unit_test(term_reaches_the_whole_group_and_what_ignores_it_is_killed_at_the_end),
		cmocka_unit_test(a_descendant_that_keeps_the_pipes_open_does_not_hold_up_the_call),
		cmocka_unit_test(cut_ends_a_process_that_ignores_term),
		cmocka_unit_test(a_command_that_cannot_start_says_why),
		cmocka_unit_test(a_relative_command_is_found_in_its_directory),
		cmocka_unit_test(options_that_cannot_work_are_refused),
		cmocka_unit_test(an_ignored_sigchld_costs_no_exit_status),
		cmocka_unit_test(running_out_of_descriptors_fails_the_call_and_nothing_else),
	};

	return cmocka_run_group_tests_name("handlers: exec", tests, NULL, NULL);
}
