/* fuzz_kafka_entry.c - values of a journal topic on any bytes: never outside them; a value that opens is walked to its
 * end, and its entries, written again and cut anywhere, give the same records.
 *
 * The first byte chooses where to cut, the rest is the value. */
#include <stdlib.h>
#include "brokers/kafka/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void same(struct rdv_slice a, struct rdv_slice b)
{
	struct rdv_source_record x, y;

	while (rdv_entry_next(&a, &x)) {
		check(rdv_entry_next(&b, &y));
		check(x.type == y.type && x.seq == y.seq && rdv_slice_equal(x.payload, y.payload));
	}
	check(a.size == 0 && b.size == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_slice entries, left;
	struct rdv_source_record record;
	struct rdv_buffer again;
	size_t max, cut;

	if (!size || rdv_entry_open(rdv_slice(data + 1, size - 1), &entries) != REDRIVE_OK)
		return 0;
	max = data[0];
	rdv_buffer_init(&again, 0);
	for (left = entries; rdv_entry_next(&left, &record);)
		rdv_entry_encode(&again, &record);
	check(!again.failed && again.size <= entries.size);
	same(entries, rdv_buffer_as_slice(&again));
	for (left = entries; (cut = rdv_entry_cut(left, max)) > 0; left = rdv_slice(left.data + cut, left.size - cut)) {
		struct rdv_slice rest = rdv_slice(left.data, cut);

		check(rdv_entry_next(&rest, &record) && (rest.size == 0 || cut + 4 <= max));
	}
	check(left.size == 0);
	rdv_buffer_done(&again);
	return 0;
}
