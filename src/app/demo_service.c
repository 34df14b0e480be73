/* demo_service.c - see demo_service.h. libmicrohttpd, one thread per connection, so that slowness is plain sleeping.
 *
 * Every message carries its number (Redrive-Header-Number) and the number before it of the same key
 * (Redrive-Header-Previous, 0 = none). A message may be acked only when the previous one of its key is finished: acked,
 * rejected, or given up on. */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "../base/clock.h"
#include "../base/quantity.h"
#include "demo_service.h"

enum fate { FATE_OPEN, FATE_ACKED, FATE_GIVEN_UP }; /* given up: rejected, or poisoned (its letter ends it) */

struct rdv_demo_service {
	struct MHD_Daemon *daemon; /* owns */
	pthread_mutex_t mutex;
	uint16_t port;
	bool dead, fixed;
	struct rdv_demo_books books;
	uint8_t *fates;   /* owns; by number */
	uint8_t *at_work; /* owns; by number: calls running now */
	int64_t second;   /* of `this_second` */
	uint64_t this_second;
};

struct call {
	uint64_t number, previous, attempt;
	char event[64], key[256];
};

bool rdv_demo_service_rejects(struct rdv_slice event)
{
	return rdv_slice_is(event, "marketplace_purchase") || rdv_slice_is(event, "sponsorship");
}

bool rdv_demo_service_poisoned(uint64_t number)
{
	return number % 331 == 7;
}

static uint64_t number_header(struct MHD_Connection *c, const char *name)
{
	const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
	int64_t number = 0;
	if (!text || rdv_integer_parse(rdv_slice_text(text), &number) != REDRIVE_OK || number < 0 ||
	    number >= RDV_DEMO_MESSAGES_MAX)
		return 0;
	return (uint64_t)number;
}

/* A number that is the same in every run, so that the demo is. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a + 1) * 0x9e3779b97f4a7c15u ^ (b + 1) * 0xc2b2ae3d27d4eb4fu;
	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9u >> 32;
}

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static void begin_call(struct rdv_demo_service *s, const struct call *c)
{
	int64_t second = rdv_mono_now().ms / 1000;
	pthread_mutex_lock(&s->mutex);
	if (second != s->second) {
		s->books.last_second = second == s->second + 1 ? s->this_second : 0;
		s->second = second;
		s->this_second = 0;
	}
	s->this_second++;
	s->books.calls++;
	s->at_work[c->number]++;
	if (c->key[0] && (s->at_work[c->number] > 1 || (c->previous && s->at_work[c->previous])))
		s->books.side_by_side++;
	pthread_mutex_unlock(&s->mutex);
}

/* Decides, and books the outcome. Returns the status to answer. */
static unsigned end_call(struct rdv_demo_service *s, const struct call *c, const char **title)
{
	unsigned status;
	uint64_t dice = mix(c->number, c->attempt) % 1000;
	pthread_mutex_lock(&s->mutex);
	struct rdv_demo_books *b = &s->books;
	s->at_work[c->number]--;
	if (s->dead) {
		status = 503;
		*title = "Unavailable";
		b->refused++;
	} else if (rdv_demo_service_rejects(rdv_slice_text(c->event)) && !s->fixed) {
		status = 422;
		*title = "UnknownProduct";
		b->rejected++;
		s->fates[c->number] = FATE_GIVEN_UP;
	} else if (rdv_demo_service_poisoned(c->number) && !s->fixed) {
		status = 500;
		*title = "NullPointerException";
		b->failed++;
		s->fates[c->number] = s->fates[c->number] == FATE_ACKED ? FATE_ACKED : FATE_GIVEN_UP;
	} else if (dice < 8) {
		status = 429;
		*title = "TooManyRequests";
		b->throttled++;
	} else if (dice < 25 && c->attempt <= 2) {
		status = 500;
		*title = "DeadlockDetected";
		b->failed++;
	} else {
		status = 200;
		*title = NULL;
		b->acked++;
		if (s->fates[c->number] == FATE_ACKED)
			b->repeated++;
		else
			b->acked_messages++;
		if (c->previous && s->fates[c->previous] == FATE_OPEN)
			b->order_violations++;
		s->fates[c->number] = FATE_ACKED;
	}
	pthread_mutex_unlock(&s->mutex);
	return status;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *title)
{
	char body[256] = "";
	if (title)
		snprintf(body, sizeof body,
			 "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%u,\"detail\":\"the demo's service "
			 "says no\"}",
			 title, status);
	struct MHD_Response *r = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_COPY);
	if (title)
		MHD_add_response_header(r, "Content-Type", "application/problem+json");
	if (status == 429)
		MHD_add_response_header(r, "Retry-After", "0");
	MHD_add_response_header(r, "Redrive-Handler-Version", "1.4.2");
	enum MHD_Result result = MHD_queue_response(connection, status, r);
	MHD_destroy_response(r);
	return result;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
				  const char *version, const char *data, size_t *size, void **request)
{
	static int seen;
	struct rdv_demo_service *s = ctx;
	(void)url;
	(void)method;
	(void)version;
	(void)data;
	if (!*request) {
		*request = &seen;
		return MHD_YES;
	}
	if (*size) {
		*size = 0;
		return MHD_YES;
	}
	struct call c = {.number = number_header(connection, "Redrive-Header-Number"),
			 .previous = number_header(connection, "Redrive-Header-Previous"),
			 .attempt = number_header(connection, "Redrive-Attempt")};
	const char *event = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Redrive-Header-Event");
	const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Redrive-Key");
	snprintf(c.event, sizeof c.event, "%s", event ? event : "");
	snprintf(c.key, sizeof c.key, "%s", key ? key : "");
	const char *title;
	begin_call(s, &c);
	if (!s->dead)
		sleep_ms(mix(c.number, c.attempt + 77) % 100 < 2 ? 80 : 1 + (long)(mix(c.number, 5) % 6));
	unsigned status = end_call(s, &c, &title);
	return answer(connection, status, title);
}

enum redrive_status rdv_demo_service_start(struct rdv_demo_service **out, struct rdv_error *error)
{
	struct rdv_demo_service *s = calloc(1, sizeof *s);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	if (s) {
		s->fates = calloc(RDV_DEMO_MESSAGES_MAX, 1);
		s->at_work = calloc(RDV_DEMO_MESSAGES_MAX, 1);
	}
	if (!s || !s->fates || !s->at_work) {
		rdv_demo_service_stop(s);
		return rdv_error_set(error, REDRIVE_NO_MEMORY, "out of memory");
	}
	pthread_mutex_init(&s->mutex, NULL);
	s->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
				     on_request, s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_END);
	if (!s->daemon) {
		rdv_demo_service_stop(s);
		return rdv_error_set(error, REDRIVE_IO, "the demo's service cannot listen: %s", strerror(errno));
	}
	s->port = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
	*out = s;
	return REDRIVE_OK;
}

void rdv_demo_service_stop(struct rdv_demo_service *s)
{
	if (!s)
		return;
	if (s->daemon) {
		MHD_stop_daemon(s->daemon);
		pthread_mutex_destroy(&s->mutex);
	}
	free(s->fates);
	free(s->at_work);
	free(s);
}

uint16_t rdv_demo_service_port(const struct rdv_demo_service *s)
{
	return s->port;
}

void rdv_demo_service_dead(struct rdv_demo_service *s, bool dead)
{
	pthread_mutex_lock(&s->mutex);
	s->dead = dead;
	pthread_mutex_unlock(&s->mutex);
}

void rdv_demo_service_fixed(struct rdv_demo_service *s, bool fixed)
{
	pthread_mutex_lock(&s->mutex);
	s->fixed = fixed;
	pthread_mutex_unlock(&s->mutex);
}

void rdv_demo_service_books(struct rdv_demo_service *s, struct rdv_demo_books *out)
{
	pthread_mutex_lock(&s->mutex);
	*out = s->books;
	pthread_mutex_unlock(&s->mutex);
}
