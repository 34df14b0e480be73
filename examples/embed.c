/* embed.c - Redrive inside a program: a queue on disk, a handler that fails at first, retries, an account that adds up.
 *
 *	cc embed.c -o embed $(pkg-config --cflags --libs redrive) && ./embed     (before installing:
 *PKG_CONFIG_PATH=../build)
 */
#include <redrive.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum redrive_verdict on_order(void *ctx, struct redrive_delivery *d)
{
	struct redrive_bytes body = redrive_body(d);

	(void)ctx;
	printf("%s, attempt %u: %.*s\n", redrive_message_id(d), redrive_attempt(d), (int)body.size,
	       (const char *)body.data);
	if (redrive_attempt(d) == 1 && redrive_offset(d) % 2) {
		redrive_set_error(d, "TimeoutError", "504", "the shop did not answer", NULL);
		return REDRIVE_RETRY; /* comes again after about 200 ms */
	}
	return REDRIVE_ACK;
}

int main(void)
{
	const char *const settings[] = {"partitions=1", "retry.base=200ms", "retry.attempts=5", NULL};
	struct redrive_error error;
	struct redrive_counts counts;
	struct redrive *r;

	if (redrive_open("embed-data", NULL, &r, &error)) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	if (redrive_add_callback(r, "orders", "order.create", settings, on_order, NULL, &error) ||
	    redrive_start(r, &error)) {
		fprintf(stderr, "%s\n", error.text);
		redrive_free(r);
		return 1;
	}
	for (int i = 0; i < 4; i++) {
		char text[32];
		struct redrive_message m = {.body = text};

		m.body_size = (size_t)snprintf(text, sizeof text, "order number %d", i);
		if (redrive_publish(r, "order.create", &m, 1, NULL, &error)) /* it is on disk when this returns */
			fprintf(stderr, "not published: %s\n", error.text);
	}
	do {
		usleep(50000);
		if (redrive_route_counts(r, "orders", &counts))
			break;
	} while (counts.acked + counts.dead < counts.received);
	printf("received %llu = acked %llu + dead %llu\n", (unsigned long long)counts.received,
	       (unsigned long long)counts.acked, (unsigned long long)counts.dead);
	redrive_stop(r);
	redrive_free(r);
	return 0;
}
