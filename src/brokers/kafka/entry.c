/* entry.c - see entry.h. */
#include "entry.h"
#include "magic.h"

void rdv_entry_encode(struct rdv_buffer *out, const struct rdv_source_record *record)
{
	uint8_t head[1 + 2 * RDV_VARINT_MAX], *end = head;

	if (record->payload.size > UINT32_MAX || record->type == 0) {
		out->failed = true;
		return;
	}
	*end++ = record->type;
	end = rdv_put_varint(end, record->seq);
	end = rdv_put_varint(end, record->payload.size);
	/* Both or nothing: half an entry would damage those behind it. */
	if (!rdv_buffer_reserve(out, (size_t)(end - head) + record->payload.size))
		return;
	rdv_buffer_append(out, head, (size_t)(end - head));
	rdv_buffer_slice(out, record->payload);
}

bool rdv_entry_next(struct rdv_slice *entries, struct rdv_source_record *out)
{
	struct rdv_reader r = rdv_reader(*entries);
	struct rdv_source_record record = {0};
	uint64_t length;

	record.type = rdv_read_u8(&r);
	record.seq = rdv_read_varint(&r);
	length = rdv_read_varint(&r);
	if (r.failed || record.type == 0 || length > UINT32_MAX)
		return false;
	record.payload = rdv_read_bytes(&r, (size_t)length);
	if (r.failed)
		return false;
	*entries = rdv_slice(r.at, rdv_reader_left(&r));
	*out = record;
	return true;
}

enum redrive_status rdv_entry_open(struct rdv_slice value, struct rdv_slice *entries)
{
	struct rdv_source_record record;
	struct rdv_slice all, left;
	enum redrive_status status = rdv_magic_open(value, RDV_ENTRY_MAGIC, &all);

	if (status != REDRIVE_OK)
		return status;
	left = all;
	while (rdv_entry_next(&left, &record))
		;
	if (left.size)
		return REDRIVE_CORRUPT;
	*entries = all;
	return REDRIVE_OK;
}

size_t rdv_entry_cut(struct rdv_slice entries, size_t max)
{
	struct rdv_source_record record;
	struct rdv_slice left = entries;
	size_t whole = 0;

	while (rdv_entry_next(&left, &record)) {
		size_t end = entries.size - left.size;

		if (whole && (max < RDV_MAGIC_SIZE || end > max - RDV_MAGIC_SIZE))
			break;
		whole = end;
	}
	return whole;
}
