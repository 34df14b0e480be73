/* filter.c - a growing Bloom filter over letter ids.
 *
 * The low half of the id chooses the line, the high half gives eight times nine bits for the places in it. A full layer
 * is never touched again; the next one is twice as large. One thread. */
#include <stdlib.h>
#include <string.h>
#include "../base/bytes.h"
#include "filter.h"

#define FIRST_CAPACITY 32768u
#define IDS_PER_LINE 32u

void rdv_desk_filter_init(struct rdv_desk_filter *f)
{
	memset(f, 0, sizeof *f);
}

void rdv_desk_filter_done(struct rdv_desk_filter *f)
{
	if (!f)
		return;
	for (unsigned i = 0; i < f->count; i++)
		free(f->layers[i].lines);
	rdv_desk_filter_init(f);
}

static uint64_t *line_of(const struct rdv_desk_filter *f, unsigned layer, const uint8_t id[16])
{
	uint64_t line = ((rdv_get_u64(id) >> 32) * f->layers[layer].line_count) >> 32;
	return f->layers[layer].lines + line * 8;
}

/* Eight places of 512, from the half of the id that does not choose the line; spread again, since eight times nine bits
 * are more than 64. */
static void masks_of(const uint8_t id[16], uint64_t masks[8])
{
	uint64_t bits = rdv_get_u64(id + 8), more = (bits ^ rdv_get_u64(id)) * 0x9e3779b97f4a7c15ull;
	memset(masks, 0, 8 * sizeof masks[0]);
	for (unsigned i = 0; i < 4; i++) {
		unsigned a = (unsigned)(bits >> (9 * i)) & 511, b = (unsigned)(more >> (28 + 9 * i)) & 511;
		masks[a >> 6] |= 1ull << (a & 63);
		masks[b >> 6] |= 1ull << (b & 63);
	}
}

static bool grow(struct rdv_desk_filter *f)
{
	if (f->count == RDV_DESK_FILTER_LAYERS)
		return false;
	uint32_t capacity = f->count ? f->layers[f->count - 1].capacity * 2 : FIRST_CAPACITY;
	uint32_t lines = capacity / IDS_PER_LINE;
	uint64_t *memory = calloc(lines, 64);
	if (!memory)
		return false;
	f->layers[f->count].lines = memory;
	f->layers[f->count].line_count = lines;
	f->layers[f->count].capacity = capacity;
	f->count++;
	return true;
}

enum redrive_status rdv_desk_filter_add(struct rdv_desk_filter *f, const uint8_t id[16])
{
	uint64_t masks[8];
	if (f->count == 0 || f->layers[f->count - 1].used == f->layers[f->count - 1].capacity)
		if (!grow(f))
			return REDRIVE_NO_MEMORY;
	unsigned last = f->count - 1;
	uint64_t *line = line_of(f, last, id);
	masks_of(id, masks);
	for (unsigned i = 0; i < 8; i++)
		line[i] |= masks[i];
	f->layers[last].used++;
	return REDRIVE_OK;
}

bool rdv_desk_filter_maybe(const struct rdv_desk_filter *f, const uint8_t id[16])
{
	uint64_t masks[8];
	masks_of(id, masks);
	for (unsigned layer = 0; layer < f->count; layer++) {
		const uint64_t *line = line_of(f, layer, id);
		uint64_t missing = 0;
		for (unsigned i = 0; i < 8; i++)
			missing |= masks[i] & ~line[i];
		if (!missing)
			return true;
	}
	return false;
}
