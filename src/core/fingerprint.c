/* fingerprint.c - the versioned hash by which failures of one cause are grouped.
 *
 * Hashed, each with its length in front: route, root class (else class), code, normalised text, and the frame of the
 * user's code with its numbers masked. A class that only wraps another is passed over when the stack names the cause.
 * The text form carries the version; a stored 64-bit value is of version 1.
 *
 * Memory is needed for the normalised text alone; without it the text's plain bytes are hashed, which is a worse
 * grouping but never a failure. Pure; any thread. */
#include "fingerprint.h"
#include "normalise.h"
#include <stdio.h>

static struct rdv_slice root_class_of(const struct rdv_failure *f)
{
	struct rdv_slice found;

	if (f->root_class.size)
		return f->root_class;
	found = rdv_stack_root_class(f->stack);
	return found.size ? found : f->class;
}

#define SHORT_BYTES 512

static uint8_t *put(uint8_t *to, struct rdv_slice s)
{
	to = rdv_put_varint(to, s.size);
	if (s.size)
		memcpy(to, s.data, s.size);
	return to + s.size;
}

/* Neither text nor stack: the same bytes as below, without allocating. 0: it is not so short. */
static uint64_t hash_short(struct rdv_slice route, const struct rdv_failure *f)
{
	uint8_t bytes[SHORT_BYTES + 5 * RDV_VARINT_MAX], *to = bytes;
	struct rdv_slice class = root_class_of(f);

	if (f->text.size || f->stack.size || route.size > SHORT_BYTES / 4 || class.size > SHORT_BYTES / 2 ||
	    f->code.size > SHORT_BYTES / 4)
		return 0;
	to = put(put(put(to, route), class), f->code);
	to = put(put(to, f->text), f->stack);
	return rdv_xxh3(rdv_slice(bytes, (size_t)(to - bytes)));
}

uint64_t rdv_fingerprint(const char *route, const struct rdv_failure *failure)
{
	struct rdv_buffer all, part;
	uint64_t hash = hash_short(rdv_slice_text(route), failure);

	if (hash)
		return hash;
	rdv_buffer_init(&all, 0);
	rdv_buffer_init(&part, 0);
	rdv_buffer_prefixed(&all, rdv_slice_text(route));
	rdv_buffer_prefixed(&all, root_class_of(failure));
	rdv_buffer_prefixed(&all, failure->code);
	rdv_normalise(failure->text, &part);
	rdv_buffer_prefixed(&all, rdv_buffer_as_slice(&part));
	rdv_buffer_clear(&part);
	rdv_normalise(rdv_stack_frame(failure->stack), &part);
	rdv_buffer_prefixed(&all, rdv_buffer_as_slice(&part));
	hash = all.failed || part.failed ? rdv_xxh3(failure->text) : rdv_xxh3(rdv_buffer_as_slice(&all));
	rdv_buffer_done(&all);
	rdv_buffer_done(&part);
	return hash ? hash : 1;
}

void rdv_fingerprint_format(uint64_t fingerprint, char out[RDV_FINGERPRINT_TEXT])
{
	snprintf(out, RDV_FINGERPRINT_TEXT, "v1:%016llx", (unsigned long long)fingerprint);
}

bool rdv_fingerprint_parse(struct rdv_slice text, uint64_t *out)
{
	uint64_t v = 0;

	if (text.size != 19 || memcmp(text.data, "v1:", 3) != 0)
		return false;
	for (size_t i = 3; i < 19; i++) {
		uint8_t c = text.data[i];
		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*out = v;
	return v != 0;
}
