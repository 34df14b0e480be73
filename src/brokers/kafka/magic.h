/* magic.h - the four bytes that every value in a private topic begins with: "RD", what it is, and a digit, its version.
 *
 * They tell Redrive's own values from foreign ones, and from those of a newer Redrive. Pure; any thread. */
#ifndef RDV_BROKERS_KAFKA_MAGIC_H
#define RDV_BROKERS_KAFKA_MAGIC_H
#include "../../base/bytes.h"

#define RDV_MAGIC_SIZE 4u

/* OK: `value` begins with `magic`; *rest is what follows. VERSION: the same with a higher digit. NOT_FOUND: foreign. */
static inline enum redrive_status rdv_magic_open(struct rdv_slice value, const char *magic, struct rdv_slice *rest)
{
	const uint8_t ours = (uint8_t)magic[RDV_MAGIC_SIZE - 1];

	if (value.size < RDV_MAGIC_SIZE || memcmp(value.data, magic, RDV_MAGIC_SIZE - 1) != 0)
		return REDRIVE_NOT_FOUND;
	*rest = rdv_slice(value.data + RDV_MAGIC_SIZE, value.size - RDV_MAGIC_SIZE);
	if (value.data[RDV_MAGIC_SIZE - 1] == ours)
		return REDRIVE_OK;
	return value.data[RDV_MAGIC_SIZE - 1] > ours && value.data[RDV_MAGIC_SIZE - 1] <= '9' ? REDRIVE_VERSION
											      : REDRIVE_NOT_FOUND;
}
#endif
