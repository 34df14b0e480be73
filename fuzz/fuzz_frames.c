/* fuzz_frames.c - opening a log whose files were changed at will: never a crash, never a frame that nobody wrote.
 *
 * A small log of three segments with hints, always the same, lies in memory. The input is a list of changes: 8 bytes
 * each, file, kind, offset (3, little-endian), length (2), value. Whatever they do, the fold sees only frames as they
 * were written, in order and without gaps; a log that opens can be appended to and opens again with what it had; one
 * that does not open was not changed. (Hints with a right checksum are trusted, so the input cannot make one: no change
 * knows how to compute it.) */
#include <stdlib.h>
#include "../tests/log/faulty_files.h"
#include "log/frame.h"
#include "log/hints.h"
#include "log/internal.h"
#include "log/segment.h"

enum { SEGMENT = 64 << 10, SEGMENTS = 3, FRAMES = 90, FILES = 5, HINT_LEN = 12 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const paths[FILES] = {"/d/0000000000000001.seg", "/d/0000000000000002.seg",
					 "/d/0000000000000003.seg", "/d/0000000000000001.hint",
					 "/d/0000000000000002.hint"};

struct written {
	struct rdv_position at;
	uint32_t length;
	uint8_t flags;
};

static struct written frames[FRAMES + 2]; /* by number */

struct seen {
	uint64_t last, count;
	bool broken;
};

static void check(bool ok)
{
	if (!ok)
		abort();
}

static uint8_t byte_of(uint64_t number, uint32_t i)
{
	return (uint8_t)(number * 37 + i * 11);
}

static void write_frame(struct rdv_store *s, uint8_t *image, uint64_t number, struct rdv_position *at)
{
	struct rdv_frame f = {.type = (uint8_t)(1 + number % 13),
			      .hint_len = HINT_LEN,
			      .stream = (uint32_t)number,
			      .seq = number,
			      .length = (uint32_t)(100 + number * 29 % 1500),
			      .number = number,
			      .synced = (number - 1) / 6 * 6};
	uint32_t i;

	frames[number] = (struct written){*at, f.length, number % 3 ? RDV_FRAME_MORE : 0};
	rdv_frame_encode(&f, image + at->offset);
	for (i = 0; i < f.length; i++)
		image[at->offset + RDV_FRAME_HEADER + i] = byte_of(number, i);
	rdv_frame_seal(s->seed, image + at->offset, *at, number % 3);
	at->offset += RDV_FRAME_HEADER + f.length;
}

static void make_hints(const struct rdv_store *s, const uint8_t *image, uint32_t segment, uint32_t end)
{
	struct rdv_position at = {segment, RDV_SEGMENT_START};
	struct rdv_hints_writer w;
	struct rdv_frame frame;

	rdv_hints_begin(&w, s, segment);
	for (; at.offset < end; at.offset += RDV_FRAME_HEADER + frame.length) {
		check(rdv_frame_valid(s->seed, rdv_slice(image + at.offset, end - at.offset), at, &frame));
		rdv_hints_add(&w, &frame);
	}
	check(rdv_hints_end(&w, NULL) == REDRIVE_OK);
}

/* Segments 1 to 3 of fixed identity, hints of the first two. */
static void make_log(struct rdv_faulty *files)
{
	static uint8_t image[SEGMENT];
	static char dir[] = "/d";
	struct rdv_store s = {.ops = &rdv_faulty_ops,
			      .ctx = files,
			      .dir = dir,
			      .id = {1, 2},
			      .salt = 3,
			      .segment_size = SEGMENT,
			      .origin = 1};
	uint64_t number = 1;
	uint32_t segment;

	s.seed = rdv_frame_seed(s.id, s.salt);
	rdv_faulty_ops.mkdir(files, "/d", 0700);
	for (segment = 1; segment <= SEGMENTS; segment++) {
		struct rdv_position at = {segment, RDV_SEGMENT_START};
		struct rdv_segment_header h = {segment, SEGMENT, 1, s.id, s.salt, number - 1};
		struct iovec iov = {image, SEGMENT};
		int fd = rdv_faulty_ops.open(files, paths[segment - 1], 0100 | 02, 0600);

		memset(image, 0, sizeof image);
		rdv_segment_header_encode(&h, image);
		while (number <= FRAMES * segment / SEGMENTS)
			write_frame(&s, image, number++, &at);
		check(rdv_file_write_all(&rdv_faulty_ops, files, fd, &iov, 1, 0) == 0);
		rdv_faulty_ops.close(files, fd);
		if (segment < SEGMENTS)
			make_hints(&s, image, segment, at.offset);
	}
}

/* The same, from copies made the first time. */
static void lay_out_log(struct rdv_faulty *files)
{
	static uint8_t *copies[FILES];
	static uint64_t sizes[FILES];
	int i;

	if (!copies[0]) {
		struct rdv_faulty *first = rdv_faulty_new(1);

		make_log(first);
		for (i = 0; i < FILES; i++) {
			const uint8_t *bytes = rdv_faulty_bytes(first, paths[i], &sizes[i]);

			copies[i] = malloc(sizes[i]);
			check(bytes && copies[i]);
			memcpy(copies[i], bytes, sizes[i]);
		}
		rdv_faulty_free(first);
	}
	rdv_faulty_ops.mkdir(files, "/d", 0700);
	for (i = 0; i < FILES; i++) {
		struct iovec iov = {copies[i], sizes[i]};
		int fd = rdv_faulty_ops.open(files, paths[i], 0100 | 02, 0600);

		check(rdv_faulty_ops.pwritev(files, fd, &iov, 1, 0) == (ssize_t)sizes[i]);
		rdv_faulty_ops.close(files, fd);
	}
}

static enum redrive_status fold(void *ctx, const struct rdv_frame *f, struct rdv_error *error)
{
	struct seen *s = ctx;
	const struct written *w;
	size_t i;

	/* Without the file of the tail the log begins with the next segment: as if it had been trimmed. */
	check(f->number == s->last + 1 || (s->last == 0 && f->position.offset == RDV_SEGMENT_START));
	s->last = f->number;
	s->count++;
	check(f->payload.size == f->length || f->payload.size == f->hint_len);
	if (f->number > FRAMES || f->stream == 0)
		return REDRIVE_OK; /* appended by this program */
	w = &frames[f->number];
	check(f->length == w->length && f->position.segment == w->at.segment && f->position.offset == w->at.offset);
	check(f->type == 1 + f->number % 13 && f->flags == w->flags && f->hint_len == HINT_LEN &&
	      f->stream == f->number);
	for (i = 0; i < f->payload.size; i++)
		check(f->payload.data[i] == byte_of(f->number, (uint32_t)i));
	return REDRIVE_OK;
}

static void change(struct rdv_faulty *files, const uint8_t c[8])
{
	uint32_t at = (uint32_t)(c[2] | c[3] << 8 | c[4] << 16), length = (uint32_t)(c[5] | c[6] << 8), i;
	uint64_t size = 0, other_size = 0;
	uint8_t *bytes = rdv_faulty_bytes(files, paths[c[0] % FILES], &size);
	const uint8_t *other = rdv_faulty_bytes(files, paths[c[7] % FILES], &other_size);

	if (!bytes || at >= size)
		return;
	if (length > size - at)
		length = (uint32_t)(size - at);
	switch (c[1] % 6) {
	case 0: /* one bit */
		bytes[at] ^= (uint8_t)(1 << c[7] % 8);
		break;
	case 1: /* a run of one value */
		memset(bytes + at, c[7], length);
		break;
	case 2: /* all behind it is gone */
		memset(bytes + at, 0, size - at);
		break;
	case 3: /* bytes of the same place in another file */
		for (i = 0; i < length && other && at + i < other_size; i++)
			bytes[at + i] = other[at + i];
		break;
	case 4: /* moved */
		memmove(bytes + at, bytes + at / 2, length);
		break;
	default: /* the file is gone */
		rdv_faulty_ops.unlink(files, paths[c[0] % FILES]);
	}
}

static enum redrive_status open_log(struct rdv_faulty *files, struct rdv_log **log, struct seen *seen)
{
	struct rdv_log_options options = {.dir = "/d",
					  .files = &rdv_faulty_ops,
					  .files_ctx = files,
					  .segment_size = SEGMENT,
					  .buffer_size = 4096,
					  .capacity = 1 << 20};
	struct rdv_error error = {0};

	*seen = (struct seen){0};
	return rdv_log_open(&options, fold, seen, log, NULL, &error);
}

static void append_one(struct rdv_log *log)
{
	struct rdv_frame f = {.type = 1, .stream = 0, .length = 50};
	bool did;

	check(rdv_log_begin(log, RDV_LOG_OUTCOME, 50, 1, 0) == REDRIVE_OK);
	memset(rdv_log_put(log, &f), 9, 50);
	rdv_log_end(log, false, NULL);
	check(rdv_log_commit(log, 0, &did, NULL) == REDRIVE_OK && did);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rdv_faulty *files = rdv_faulty_new(1);
	struct rdv_log *log;
	struct seen seen, again;
	uint64_t before;
	size_t i;

	lay_out_log(files);
	for (i = 0; i + 8 <= size && i < 8 * 32; i += 8)
		change(files, data + i);
	before = rdv_faulty_digest(files);
	if (open_log(files, &log, &seen) != REDRIVE_OK) {
		check(rdv_faulty_digest(files) == before && log == NULL);
	} else {
		append_one(log);
		rdv_log_close(log);
		check(open_log(files, &log, &again) == REDRIVE_OK);
		check(again.last == seen.last + 1 && again.count == seen.count + 1);
		rdv_log_close(log);
	}
	rdv_faulty_free(files);
	return 0;
}
