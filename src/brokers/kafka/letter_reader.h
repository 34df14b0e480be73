/* letter_reader.h - a route's letters topics, read for the desk.
 *
 * Every partition of every letters topic of the route is read, in whichever process its lane is: assigned by hand, only
 * what is committed, from where the desk says it was. A letter goes to the sink; when the sink's owner has stored it
 * (rdv_kafka_letter_stored, in any order, from any thread), and all before it, the position behind it is kept. So a
 * letter is given at least once, and again after a crash. A topic or broker that is not there is waited for.
 *
 * What is no letter: foreign values, damaged ones, and letters of another route are said once a partition, counted and
 * passed over; a value of a newer Redrive is not: that partition is read no further, and it is said. Own thread; the
 * sink is called from it alone. */
#ifndef RDV_BROKERS_KAFKA_LETTER_READER_H
#define RDV_BROKERS_KAFKA_LETTER_READER_H
#include "kafka.h"
#include "letters.h"

struct rdv_kafka_letter_reader;

struct rdv_kafka_letter_position {
	const char *topic; /* the letters topic */
	int32_t partition;
	int64_t next;
};
struct rdv_kafka_letter_sink {
	void *ctx;
	/* NOT_FOUND: never read. Else not OK: asked again. */
	enum redrive_status (*position)(void *ctx, const char *topic, int32_t partition, int64_t *next);
	/* Durable when OK; else offered again. */
	enum redrive_status (*keep)(void *ctx, const struct rdv_kafka_letter_position *positions, size_t count);
	/* OK: taken, and rdv_kafka_letter_stored follows. Anything else: offered again after a moment. Slices borrow
	 * until it returns. */
	enum redrive_status (*letter)(void *ctx, const struct rdv_kafka_letter *letter, uint64_t ticket);
	void (*say)(void *ctx, int level, const char *text); /* also from the library's threads */
};
enum redrive_status rdv_kafka_letter_reader_new(const struct rdv_kafka_options *o,
						const struct rdv_kafka_letter_sink *sink,
						struct rdv_kafka_letter_reader **out,
						struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_kafka_letter_reader_start(struct rdv_kafka_letter_reader *r,
						  struct rdv_error *error) RDV_MUST_CHECK;
/* CORRUPT, INVALID, TOO_LARGE: it never will be stored: passed over, like a damaged one. Else not OK: read again. */
void rdv_kafka_letter_stored(struct rdv_kafka_letter_reader *r, uint64_t ticket, enum redrive_status status);
/* Returns when every letter that was taken is answered, and the positions are kept (if they can be). */
void rdv_kafka_letter_reader_stop(struct rdv_kafka_letter_reader *r);
void rdv_kafka_letter_reader_free(struct rdv_kafka_letter_reader *r); /* after stop; accepts NULL */
struct rdv_kafka_letter_counts {
	uint64_t stored, foreign, damaged, outcomes;
	uint32_t partitions, stopped; /* read; and those that a newer value stands in the way of */
};
void rdv_kafka_letter_reader_counts(struct rdv_kafka_letter_reader *r, struct rdv_kafka_letter_counts *out);
#endif
