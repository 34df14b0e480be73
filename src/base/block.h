/* block.h - immutable bytes with a reference count: bodies that several threads look at.
 * Made once, filled by its maker before the first share, then never changed. ref/unref are atomic. */
#ifndef RDV_BASE_BLOCK_H
#define RDV_BASE_BLOCK_H
#include "bytes.h"

struct rdv_block {
	_Atomic uint32_t refs;
	uint32_t size;
	uint8_t data[];
};

struct rdv_block *rdv_block_new(size_t size);          /* uninitialised bytes, one reference; NULL without memory */
struct rdv_block *rdv_block_copy(struct rdv_slice in); /* NULL without memory */
struct rdv_block *rdv_block_ref(struct rdv_block *b);
void rdv_block_unref(struct rdv_block *b); /* accepts NULL */
static inline struct rdv_slice rdv_block_slice(const struct rdv_block *b)
{
	return b ? rdv_slice(b->data, b->size) : rdv_slice(NULL, 0);
}
#endif
