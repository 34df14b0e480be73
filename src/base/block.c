/* block.c - reference-counted bytes.
 *
 * A block is one allocation: count, size, data. Taking a reference needs no order, since who takes it
 * holds one already; giving one back releases, and who frees acquires, so that all reads of other threads
 * come before the memory is reused. The size is at most 2^32 - 1 bytes. Any thread. */
#include "block.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

struct rdv_block *rdv_block_new(size_t size)
{
	struct rdv_block *b;

	if (size > UINT32_MAX)
		return NULL;
	b = malloc(sizeof *b + size);
	if (!b)
		return NULL;
	atomic_init(&b->refs, 1);
	b->size = (uint32_t)size;
	return b;
}

struct rdv_block *rdv_block_copy(struct rdv_slice in)
{
	struct rdv_block *b = rdv_block_new(in.size);

	if (b && in.size)
		memcpy(b->data, in.data, in.size);
	return b;
}

struct rdv_block *rdv_block_ref(struct rdv_block *b)
{
	uint32_t before = atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);

	assert(before != 0 && before != UINT32_MAX);
	(void)before;
	return b;
}

void rdv_block_unref(struct rdv_block *b)
{
	uint32_t before;

	if (!b)
		return;
	before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
	assert(before != 0);
	if (before == 1)
		free(b);
}
