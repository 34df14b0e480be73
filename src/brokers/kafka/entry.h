/* entry.h - how records lie in a journal topic: many small ones in one value of Kafka.
 *
 * value  = magic "RDJ1", then entries to the end
 * entry  = type 8 bits, seq varint, length varint, payload
 *
 * An entry never spans two values. Its length is less than 2^32, its type is not 0. Values come from a topic that
 * others may write to by mistake: a value without the magic is foreign (NOT_FOUND), one that breaks inside is CORRUPT,
 * one with a later digit in its magic is of a newer Redrive (VERSION): never to be passed over. Pure; any thread. */
#ifndef RDV_BROKERS_KAFKA_ENTRY_H
#define RDV_BROKERS_KAFKA_ENTRY_H
#include "../source.h"

#define RDV_ENTRY_MAGIC "RDJ1"
#define RDV_ENTRY_OVERHEAD 16u /* at most, of one entry, beside its payload */

/* Appends one entry (without magic). buffer->failed without memory. */
void rdv_entry_encode(struct rdv_buffer *out, const struct rdv_source_record *record);
/* The first entry of `entries`, which is cut off it; false at the end or on damage (entries->size tells: 0 = end). */
bool rdv_entry_next(struct rdv_slice *entries, struct rdv_source_record *out);
/* A value's entries, all of them looked at. NOT_FOUND: foreign. CORRUPT. VERSION. */
enum redrive_status rdv_entry_open(struct rdv_slice value, struct rdv_slice *entries) RDV_MUST_CHECK;
/* How many bytes of whole entries, from the start of `entries`, fit into a value of at most `max` bytes with its magic:
 * at least one entry; 0 at the end. */
size_t rdv_entry_cut(struct rdv_slice entries, size_t max);
#endif
