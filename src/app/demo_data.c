/* demo_data.c - decompresses the embedded payloads and finds the records in them.
 *
 * The decompressed file is a u32 count and then, per record, four texts with a LEB128 length in front: event, action,
 * key, body. All records are found at open; so every slice that is handed out later lies within the file. The bytes
 * come from our own build, but are read as strictly as foreign ones: no size is believed before it is checked. */
#include "demo_data.h"
#include <stdlib.h>
#include <zstd.h>

#define MOST_BYTES (64u << 20) /* a larger file is not ours */
#define LEAST_RECORD 4         /* bytes of the smallest record: four empty texts */

extern const unsigned char rdv_demo_data[]; /* made by tools/demo-data */
extern const size_t rdv_demo_data_size;

struct rdv_demo_payloads {
	uint8_t *bytes; /* owns */
	size_t size;
	struct rdv_demo_payload *items; /* owns; borrow from bytes */
	size_t count;
};

static enum redrive_status unpack(struct rdv_demo_payloads *p, struct rdv_slice packed)
{
	unsigned long long size = ZSTD_getFrameContentSize(packed.data, packed.size);

	/* The two error values of the library are above any size that is accepted. */
	if (size > MOST_BYTES)
		return REDRIVE_CORRUPT;
	p->bytes = malloc(size ? size : 1);
	if (!p->bytes)
		return REDRIVE_NO_MEMORY;
	p->size = ZSTD_decompress(p->bytes, size, packed.data, packed.size);
	return p->size == size ? REDRIVE_OK : REDRIVE_CORRUPT;
}

static enum redrive_status find_records(struct rdv_demo_payloads *p)
{
	struct rdv_reader r = rdv_reader(rdv_slice(p->bytes, p->size));
	size_t count = rdv_read_u32(&r);

	if (r.failed || count > rdv_reader_left(&r) / LEAST_RECORD)
		return REDRIVE_CORRUPT;
	p->items = calloc(count ? count : 1, sizeof *p->items);
	if (!p->items)
		return REDRIVE_NO_MEMORY;
	for (size_t i = 0; i < count; i++) {
		p->items[i].event = rdv_read_prefixed(&r);
		p->items[i].action = rdv_read_prefixed(&r);
		p->items[i].key = rdv_read_prefixed(&r);
		p->items[i].body = rdv_read_prefixed(&r);
	}
	p->count = count;
	return r.failed || rdv_reader_left(&r) > 0 ? REDRIVE_CORRUPT : REDRIVE_OK;
}

enum redrive_status rdv_demo_payloads_read(struct rdv_slice packed, struct rdv_demo_payloads **out)
{
	struct rdv_demo_payloads *p = calloc(1, sizeof *p);
	enum redrive_status status = p ? unpack(p, packed) : REDRIVE_NO_MEMORY;

	if (status == REDRIVE_OK)
		status = find_records(p);
	if (status != REDRIVE_OK) {
		rdv_demo_payloads_close(p);
		p = NULL;
	}
	*out = p;
	return status;
}

enum redrive_status rdv_demo_payloads_open(struct rdv_demo_payloads **out)
{
	return rdv_demo_payloads_read(rdv_slice(rdv_demo_data, rdv_demo_data_size), out);
}

void rdv_demo_payloads_close(struct rdv_demo_payloads *p)
{
	if (!p)
		return;
	free(p->items);
	free(p->bytes);
	free(p);
}

size_t rdv_demo_payload_count(const struct rdv_demo_payloads *p)
{
	return p->count;
}

bool rdv_demo_payload(const struct rdv_demo_payloads *p, size_t i, struct rdv_demo_payload *out)
{
	if (i >= p->count)
		return false;
	*out = p->items[i];
	return true;
}
