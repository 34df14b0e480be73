/* index_terms.c - what of a letter goes into the index: its row and its terms.
 *
 * A term is a 32-bit hash of its kind and value, chained over the values, so that ("a", "bc") and ("ab", "c") differ.
 * The kind is the seed. Adding kinds is a new version of the index, which is then made again from the segment. Pure;
 * any thread. */
#include <xxhash.h>
#include "index.h"

static uint64_t chain(uint64_t seed, struct rdv_slice a)
{
	return XXH3_64bits_withSeed(a.size ? a.data : (const void *)"", a.size, seed);
}

uint32_t rdv_desk_term_hash(enum rdv_desk_term kind, struct rdv_slice a, struct rdv_slice b)
{
	return (uint32_t)chain(chain(kind, a), b);
}

uint32_t rdv_desk_term_message(struct rdv_slice route, struct rdv_slice topic, uint32_t partition, uint64_t offset)
{
	uint8_t at[12];
	rdv_put_u32(at, partition);
	rdv_put_u64(at + 4, offset);
	return (uint32_t)chain(chain(chain(RDV_DESK_TERM_MESSAGE, route), topic), rdv_slice(at, sizeof at));
}

static void put_number(uint8_t *at, uint64_t value, unsigned size)
{
	while (size-- > 0) {
		at[size] = (uint8_t)value;
		value >>= 8;
	}
}

size_t rdv_desk_term_key(uint32_t run, uint32_t h, int64_t dead_at, int64_t seq, uint8_t out[RDV_DESK_TERM_KEY_SIZE])
{
	put_number(out, run, 2);
	put_number(out + 2, h, 4);
	put_number(out + 6, (uint64_t)dead_at ^ 1ull << 63, 8); /* negative ones before zero */
	put_number(out + 14, seq > UINT32_MAX ? UINT32_MAX : (uint64_t)seq, 4);
	return seq < 0 ? 14 : RDV_DESK_TERM_KEY_SIZE;
}

static void add_term(struct rdv_desk_row *row, uint32_t h)
{
	row->terms[row->term_count++] = h;
}

enum redrive_status rdv_desk_row_make(struct rdv_slice envelope, struct rdv_desk_row *out)
{
	struct rdv_envelope e;
	const struct rdv_slice none = {NULL, 0};
	enum redrive_status status = rdv_envelope_decode(envelope, &e);
	if (status != REDRIVE_OK)
		return status;
	struct rdv_slice reason = rdv_slice_text(rdv_reason_name(e.reason));
	*out = (struct rdv_desk_row){
		.has_key = !e.null_key,
		.key = rdv_desk_term_hash(RDV_DESK_TERM_KEY, e.key, none),
		.route = rdv_desk_term_hash(RDV_DESK_TERM_ROUTE, e.route, none),
		.topic = (uint32_t)rdv_xxh3(e.topic),
		.tenant = (uint32_t)rdv_xxh3(e.tenant),
		.version = (uint32_t)rdv_xxh3(e.consumer_version),
		.fingerprint = e.fingerprint,
		.reason = e.reason,
		.dead_at = e.dead_at.ms,
		.attempts = e.causes.failures,
		.size = e.body_size,
	};
	rdv_envelope_id(&e, out->id);
	add_term(out, rdv_desk_term_hash(RDV_DESK_TERM_ALL, none, none));
	add_term(out, rdv_desk_term_hash(RDV_DESK_TERM_ID, rdv_slice(out->id, 16), none));
	add_term(out, rdv_desk_term_message(e.route, e.topic, e.partition, e.offset));
	add_term(out, out->route);
	add_term(out, rdv_desk_term_hash(RDV_DESK_TERM_REASON, reason, none));
	add_term(out, rdv_desk_term_hash(RDV_DESK_TERM_ROUTE_REASON, e.route, reason));
	if (out->has_key)
		add_term(out, out->key);
	return REDRIVE_OK;
}
