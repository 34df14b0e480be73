/* segment.h - segments as files: names, headers, making, recycling.
 *
 *   <16 hex digits>.seg    a segment in use, or the next one, ready: its header is valid and synced before it has this
 * name <16 hex digits>.hint   hints of a sealed segment (hints.h) <16 hex digits>.spare  written once from end to end,
 * free to become the next segment; the digits are a running count <16 hex digits>.fill   being zero-filled or
 * allocated; removed at open <16 hex digits>.damaged  a segment that was given up, but was damaged: for people
 *
 * The first 4 KiB of a segment hold its header (64 bytes), frames follow:
 *    0        8         12        16        32      40      48             52       56          60
 *    +--------+---------+---------+---------+-------+-------+--------------+--------+-----------+-----+
 *    | magic  | version | segment | log id  | salt  | base  | segment size | origin | 0         | crc |
 *    +--------+---------+---------+---------+-------+-------+--------------+--------+-----------+-----+
 * base: a number known synced when the header was written; in the origin, the log's first segment, the number before
 * the first frame. Any thread, if no two touch the same file. */
#ifndef RDV_LOG_SEGMENT_H
#define RDV_LOG_SEGMENT_H
#include "log.h"

#define RDV_PAGE 4096u
#define RDV_SEGMENT_START RDV_PAGE /* where the frames begin */
#define RDV_SEGMENT_HEADER 64u
#define RDV_SEGMENT_VERSION 1u
#define RDV_SEGMENT_MIN (64u << 10)
#define RDV_SEGMENT_MAX (1u << 30)
#define RDV_SEGMENT_LAST (UINT32_MAX - (1u << 20)) /* higher numbers in a header are not ours */

struct rdv_segment_header {
	uint32_t segment, segment_size, origin;
	struct rdv_hash128 log_id;
	uint64_t salt, base;
};
void rdv_segment_header_encode(const struct rdv_segment_header *h, uint8_t out[RDV_SEGMENT_HEADER]);
/* CORRUPT or VERSION with the reason in `error`. */
enum redrive_status rdv_segment_header_decode(const uint8_t in[RDV_SEGMENT_HEADER], struct rdv_segment_header *out,
					      struct rdv_error *error) RDV_MUST_CHECK;

/* A data directory's files. */
struct rdv_store {
	const struct rdv_file_ops *ops; /* borrows */
	void *ctx;
	char *dir; /* owns */
	struct rdv_hash128 id;
	uint64_t salt;
	uint32_t seed; /* rdv_frame_seed of the two */
	uint32_t segment_size, origin;
};
enum rdv_store_kind {
	RDV_STORE_SEGMENT,
	RDV_STORE_HINT,
	RDV_STORE_SPARE,
	RDV_STORE_FILL,
	RDV_STORE_DAMAGED,
	RDV_STORE_KINDS
};

#define RDV_STORE_PATH 4096
/* "<dir>/<number>.<kind>" */
void rdv_store_path(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, char out[RDV_STORE_PATH]);
/* True if `name` is one of ours. */
bool rdv_store_parse(const char *name, enum rdv_store_kind *kind, uint64_t *number);
/* Opens, or gives IO (NOT_FOUND if there is none) with the file's name in the error. */
enum redrive_status rdv_store_open(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, int flags,
				   int *fd, struct rdv_error *error) RDV_MUST_CHECK;
void rdv_store_close(const struct rdv_store *s, int fd); /* accepts -1 */
/* A new file of a segment's size, allocated but not written, as <number>.fill. */
enum redrive_status rdv_store_allocate(const struct rdv_store *s, uint64_t number, int *fd,
				       struct rdv_error *error) RDV_MUST_CHECK;
/* Makes the open file `from` the segment: header written and synced, then the name, then the directory synced. */
enum redrive_status rdv_store_bind(const struct rdv_store *s, int fd, const char *from, uint32_t segment, uint64_t base,
				   struct rdv_error *error) RDV_MUST_CHECK;
/* Renames one of ours and syncs the directory. */
enum redrive_status rdv_store_rename(const struct rdv_store *s, const char *from, const char *to,
				     struct rdv_error *error) RDV_MUST_CHECK;
/* Removes; a missing file is fine. Does not sync the directory. */
enum redrive_status rdv_store_remove(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number,
				     struct rdv_error *error) RDV_MUST_CHECK;
enum redrive_status rdv_store_sync_dir(const struct rdv_store *s, struct rdv_error *error) RDV_MUST_CHECK;
/* One segment's header; CORRUPT also when it is that of another segment. */
enum redrive_status rdv_store_header(const struct rdv_store *s, uint32_t number, struct rdv_segment_header *h,
				     struct rdv_error *error) RDV_MUST_CHECK;
/* False if the file is shorter than a segment, which it never was when it got its name: somebody cut it. `size` is its
 * own, 0 if that cannot be told. */
bool rdv_store_is_whole(const struct rdv_store *s, enum rdv_store_kind kind, uint64_t number, uint64_t *size);
/* The segment's bytes, zeros behind the file's end. `image` has segment_size bytes. */
enum redrive_status rdv_store_load(const struct rdv_store *s, uint32_t number, uint8_t *image,
				   struct rdv_error *error) RDV_MUST_CHECK;
#endif
