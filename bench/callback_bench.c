/* callback_bench.c - the callback handler alone: calls a second from submit through its threads to the sink and back.
 *
 * One thread submits and takes back, as the core does, with a bounded number of calls open and in lists of what
 * came back; the function acks at once. Prints one JSON object a line: value with the given number of threads,
 * and the processor time of a call.
 *
 *	callback_bench [THREADS [OPEN [SECONDS]]] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "handlers/handler.h"

#define GOAL 2500000.0
#define ROUNDS 5

struct back {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct rdv_call *first, **end;
};

static void complete(void *ctx, struct rdv_call *list)
{
	struct back *b = ctx;
	struct rdv_call *last = list;

	while (last->next)
		last = last->next;
	pthread_mutex_lock(&b->mutex);
	if (!b->first)
		pthread_cond_signal(&b->changed);
	*b->end = list;
	b->end = &last->next;
	pthread_mutex_unlock(&b->mutex);
}

static struct rdv_call *take_back(struct back *b)
{
	struct rdv_call *list;

	pthread_mutex_lock(&b->mutex);
	while (!b->first)
		pthread_cond_wait(&b->changed, &b->mutex);
	list = b->first;
	b->first = NULL;
	b->end = &b->first;
	pthread_mutex_unlock(&b->mutex);
	return list;
}

static bool ack(void *ctx, struct rdv_call *call)
{
	call->answer.explicit_verdict = true;
	call->answer.verdict = RDV_ACK;
	return true;
}

static double cpu_us(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static double run(uint32_t threads, size_t open, double seconds, double *cpu_ns)
{
	struct back back = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct rdv_callback_options options = {.call = ack, .threads = threads, .timeout_ms = 30000};
	struct rdv_call *calls = calloc(open, sizeof *calls), *list = NULL;
	int64_t start = rdv_mono_now_us(), until = start + (int64_t)(seconds * 1e6);
	double cpu = cpu_us();
	uint64_t id = 0, done = 0;
	struct rdv_handler *h;
	size_t left = open;

	back.end = &back.first;
	if (rdv_callback_new(&options, (struct rdv_sink){complete, &back}, &h, NULL))
		exit(1);
	for (size_t i = 0; i < open; i++) {
		rdv_call_init(&calls[i]);
		calls[i].id = ++id;
		calls[i].next = list;
		list = &calls[i];
	}
	while (rdv_mono_now_us() < until) {
		h->ops->submit(h, list);
		list = take_back(&back);
		for (struct rdv_call *c = list; c; c = c->next) {
			c->id = ++id;
			c->answer.explicit_verdict = false;
			done++;
		}
	}
	seconds = (double)(rdv_mono_now_us() - start) / 1e6;
	*cpu_ns = (cpu_us() - cpu) * 1000 / (double)done;
	for (; list; list = list->next)
		left--;
	while (left)
		for (list = take_back(&back); list; list = list->next)
			left--;
	h->ops->free(h);
	free(calls);
	return (double)done / seconds;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
	size_t open = argc > 2 ? (size_t)atoi(argv[2]) : 1024;
	double seconds = argc > 3 ? atof(argv[3]) : 1, values[ROUNDS], cpu_ns[ROUNDS], value;

	if (threads < 1 || threads > 64 || open < 1 || seconds <= 0) {
		fprintf(stderr, "usage: %s [THREADS [OPEN [SECONDS]]]\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < ROUNDS; i++)
		values[i] = run(threads, open, seconds, &cpu_ns[i]);
	qsort(values, ROUNDS, sizeof values[0], compare);
	qsort(cpu_ns, ROUNDS, sizeof cpu_ns[0], compare);
	value = values[ROUNDS / 2];
	printf("{\"name\": \"callback handler, %u threads, %zu open\", \"value\": %.0f, \"unit\": \"calls/s\", "
	       "\"peer\": null, \"peer_value\": null, "
	       "\"ratio\": %.3f, \"goal\": %.0f, \"met\": %s, \"cpu_ns\": %.0f}\n",
	       threads, open, value, value / GOAL, GOAL, value >= GOAL ? "true" : "false", cpu_ns[ROUNDS / 2]);
	return 0;
}
