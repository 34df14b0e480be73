/* generation.c - which generation a snapshot of the group belongs to.
 *
 * The oldest supported library has no getter, so that the snapshot is written out and read:
 *
 *   "CGMDv2:"  generation 32 bits, host order  group NUL  member NUL  ...
 *
 * A snapshot with generation -1 and no member is not fenced by the broker at all, even
 * while the group has live members: it must never be sent. Any thread. */
#include <string.h>
#include "txn.h"

#define MAGIC "CGMDv2:"

static bool read_text(struct rdv_reader *r, struct rdv_slice *out)
{
	size_t left = rdv_reader_left(r);
	const uint8_t *end = left ? memchr(r->at, 0, left) : NULL;

	if (!end)
		return false;
	*out = rdv_read_bytes(r, (size_t)(end - r->at));
	(void)rdv_read_u8(r);
	return true;
}

static bool read_snapshot(struct rdv_slice bytes, int32_t *generation, struct rdv_slice *member)
{
	struct rdv_reader r = rdv_reader(bytes);
	struct rdv_slice magic = rdv_read_bytes(&r, sizeof MAGIC - 1), group;

	if (!rdv_slice_is(magic, MAGIC))
		return false;
	*generation = (int32_t)rdv_read_u32(&r);
	return read_text(&r, &group) && read_text(&r, member) && !r.failed;
}

enum redrive_status rdv_kafka_generation(const rd_kafka_consumer_group_metadata_t *group, int32_t *out,
					 struct rdv_error *error)
{
	rd_kafka_error_t *failed;
	struct rdv_slice member = {0};
	void *bytes = NULL;
	size_t size = 0;
	bool known;

	*out = -1;
	if (!group)
		return rdv_error_set(error, REDRIVE_INTERNAL, "no snapshot of the group");
	failed = rd_kafka_consumer_group_metadata_write(group, &bytes, &size);
	if (failed) {
		rdv_error_set(error, REDRIVE_INTERNAL, "a snapshot of the group: %s", rd_kafka_error_string(failed));
		rd_kafka_error_destroy(failed);
		return REDRIVE_INTERNAL;
	}
	known = read_snapshot(rdv_slice(bytes, size), out, &member);
	known = known && *out >= 0 && member.size;
	if (bytes)
		rd_kafka_mem_free(NULL, bytes);
	return known ? REDRIVE_OK
		     : rdv_error_set(error, REDRIVE_INTERNAL, "a snapshot of the group outside of a generation");
}
