/* bare.c - the limit: a librdkafka consumer with nothing between it and the work.
 *
 *	bare BROKERS TOPIC GROUP URL [CONCURRENCY]
 *
 * Each message's bytes are pushed to the URL through one curl multi handle with at most 64 requests in flight. No
 *order, no retry: an answer other than 200 is only counted. Offsets are committed by the library's own timer as
 *messages are taken, so this promises nothing about delivery; it is the speed that a correct consumer is compared with.
 *One thread; the library wakes curl's poll through a pipe. Assignments go to standard output: wall milliseconds, word,
 *count. */
#include <curl/curl.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 256 };

struct slot {
	CURL *easy;
	rd_kafka_message_t *message; /* owned while in flight */
	struct slot *next_free;
};
struct push {
	CURLM *multi;
	struct slot *free;
	int in_flight, concurrency;
};

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
	(void)number;
	stopping = 1;
}

static void die(const char *what)
{
	fprintf(stderr, "bare: %s\n", what);
	exit(1);
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque)
{
	bool assigned = code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
	struct timespec now;

	(void)opaque;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("%lld %s %d\n", now.tv_sec * 1000LL + now.tv_nsec / 1000000, assigned ? "assigned" : "revoked",
	       list->cnt);
	fflush(stdout);
	rd_kafka_assign(rk, assigned ? list : NULL);
}

static rd_kafka_t *consumer(const char *brokers, const char *topic, const char *group)
{
	const char *const settings[][2] = {{"bootstrap.servers", brokers},
					   {"group.id", group},
					   {"auto.offset.reset", "earliest"},
					   {"auto.commit.interval.ms", "1000"},
					   {"fetch.wait.max.ms", "50"}};
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[512];

	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why))
			die(why);
	rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
	rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
	if (!rk)
		die(why);
	rd_kafka_poll_set_consumer(rk);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
	if (rd_kafka_subscribe(rk, list))
		die("subscribe");
	rd_kafka_topic_partition_list_destroy(list);
	return rk;
}

static size_t ignore(char *data, size_t size, size_t count, void *user)
{
	(void)data, (void)user;
	return size * count;
}

static void push_init(struct push *p, const char *url, int concurrency)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
	struct slot *slots = calloc((size_t)concurrency, sizeof *slots);

	*p = (struct push){.multi = curl_multi_init(), .concurrency = concurrency};
	curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, (long)concurrency);
	headers = curl_slist_append(headers, "Expect:");
	for (int i = 0; i < concurrency; i++) {
		struct slot *s = &slots[i];
		s->easy = curl_easy_init();
		curl_easy_setopt(s->easy, CURLOPT_URL, url);
		curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, ignore);
		curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
		curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
		s->next_free = p->free;
		p->free = s;
	}
}

static void push_start(struct push *p, rd_kafka_message_t *m)
{
	struct slot *s = p->free;

	p->free = s->next_free;
	s->message = m;
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE, (long)m->len);
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, m->payload);
	curl_multi_add_handle(p->multi, s->easy);
	p->in_flight++;
}

static void push_reap(struct push *p)
{
	int running, left;
	CURLMsg *ended;

	curl_multi_perform(p->multi, &running);
	while ((ended = curl_multi_info_read(p->multi, &left))) {
		char *private;
		curl_easy_getinfo(ended->easy_handle, CURLINFO_PRIVATE, &private);
		struct slot *s = (void *)private;
		curl_multi_remove_handle(p->multi, s->easy);
		rd_kafka_message_destroy(s->message);
		s->next_free = p->free;
		p->free = s;
		p->in_flight--;
	}
}

/* Takes what there is room for; whether there may be more. */
static bool take(struct push *p, rd_kafka_queue_t *queue)
{
	rd_kafka_message_t *batch[BATCH];
	int room = p->concurrency - p->in_flight;
	ssize_t n = room > 0 ? rd_kafka_consume_batch_queue(queue, 0, batch, (size_t)(room < BATCH ? room : BATCH)) : 0;

	for (ssize_t i = 0; i < n; i++) {
		if (batch[i]->err)
			rd_kafka_message_destroy(batch[i]);
		else
			push_start(p, batch[i]);
	}
	return n > 0 || room == 0;
}

/* The queue's event fires when it becomes non-empty, and not again: it is asked before every sleep. */
static void run(rd_kafka_queue_t *queue, struct push *p)
{
	int wake[2];
	char drain[64];

	if (pipe2(wake, O_NONBLOCK | O_CLOEXEC))
		die("pipe");
	rd_kafka_queue_io_event_enable(queue, wake[1], "x", 1);
	while (!stopping) {
		bool more = take(p, queue);
		push_reap(p);
		bool full = p->in_flight == p->concurrency;
		if (more && !full)
			continue;
		struct curl_waitfd extra = {.fd = wake[0], .events = CURL_WAIT_POLLIN};
		curl_multi_poll(p->multi, full ? NULL : &extra, !full, 100, NULL);
		while (!full && read(wake[0], drain, sizeof drain) > 0)
			;
	}
}

int main(int argc, char **argv)
{
	struct push push;

	if (argc < 5)
		die("BROKERS TOPIC GROUP URL [CONCURRENCY]");
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	rd_kafka_t *rk = consumer(argv[1], argv[2], argv[3]);
	rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
	push_init(&push, argv[4], argc > 5 ? atoi(argv[5]) : 64);
	run(queue, &push);
	rd_kafka_queue_destroy(queue);
	rd_kafka_consumer_close(rk);
	return 0; /* handles end with the process */
}
