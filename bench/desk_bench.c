/* desk_bench.c - what the desk takes in and how it is read: letters of 1 KiB bodies, real files, real syncs.
 *
 *   desk_bench [letters] [dir]      prints one JSON object: letters per second, the desk's own CPU time and bytes per
 * letter, times of reads. On a busy machine the CPU time is the figure to compare.
 *
 * Envelopes are unique per letter (all terms differ but the route's), so the index works at its worst. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/random.h"
#include "base/text.h"
#include "desk/desk.h"

static _Atomic uint64_t stored, failed;

static void on_stored(void *ctx, uint64_t cookie, enum redrive_status status)
{
	if (status == REDRIVE_OK)
		stored++;
	else
		failed++;
}

static void make(uint64_t i, struct rdv_random *random, struct rdv_block **envelope, struct rdv_block **body)
{
	char key[32], text[200];
	struct rdv_envelope e = {
		.partition = (uint32_t)i % 4, .offset = i, .reason = RDV_REASON_EXHAUSTED, .body_size = 1024};
	struct rdv_buffer b;
	snprintf(key, sizeof key, "order-%llu", (unsigned long long)i);
	snprintf(text, sizeof text, "upstream request %llu to the payment service timed out after 30000 ms",
		 (unsigned long long)rdv_random_next(random));
	e.cluster = rdv_slice_text("bench");
	e.topic = rdv_slice_text("order.create");
	e.route = rdv_slice_text("order-create");
	e.key = rdv_slice_text(key);
	e.dead_at.ms = 1790000000000 + (int64_t)(i / 50);
	e.fingerprint = rdv_random_next(random);
	e.failure.text = rdv_slice_text(text);
	e.failure.code = rdv_slice_text("504");
	e.causes.failures = 5;
	e.history_count = 5;
	for (int h = 0; h < 5; h++)
		e.history[h] =
			(struct rdv_attempt){.n = (uint32_t)h + 1, .code = e.failure.code, .text = e.failure.text};
	rdv_buffer_init(&b, 0);
	rdv_envelope_encode(&e, &b);
	*envelope = rdv_block_copy(rdv_buffer_as_slice(&b));
	rdv_buffer_done(&b);
	*body = rdv_block_new(1024);
	size_t used = 0;
	while (used < 1000)
		used += (size_t)snprintf(
			(char *)(*body)->data + used, 1024 - used, "{\"item\":\"%016llx\",\"count\":%llu},",
			(unsigned long long)rdv_random_next(random), (unsigned long long)rdv_random_below(random, 10));
}

static uint64_t first_id(struct rdv_desk *d, uint64_t letters, char id[27])
{
	return rdv_desk_find(d, "order-create", "order.create", (uint32_t)(letters / 2) % 4, letters / 2, id) ==
	       REDRIVE_OK;
}

static void ignore(void *ctx, const struct rdv_letter *l)
{
}

static double read_us(struct rdv_desk *d, const struct rdv_query *q, int times)
{
	int64_t begin = rdv_mono_now_us();
	for (int i = 0; i < times; i++) {
		char cursor[RDV_CURSOR_TEXT] = "";
		if (rdv_desk_list(d, q, false, 50, cursor, ignore, NULL, NULL) != REDRIVE_OK)
			return -1;
	}
	return (double)(rdv_mono_now_us() - begin) / times;
}

static double cpu_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int run(struct rdv_desk *d, uint64_t letters)
{
	struct rdv_random random;
	struct rdv_desk_counts counts;
	char id[27], key[32];
	rdv_random_seed(&random, 1);
	double cpu = cpu_us(CLOCK_PROCESS_CPUTIME_ID), own = cpu_us(CLOCK_THREAD_CPUTIME_ID);
	int64_t begin = rdv_mono_now_us(), making = 0;
	for (uint64_t i = 0; i < letters; i++) {
		struct rdv_block *envelope, *body;
		int64_t before = rdv_mono_now_us();
		make(i, &random, &envelope, &body);
		making += rdv_mono_now_us() - before;
		rdv_block_ref(envelope);
		rdv_block_ref(body);
		while (rdv_desk_put(d, envelope, body, on_stored, NULL, i) == REDRIVE_FULL) {
			rdv_block_ref(envelope);
			rdv_block_ref(body);
			usleep(500);
		}
		rdv_block_unref(envelope);
		rdv_block_unref(body);
	}
	while (rdv_desk_waiting(d))
		usleep(500);
	double seconds = (double)(rdv_mono_now_us() - begin) / 1e6;
	cpu = cpu_us(CLOCK_PROCESS_CPUTIME_ID) - cpu - (cpu_us(CLOCK_THREAD_CPUTIME_ID) - own);
	rdv_desk_counts(d, &counts);
	if (!first_id(d, letters, id))
		return 1;
	struct rdv_query all = {0}, one = {.has_key = true, .key = key};
	one.key_size = (size_t)snprintf(key, sizeof key, "order-%llu", (unsigned long long)letters / 2);
	double page = read_us(d, &all, 20), by_key = read_us(d, &one, 200);
	printf("{\"letters\": %llu, \"failed\": %llu, \"per_second\": %.0f, \"making_s\": %.2f, \"seconds\": %.2f, "
	       "\"desk_cpu_us_per_letter\": %.2f,"
	       " \"segment_bytes_per_letter\": %.0f, \"page_us\": %.0f, \"by_key_us\": %.0f}\n",
	       (unsigned long long)stored, (unsigned long long)failed, (double)letters / seconds, (double)making / 1e6,
	       seconds, cpu / (double)letters, (double)counts.bytes / (double)letters, page, by_key);
	return failed != 0;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/redrive-desk-bench-XXXXXX";
	static const struct rdv_desk_runtime none;
	struct rdv_desk_options options = {.dir = argc > 2 ? argv[2] : mkdtemp(dir)};
	struct rdv_desk *d = NULL;
	struct rdv_error error = {{0}};
	uint64_t letters = argc > 1 ? strtoull(argv[1], NULL, 10) : 300000;
	if (!options.dir || !letters || rdv_desk_open(&options, &d, &error) != REDRIVE_OK ||
	    rdv_desk_start(d, &none, &error) != REDRIVE_OK) {
		fprintf(stderr, "desk_bench: %s\n", error.text);
		return 1;
	}
	int result = run(d, letters);
	rdv_desk_stop(d);
	rdv_desk_free(d);
	if (argc <= 2) {
		char command[128];
		snprintf(command, sizeof command, "rm -rf %s", dir);
		result |= system(command) != 0;
	}
	return result;
}
